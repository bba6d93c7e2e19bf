"""Overviews of models, of their versions and of the decisions on them, for lists."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from wasmline.printable import bounded_line
from wasmline.training.model_registry import ModelVersion
from wasmline.training.model_serving import ModelServing
from wasmline.training.promotion_record import Promotion

_MAX_DIGEST_LETTERS = 140


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOverview:
    """A model, its champion and its ``versions`` in ascending precedence; ``problem`` says why one cannot be read.

    ``rmse`` is that of the champion, without one of the latest version. ``serving`` is None if no deployments were
    given. With a problem, what could not be read is None or empty.
    """

    model: str
    versions: tuple[str, ...] = ()
    champion: str | None = None
    rmse: float | None = None
    serving: ModelServing | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelVersionOverview:
    """A version of a model, its errors in the target's unit, and its number of training ``rows``.

    ``baseline_rmse`` is the error of the better baseline on the same rows. ``forward_rmse`` is None if it was not
    measured. ``run`` is bounded, and so is ``dataset_digest``.
    """

    version: str
    created_ms: int
    digest: str
    dataset_digest: str
    rmse: float
    baseline_rmse: float
    forward_rmse: float | None
    rows: int
    run: str

    @classmethod
    def of(cls, stored: ModelVersion) -> ModelVersionOverview:
        """Return the overview of a stored version."""
        record, metrics = stored.record, stored.record.metrics
        baselines = (metrics.mean_rmse, metrics.linear_rmse)
        return cls(
            version=stored.version,
            created_ms=record.created_ms,
            digest=stored.digest,
            dataset_digest=record.dataset_digest[:_MAX_DIGEST_LETTERS],
            rmse=metrics.rmse,
            baseline_rmse=min(each for each in baselines if each is not None),
            forward_rmse=metrics.forward_rmse,
            rows=record.training_rows,
            run=bounded_line(record.run),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionOverview:
    """A decision on a model, as in Promotion, without its figures by segment. Texts are bounded lines."""

    number: int
    decision: Literal["promote", "keep", "rollback"]
    version: str
    champion: str | None
    live: str | None
    reason: str
    refusal: str
    rmse: float
    champion_rmse: float | None
    by: str
    run: str
    decided_ms: int

    @classmethod
    def of(cls, decision: Promotion) -> DecisionOverview:
        """Return the overview of a recorded decision."""
        before = decision.champion_metrics
        return cls(
            number=decision.number,
            decision=decision.decision,
            version=decision.version,
            champion=decision.champion,
            live=decision.live,
            reason=bounded_line(decision.reason),
            refusal=bounded_line(decision.refusal),
            rmse=decision.metrics.rmse,
            champion_rmse=before.rmse if before else None,
            by=bounded_line(decision.by),
            run=bounded_line(decision.run),
            decided_ms=decision.decided_ms,
        )
