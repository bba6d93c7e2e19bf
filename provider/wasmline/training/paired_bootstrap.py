"""Estimates by a paired bootstrap how far the errors of two models differ beyond the noise of their rows.

The interval is the percentile interval of Efron and Tibshirani, "An Introduction to the Bootstrap" (1993), chapter 13,
of the ratio of two RMSEs. Each resample draws rows, each with the errors of both models.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wasmline.training.feature_encoding import Vector

RESAMPLES = 10_000

MAX_BLOCKS = 1_000
"""Rows beyond this number are drawn in blocks of neighbours, so that time and memory do not grow with the rows."""

MAX_RATIO = 1e6
"""The ratio to a model without errors, which has no quotient."""

_BATCH_RESAMPLES = 50
"""Resamples that are drawn and summed together: few enough for a processor's cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """Bounds of a ratio of RMSEs: it lies within them at ``confidence``, and as often below as above them else."""

    low: float
    high: float
    confidence: float


def ratio_interval(first: Vector, second: Vector, *, confidence: float, seed: int) -> Interval:
    """Return the interval of the first RMSE divided by the second, from the squared errors of the same rows.

    The same errors and ``seed`` give the same interval; at least one row.
    """
    blocks = min(len(first), MAX_BLOCKS)
    starts = np.linspace(0, len(first), blocks, endpoint=False).astype(np.int64)
    sums = [np.add.reduceat(errors, starts) for errors in (first, second)]
    random = np.random.default_rng(seed)
    ratios: list[Vector] = []
    for _ in range(RESAMPLES // _BATCH_RESAMPLES):
        drawn = random.integers(blocks, size=(_BATCH_RESAMPLES, blocks), dtype=np.uint16)
        ratios.append(_ratios(*(each.take(drawn, mode="clip").sum(axis=1) for each in sums)))
    tail = (1 - confidence) / 2
    low, high = np.quantile(np.concatenate(ratios), (tail, 1 - tail))
    return Interval(low=float(low), high=float(high), confidence=confidence)


def _ratios(first: Vector, second: Vector) -> Vector:
    """Return the square roots of quotients, 1 for two sums of 0."""
    quotients = np.full_like(first, MAX_RATIO**2)
    np.divide(first, second, out=quotients, where=second > first / MAX_RATIO**2)
    return np.sqrt(np.where(first == second, 1.0, quotients))
