"""Fits a linear model by least squares: the baseline that trees must beat to be worth their size."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from wasmline.training.feature_encoding import Matrix, Vector


class LinearBaseline:
    """A linear function of a layout's columns; a missing value counts as its column's mean in the training rows."""

    def __init__(self, matrix: Matrix, target: Vector) -> None:
        present = np.isfinite(matrix)
        totals = np.where(present, matrix, 0.0).sum(axis=0, dtype=np.float64)
        self._means = totals / np.maximum(present.sum(axis=0), 1)
        self._weights = np.linalg.lstsq(self._terms(matrix), target, rcond=None)[0]

    def predict(self, matrix: Matrix) -> Vector:
        return np.asarray(self._terms(matrix) @ self._weights, dtype=np.float64)

    def _terms(self, matrix: Matrix) -> npt.NDArray[np.float64]:
        """Return the columns as differences from their means, and one of 1."""
        differences = np.where(np.isfinite(matrix), matrix - self._means, 0.0)
        return np.column_stack([np.ones(len(matrix)), differences])
