"""Converts rows to a model's input columns, in a fixed order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from wasmline.errors import TrainingError

Matrix = npt.NDArray[np.float32]
Vector = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureLayout:
    """Numbers become one column each; a text becomes one column of 0 and 1 per listed value, all 0 for any other value.

    A missing value is NaN in each column of its feature.
    """

    features: tuple[str, ...]
    categories: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns: ``age``, ``vehicle=scooter``, …"""
        return tuple(column for name in self.features for column in self._columns(name))

    def matrix(self, table: pa.Table) -> Matrix:
        """Return the columns of each row, in single precision. Raises TrainingError if a feature is missing."""
        if missing := [name for name in self.features if name not in table.column_names]:
            raise TrainingError(
                f"the rows have no {', '.join(missing)}, which the model was trained on: add it to the fields "
                "(a field need not be a feature) so that the two models can be compared"
            )
        columns = [column for name in self.features for column in self._values(name, table[name])]
        return np.ascontiguousarray(np.stack(columns, axis=1), dtype=np.float32)

    def _columns(self, name: str) -> tuple[str, ...]:
        values = self.categories.get(name)
        return (name,) if values is None else tuple(f"{name}={value}" for value in values)

    def _values(self, name: str, column: pa.ChunkedArray) -> list[Vector]:
        values = self.categories.get(name)
        if values is None:
            return [numbers(column)]
        return [numbers(pc.cast(pc.equal(column, value), pa.float64())) for value in values]


def numbers(column: pa.ChunkedArray) -> Vector:
    """Return a column of numbers, rounded to double precision, NaN where it is null."""
    filled: Any = pc.fill_null(pc.cast(column, pa.float64(), safe=False), float("nan"))
    return np.asarray(filled.to_numpy(), dtype=np.float64)


def texts(column: pa.ChunkedArray) -> npt.NDArray[np.object_]:
    """Return a column of texts, None where it is null."""
    return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.object_)


def layout_of(features: tuple[str, ...], categories: Mapping[str, tuple[str, ...]]) -> FeatureLayout:
    """Return the layout of ``features``, with the categories of those only."""
    return FeatureLayout(
        features=features, categories={name: categories[name] for name in features if name in categories}
    )
