"""Measures the drift of features as the population stability index (PSI) between two tables of rows."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from wasmline.training.feature_encoding import FeatureLayout, Vector, numbers, texts

BINS = 10
"""Quantiles of the reference between which numbers are counted."""

PSEUDO_COUNT = 0.5
"""Added to the count of each bin (Jeffreys' prior), so that an empty one has a logarithm."""

Counts = npt.NDArray[np.int64]


def population_stability_index(expected: Counts, found: Counts) -> float:
    """Return the sum over bins of ``(q - p) * ln(q / p)``, p and q being the smoothed shares of both samples.

    It is 0 for equal shares, symmetric, and about ``(bins - 1) * (1 / n + 1 / m)`` for samples of one distribution with
    n and m rows. By custom, 0.1 is a small shift and 0.25 a large one.
    """
    p, q = _shares(expected), _shares(found)
    return float(np.sum((q - p) * np.log(q / p)))


def feature_drift(reference: pa.Table, current: pa.Table, layout: FeatureLayout) -> dict[str, float]:
    """Return the PSI of each feature of ``layout`` in ``current`` beside ``reference``.

    Numbers are counted between the quantiles of the reference, below its minimum and above its maximum; texts by
    category, and all others together. Missing values are a bin of their own.
    """
    return {
        name: population_stability_index(*_counts(reference[name], current[name], layout.categories.get(name)))
        for name in layout.features
    }


def _counts(
    reference: pa.ChunkedArray, current: pa.ChunkedArray, categories: tuple[str, ...] | None
) -> tuple[Counts, Counts]:
    if categories is None:
        values = numbers(reference)
        known = values[~np.isnan(values)]
        edges = np.unique(np.quantile(known, np.linspace(0, 1, BINS + 1))) if len(known) else np.zeros(1)
        size = len(edges) + 3
        codes = [_bins(values, edges), _bins(numbers(current), edges)]
    else:
        places = {value: place for place, value in enumerate(categories)}
        size = len(categories) + 2
        codes = [_categories(texts(column), places) for column in (reference, current)]
    expected, found = (np.bincount(each, minlength=size) for each in codes)
    return expected, found


def _bins(values: Vector, edges: Vector) -> Counts:
    """Return the bin of each value: below all edges, from an edge to the next, above the last, or missing."""
    above = np.where(np.isnan(values), len(edges) + 2, len(edges) + 1)
    return np.where(values <= edges[-1], np.searchsorted(edges, values, side="right"), above)


def _categories(values: npt.NDArray[np.object_], places: dict[str, int]) -> Counts:
    other, missing = len(places), len(places) + 1
    return np.array([missing if value is None else places.get(value, other) for value in values], np.int64)


def _shares(counts: Counts) -> Vector:
    smoothed = counts + PSEUDO_COUNT
    return np.asarray(smoothed / smoothed.sum())
