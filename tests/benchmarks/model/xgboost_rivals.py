"""XGBoost itself, on one thread: from a matrix, from JSON records, and one row at a time."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import xgboost
from model.cases import Case

Predictions = npt.NDArray[np.float32]


class XGBoost:
    """One case's model."""

    def __init__(self, case: Case, single_rows: int) -> None:
        self._case = case
        self._names = list(case.layout.columns)
        self._booster = xgboost.Booster({"nthread": 1}, model_file=bytearray(case.model))
        self._rows = [case.matrix[row : row + 1] for row in range(single_rows)]
        self._lines = b"\n".join(case.records)
        fields = [(name, str if name in case.layout.categories else float) for name in case.layout.features]
        self._decoder: Any = msgspec.json.Decoder(msgspec.defstruct("Row", fields, gc=False))

    def matrix(self, rows: Any) -> xgboost.DMatrix:
        return xgboost.DMatrix(rows, feature_names=self._names, nthread=1)

    def new_matrix(self) -> xgboost.DMatrix:
        """Return a matrix of all rows: the booster remembers the predictions of one that it has seen."""
        return self.matrix(self._case.matrix)

    def batch(self, matrix: xgboost.DMatrix) -> Predictions:
        return self._booster.predict(matrix)

    def in_place(self) -> Predictions:
        return self._booster.inplace_predict(self._case.matrix, validate_features=False)

    def from_json(self) -> Predictions:
        """Predict from the records' text, as fast as Python can: all lines are decoded in one call of C code."""
        rows = self._decoder.decode_lines(self._lines)
        columns = [values for name in self._case.layout.features for values in self._columns(name, rows)]
        return self._booster.inplace_predict(np.stack(columns, axis=1), validate_features=False)

    def _columns(self, name: str, rows: list[Any]) -> Iterator[npt.NDArray[np.float32]]:
        values = (getattr(row, name) for row in rows)
        categories = self._case.layout.categories.get(name)
        if categories is None:
            yield np.fromiter(values, np.float32, len(rows))
            return
        codes = dict(zip(categories, itertools.count()))
        coded = np.fromiter((codes.get(value, -1) for value in values), np.int32, len(rows))
        yield from ((coded == code).astype(np.float32) for code in range(len(categories)))

    def each_in_place(self) -> Predictions:
        return np.concatenate([self._booster.inplace_predict(row, validate_features=False) for row in self._rows])

    def each_matrix(self) -> Predictions:
        return np.concatenate([self._booster.predict(self.matrix(row)) for row in self._rows])
