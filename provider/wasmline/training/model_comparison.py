"""Compares two versions of a model: their metrics, and how their trainings differed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from wasmline.documents import plain
from wasmline.training.evaluate import Metrics
from wasmline.training.model_registry import ModelVersion
from wasmline.training.promotion_record import Promotion

COMPARED = ("target", "layout", "parameters", "dataset", "training_rows", "libraries")
"""Fields of ModelRecord that say how a model was trained."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelComparison:
    """The metrics of two versions, and the values of what differs by the path of the field in their records.

    ``comparable``: both were measured on the same rows. ``decision`` is the number of the decision that has the
    metrics; None for those of the versions' own trainings. ``last`` is the last decision between the two that measured
    them on the same rows, None without one.
    """

    model: str
    versions: tuple[str, str]
    metrics: tuple[Metrics, Metrics]
    comparable: bool
    decision: int | None
    differences: dict[str, tuple[Any, Any]]
    last: Promotion | None = None


def compare_versions(first: ModelVersion, second: ModelVersion, history: Sequence[Promotion]) -> ModelComparison:
    """Return the comparison of two versions of a model; pure.

    If their own metrics are those of different holdouts, metrics of both that the last decision between them recorded
    take their place.
    """
    decision = last = None
    metrics = (first.record.metrics, second.record.metrics)
    for measured in _measured_together(first.version, second.version, history):
        last = measured
    if last and last.champion_metrics and metrics[0].holdout != metrics[1].holdout:
        decision, metrics = last.number, (last.champion_metrics, last.metrics)
        if last.version == first.version:
            metrics = metrics[::-1]
    return ModelComparison(
        model=first.name,
        versions=(first.version, second.version),
        metrics=metrics,
        comparable=metrics[0].holdout == metrics[1].holdout,
        decision=decision,
        differences=dict(_differences(first, second)),
        last=last,
    )


def _measured_together(first: str, second: str, history: Iterable[Promotion]) -> Iterator[Promotion]:
    """Yield the decisions that measured both versions on the same rows, the oldest first."""
    for each in history:
        theirs = each.champion_metrics
        measured = theirs is not None and theirs.holdout == each.metrics.holdout
        if measured and (each.version, each.champion) in ((first, second), (second, first)):
            yield each


def _differences(first: ModelVersion, second: ModelVersion) -> Iterator[tuple[str, tuple[Any, Any]]]:
    left, right = plain(first.record), plain(second.record)
    for section in COMPARED:
        ours, theirs = left[section], right[section]
        if not isinstance(ours, dict):
            ours, theirs = {"": ours}, {"": theirs}
        for key in sorted(ours.keys() | theirs.keys()):
            if ours.get(key) != theirs.get(key):
                yield f"{section}.{key}".removesuffix("."), (ours.get(key), theirs.get(key))
