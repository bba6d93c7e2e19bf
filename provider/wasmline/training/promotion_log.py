"""The append-only log of decisions that make a model version the champion."""

from __future__ import annotations

from dataclasses import replace

from wasmline.clock import now_ms
from wasmline.errors import Conflict, VersionNotFound
from wasmline.registry.storage import open_storage
from wasmline.training.evaluate import Metrics
from wasmline.training.gate import Decision
from wasmline.training.model_registry import ModelRegistry
from wasmline.training.numbered_log import NumberedLog
from wasmline.training.promotion_record import (
    MAX_BYTES,
    ROLLBACK_SPEC_VERSION,
    Promotion,
    parse_promotion,
    promotion_document,
)

FOLDER = "promotions"

USER = "user"
"""The refusal of a model that a user did not approve."""


class PromotionLog:
    """The decisions on the models of one registry, one file each, numbered from 1 without gaps."""

    def __init__(self, url: str) -> None:
        self._models = ModelRegistry(url)
        self._log = NumberedLog(
            storage=open_storage(url),
            folder=FOLDER,
            file="promotion.json",
            noun="decision",
            parse=parse_promotion,
            max_bytes=MAX_BYTES,
        )

    def champion(self, name: str) -> str | None:
        """Return the live version of a model, or None. Raises VersionNotFound if the registry lacks it."""
        history = self._log.numbers(name)
        live = self._log.read(name, history[-1]).live if history else None
        if live is not None and live not in self._models.versions(name):
            raise VersionNotFound(
                f"no {name}@{live} in {self._models.url}, which is live by {self._log.path(name, history[-1])}: "
                "restore it, or promote another version",
                name=name,
                version=live,
            )
        return live

    def history(self, name: str) -> list[Promotion]:
        """Return all decisions on a model, the oldest first."""
        return self._log.read_all(name)

    def append(
        self,
        name: str,
        version: str,
        decision: Decision,
        *,
        champion: str | None,
        metrics: Metrics,
        champion_metrics: Metrics | None = None,
        run: str = "",
        by: str = "",
    ) -> Promotion:
        """Record a decision that was made while ``champion`` was live, and return it.

        The last decision is returned unchanged if the same run recorded it. Raises Conflict if another champion is live
        now, or another decision followed that of the same run: the models must be compared again; VersionNotFound for
        a version that does not exist; InvalidArtifact for a decision that could not be read back, such as metrics that
        are not numbers.
        """
        return self._record(
            Promotion(
                model=name,
                number=0,
                decision=decision.decision,
                reason=decision.reason,
                version=version,
                champion=champion,
                metrics=metrics,
                champion_metrics=champion_metrics,
                decided_ms=now_ms(),
                run=run,
                by=by,
                refusal=decision.refusal,
                held_out=decision.held_out,
                segments=decision.segments,
                forward=decision.forward,
            )
        )

    def roll_back(
        self, name: str, version: str, *, champion: str, reason: str, run: str = "", by: str = ""
    ) -> Promotion:
        """Record that ``version`` replaces ``champion``, which is live, and return the decision.

        The metrics are each model's own; None for a champion that the registry has lost. Raises the errors of
        ``append``, and ValueError as Promotion does.
        """
        known = champion in self._models.versions(name)
        return self._record(
            Promotion(
                model=name,
                number=0,
                decision="rollback",
                reason=reason,
                version=version,
                champion=champion,
                metrics=self._models.get(name, version).record.metrics,
                champion_metrics=self._models.get(name, champion).record.metrics if known else None,
                decided_ms=now_ms(),
                run=run,
                by=by,
                spec_version=ROLLBACK_SPEC_VERSION,
            )
        )

    def _record(self, decided: Promotion) -> Promotion:
        """Store a decision under the next number, and return it: see ``append``."""
        name = decided.model
        self._models.get(name, decided.version)
        history = self.history(name)
        last = history[-1] if history else None
        own = next((each for each in history if each.run and _identity(each) == _identity(decided)), None)
        if own and own is not last:
            raise _conflict(name, f"decision {own.number + 1} followed decision {own.number} of this run")
        if own:
            return own
        live = last.live if last else None
        if live != decided.champion:
            raise _conflict(name, f"{live or 'nothing'} is live, not {decided.champion or 'nothing'}")
        promotion = replace(decided, number=last.number + 1 if last else 1)
        if not self._log.create(name, promotion.number, promotion_document(promotion)):
            raise _conflict(name, f"decision {promotion.number} was taken by another run meanwhile")
        return promotion


def _identity(promotion: Promotion) -> tuple[str, str, bool, bool]:
    """Return what a decision and its repetition by the same run have in common; a user may think again."""
    return promotion.run, promotion.version, promotion.decision == "rollback", promotion.refusal == USER


def _conflict(name: str, what: str) -> Conflict:
    return Conflict(f"model {name}: {what}. Compare the models again and retry", name=name, generation=None)
