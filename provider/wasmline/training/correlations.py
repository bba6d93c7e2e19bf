"""Correlations of each feature with the target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from wasmline.training.feature_encoding import Vector, numbers, texts


@dataclass(frozen=True, slots=True, kw_only=True)
class Correlation:
    """The correlation of one feature with the target, over the ``rows`` that have both.

    A number has Pearson's ``pearson``; a text has ``eta_squared``, the share of the target's variance between its
    categories, and per category the ``means`` and ``counts``. Other values are one group of ``eta_squared``, and not
    among these: texts of records have no bound. None if undefined: too few rows, or no variance.
    """

    feature: str
    rows: int
    pearson: float | None = None
    eta_squared: float | None = None
    means: dict[str, float] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)


def correlate(
    table: pa.Table, features: Sequence[str], target: str, categories: Mapping[str, Sequence[str]]
) -> tuple[Correlation, ...]:
    """Return each feature's correlation with ``target``; those in ``categories`` are texts, all others numbers."""
    truth = numbers(table[target])
    return tuple(
        of_text(name, texts(table[name]).tolist(), truth, categories[name])
        if name in categories
        else of_number(name, numbers(table[name]), truth)
        for name in features
    )


def of_number(feature: str, values: Vector, truth: Vector) -> Correlation:
    """Return Pearson's correlation of numbers with the target, NaN meaning missing."""
    whole = np.isfinite(values) & np.isfinite(truth)
    x, y = values[whole], truth[whole]
    if len(x) < 2 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return Correlation(feature=feature, rows=len(x))
    return Correlation(feature=feature, rows=len(x), pearson=float(np.corrcoef(x, y)[0, 1]))


def of_text(feature: str, values: Sequence[str | None], truth: Vector, categories: Sequence[str]) -> Correlation:
    """Return the correlation of a text with the target, None meaning missing."""
    known = frozenset(categories)
    groups: dict[str | None, list[float]] = {}
    for value, y in zip(values, truth.tolist(), strict=True):
        if value is not None and np.isfinite(y):
            groups.setdefault(value if value in known else None, []).append(y)
    rows = sum(map(len, groups.values()))
    if rows == 0:
        return Correlation(feature=feature, rows=0)
    listed = sorted(known & groups.keys())
    everything = np.concatenate([np.asarray(group) for group in groups.values()])
    total = float(np.sum((everything - everything.mean()) ** 2))
    between = sum(len(group) * (float(np.mean(group)) - float(everything.mean())) ** 2 for group in groups.values())
    return Correlation(
        feature=feature,
        rows=rows,
        eta_squared=between / total if total else None,
        means={value: float(np.mean(groups[value])) for value in listed},
        counts={value: len(groups[value]) for value in listed},
    )
