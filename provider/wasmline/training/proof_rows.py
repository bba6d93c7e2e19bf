"""Rows that a compiled model is proven on: both sides of every split, every category, missing values, random rows.

A row has a value by feature, or None where it is missing. Values of a number are those of single precision, which is
what splits compare.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, cycle
from typing import Any

import numpy as np

from wasmline.job_specs import FieldType
from wasmline.training.feature_encoding import FeatureLayout
from wasmline.training.model_data import Ensemble, Tree

Row = Mapping[str, Any]

UNKNOWN = "\x00 none of the categories"
_INFINITY = np.float32("inf")


@dataclass(frozen=True, slots=True)
class _Bounds:
    """What a path through a tree allows a column: values from ``least`` up to ``most``, excluded, or a missing one."""

    least: np.float32 = -_INFINITY
    most: np.float32 = _INFINITY
    missing: bool = True

    def allow(self, value: float | None) -> bool:
        return self.missing if value is None else bool(self.least <= np.float32(value) < self.most)


class RowMaker:
    """Makes rows of one model's features."""

    def __init__(self, layout: FeatureLayout, types: Mapping[str, FieldType]) -> None:
        self._layout = layout
        self._types = types
        self._columns = [(name, value) for name in layout.features for value in layout.categories.get(name, (None,))]
        """The feature of each column, and its category if it is one of several."""

    def boundary_rows(self, ensemble: Ensemble, samples: Sequence[Row]) -> Iterator[Row]:
        """Yield rows that come to every split of every tree, with its threshold, the values beside it, and none.

        ``samples``, at least one, are the rows in which only what leads to the split is changed. A split that no row
        comes to has none.
        """
        some = cycle(samples)
        return chain.from_iterable(self._tree_rows(tree, some) for tree in ensemble.trees)

    def category_rows(self, sample: Row) -> Iterator[Row]:
        """Yield a row with each category of each text, an unknown one, and with each feature missing, and all."""
        for name in self._layout.features:
            for value in (
                *self._layout.categories.get(name, ()),
                *([UNKNOWN] * (name in self._layout.categories)),
                None,
            ):
                yield {**sample, name: value}
        yield dict.fromkeys(self._layout.features)

    def random_rows(self, samples: Sequence[Row], count: int, seed: int) -> Iterator[Row]:
        """Yield rows that take each feature from another sample, and now and then a number of any size, or none."""
        generator = np.random.default_rng(seed)
        for _ in range(count):
            picks = generator.integers(len(samples), size=len(self._layout.features))
            kinds = generator.integers(20, size=len(self._layout.features))
            yield {
                name: self._random(name, samples[pick][name], kind, generator)
                for name, pick, kind in zip(self._layout.features, picks, kinds, strict=True)
            }

    def _random(self, name: str, value: Any, kind: int, generator: np.random.Generator) -> Any:
        if kind == 0:
            return None
        if kind > 2:
            return value
        if name in self._layout.categories:
            return UNKNOWN
        number = float(np.float32(generator.normal() * 10.0 ** generator.integers(-30, 30)))
        return int(max(-(2.0**53), min(2.0**53, number))) if self._types[name] == "bigint" else number

    def _tree_rows(self, tree: Tree, samples: Iterator[Row]) -> Iterator[Row]:
        paths: list[tuple[int, dict[int, _Bounds]]] = [(0, {})]
        while paths:
            node, bounds = paths.pop()
            if tree.left[node] < 0:
                continue
            row = self._row_within(bounds, next(samples))
            if row is None:
                continue
            column, threshold = tree.column[node], tree.value[node]
            name, category = self._columns[column]
            values = self._around(name, threshold) if category is None else self._layout.categories[name] + (UNKNOWN,)
            yield from ({**row, name: value} for value in (*values, None))
            before, goes_left = bounds.get(column, _Bounds()), tree.default_left[node]
            left = _Bounds(before.least, min(before.most, threshold), before.missing and goes_left)
            right = _Bounds(max(before.least, threshold), before.most, before.missing and not goes_left)
            paths += [(tree.left[node], {**bounds, column: left}), (tree.right[node], {**bounds, column: right})]

    def _around(self, name: str, threshold: np.float32) -> tuple[Any, ...]:
        if self._types[name] == "bigint":
            return int(np.ceil(threshold)) - 1, int(np.ceil(threshold))
        neighbours = np.nextafter(threshold, -_INFINITY), threshold, np.nextafter(threshold, _INFINITY)
        return tuple(float(each) for each in neighbours if np.isfinite(each))

    def _row_within(self, bounds: Mapping[int, _Bounds], sample: Row) -> dict[str, Any] | None:
        """Return a row, as near to the sample as may be, that comes along a path; None if there is none."""
        row = dict(sample)
        for name in {self._columns[column][0] for column in bounds}:
            its = {
                self._columns[column][1]: each for column, each in bounds.items() if self._columns[column][0] == name
            }
            choices = self._choices(name, sample[name], its)
            found = next((value for value in choices if _allowed(value, its)), _NONE)
            if found is _NONE:
                return None
            row[name] = found
        return row

    def _choices(self, name: str, value: Any, bounds: Mapping[str | None, _Bounds]) -> tuple[Any, ...]:
        if name in self._layout.categories:
            return value, *self._layout.categories[name], UNKNOWN, None
        [each] = bounds.values()
        ends = [float(end) for end in (each.least, np.nextafter(each.most, -_INFINITY)) if np.isfinite(end)]
        if self._types[name] == "bigint":
            ends = [float(np.ceil(end)) for end in ends]
            return value, *map(int, ends), None
        return value, *ends, None


_NONE = object()


def _allowed(value: Any, bounds: Mapping[str | None, _Bounds]) -> bool:
    """Whether a feature's value is within the bounds of its columns, by category."""
    return all(
        each.allow(value if category is None or value is None else float(value == category))
        for category, each in bounds.items()
    )
