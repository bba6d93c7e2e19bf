"""Makes the rows that a compiled model is proven on: both sides of every split, every category, random ones.

A row has a value by feature, or None where it is missing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import numpy as np

from wasmline.job_specs import FieldType
from wasmline.training.feature_encoding import FeatureLayout
from wasmline.training.model_data import Ensemble, Tree

Row = Mapping[str, Any]

UNKNOWN = "\x00 none of the categories"
_INFINITY = np.float32("inf")
_LARGEST = np.finfo(np.float32).max
_INTEGERS = range(-(2**63), 2**63)


@dataclass(frozen=True, slots=True)
class _Bounds:
    """What a path through a tree allows a column: values from ``least`` up to ``most``, excluded, or a missing one."""

    least: np.float32 = -_INFINITY
    most: np.float32 = _INFINITY
    missing: bool = True

    def allow(self, value: float | None) -> bool:
        return self.missing if value is None else bool(self.least <= np.float32(value) < self.most)


class RowMaker:
    """Makes rows of one model's features. ``samples``, at least one, are rows to begin with."""

    def __init__(self, layout: FeatureLayout, types: Mapping[str, FieldType], samples: Sequence[Row]) -> None:
        self._layout = layout
        self._types = types
        self._samples = samples
        self._columns = [(name, value) for name in layout.features for value in layout.categories.get(name, (None,))]
        """The feature of each column, and its category if it is one of several."""

    def boundary_rows(self, ensemble: Ensemble) -> Iterator[Row]:
        """Yield rows that come to every split of every tree, with values on both sides of it, and a missing one.

        Only what leads to the split is changed in a sample. A split without rows is one that no record comes to.
        """
        samples = cycle(self._samples)
        seen: set[tuple[int, np.float32]] = set()
        for tree in ensemble.trees:
            yield from self._tree_rows(tree, samples, seen)

    def category_rows(self) -> Iterator[Row]:
        """Yield a row with each category of each text, an unknown one, and with each feature missing, and all."""
        sample = self._samples[0]
        for name in self._layout.features:
            categories = self._layout.categories.get(name, ())
            for value in (*categories, *([UNKNOWN] if categories else []), None):
                yield {**sample, name: value}
        yield dict.fromkeys(self._layout.features)

    def random_rows(self, count: int, seed: int) -> Iterator[Row]:
        """Yield rows that take each feature from another sample, and now and then a number of any size, or none."""
        generator = np.random.default_rng(seed)
        for _ in range(count):
            picks = generator.integers(len(self._samples), size=len(self._layout.features))
            kinds = generator.integers(20, size=len(self._layout.features))
            yield {
                name: self._random(name, self._samples[pick][name], kind, generator)
                for name, pick, kind in zip(self._layout.features, picks, kinds, strict=True)
            }

    def _random(self, name: str, value: Any, kind: int, generator: np.random.Generator) -> Any:
        if kind == 0:
            return None
        if kind > 2:
            return value
        if name in self._layout.categories:
            return UNKNOWN
        if self._types[name] == "bigint":
            return int(generator.integers(-(2**63), 2**63 - 1)) >> int(generator.integers(64))
        return float(generator.normal() * 10.0 ** generator.integers(-44, 38))

    def _tree_rows(self, tree: Tree, samples: Iterator[Row], seen: set[tuple[int, np.float32]]) -> Iterator[Row]:
        paths: list[tuple[int, dict[int, _Bounds]]] = [(0, {})]
        while paths:
            node, bounds = paths.pop()
            if tree.left[node] < 0:
                continue
            row = self._row_within(bounds, next(samples))
            if row is None:
                continue
            column, threshold = tree.column[node], tree.value[node]
            name = self._columns[column][0]
            for value in self._values(column, threshold, bounds, is_first=(column, threshold) not in seen):
                yield {**row, name: value}
            seen.add((column, threshold))
            before, goes_left = bounds.get(column, _Bounds()), tree.default_left[node]
            left = _Bounds(before.least, min(before.most, threshold), before.missing and goes_left)
            right = _Bounds(max(before.least, threshold), before.most, before.missing and not goes_left)
            paths += [(tree.left[node], {**bounds, column: left}), (tree.right[node], {**bounds, column: right})]

    def _values(
        self, column: int, threshold: np.float32, bounds: Mapping[int, _Bounds], *, is_first: bool
    ) -> Iterator[Any]:
        """Yield the values of a split's feature; at the first split of a column by a threshold, more of them."""
        name, category = self._columns[column]
        yield from self._around(name, threshold) if category is None else self._beside(name, category)
        yield None
        if is_first:  # how a value is read is the same at each of them
            yield from self._nearly(name, threshold) if category is None else _misspelt(category)
        its = self._of_feature(name, bounds)
        if any(not each.least < threshold < each.most for each in its.values()):  # then no value turns there and here
            yield from (each for each in self._choices(name, None, its) if each is not None and _allowed(each, its))

    def _of_feature(self, name: str, bounds: Mapping[int, _Bounds]) -> dict[str | None, _Bounds]:
        """Return the bounds of one feature's columns, by category."""
        return {self._columns[column][1]: each for column, each in bounds.items() if self._columns[column][0] == name}

    def _around(self, name: str, threshold: np.float32) -> tuple[Any, ...]:
        """Return a threshold and the two values beside it; of integers, the last that is below and the first not."""
        if self._types[name] == "bigint":
            first = first_integer(threshold)
            return tuple(each for each in (first - 1, first) if each in _INTEGERS)
        neighbours = neighbour(threshold, -_INFINITY), threshold, neighbour(threshold, _INFINITY)
        return tuple(float(each) for each in neighbours if np.isfinite(each))

    def _nearly(self, name: str, threshold: np.float32) -> tuple[Any, ...]:
        """Return the numbers in double precision between which rounding leads to the threshold or below it."""
        below = neighbour(threshold, -_INFINITY)
        if self._types[name] == "bigint" or not np.isfinite(below):
            return ()
        middle = (float(below) + float(threshold)) / 2
        values = (
            np.nextafter(middle, -np.inf),
            middle,
            np.nextafter(middle, np.inf),
            *([-0.0] if threshold == 0 else []),
        )
        return tuple(map(float, values))

    def _beside(self, name: str, category: str) -> tuple[str, ...]:
        """Return a category, and texts that are not it: the next category, and an unknown one."""
        categories = self._layout.categories[name]
        return category, categories[(categories.index(category) + 1) % len(categories)], UNKNOWN

    def _row_within(self, bounds: Mapping[int, _Bounds], sample: Row) -> dict[str, Any] | None:
        """Return a row, as near to the sample as may be, that comes along a path; None if there is none."""
        row = dict(sample)
        for name in {self._columns[column][0] for column in bounds}:
            its = self._of_feature(name, bounds)
            choices = self._choices(name, sample[name], its)
            found = next((value for value in choices if _allowed(value, its)), _NONE)
            if found is _NONE:
                return None
            row[name] = found
        return row

    def _choices(self, name: str, value: Any, bounds: Mapping[str | None, _Bounds]) -> tuple[Any, ...]:
        """Return values of which one is within the bounds, if any value is."""
        if name in self._layout.categories:
            return value, *bounds, UNKNOWN, None
        [each] = bounds.values()
        if self._types[name] == "bigint":
            first, last = first_integer(each.least), first_integer(each.most) - 1
            ends: list[Any] = [end for end in (first, last) if end in _INTEGERS]
        else:
            ends = [float(max(each.least, -_LARGEST)), float(max(neighbour(each.most, -_INFINITY), -_LARGEST))]
        return value, *sorted(ends, key=abs), None


def neighbour(value: np.float32, side: np.float32) -> np.float32:
    """Return the next value in single precision on one side, infinite beside the largest one."""
    with np.errstate(over="ignore"):
        return np.float32(np.nextafter(value, side))


def first_integer(threshold: np.float32) -> int:
    """Return the first integer of 64 bits that is not below a threshold once it is in single precision.

    The first one of all, or one more than the last, if none is below, or all are.
    """
    below = neighbour(threshold, -_INFINITY)
    if not _INTEGERS.start <= below < _INTEGERS.stop:
        return _INTEGERS.start if below < 0 else _INTEGERS.stop
    between = range(int(np.floor(below)), min(int(np.ceil(threshold)) + 1, _INTEGERS.stop))
    return between.start + bisect_left(between, threshold, key=np.float32)


_NONE = object()


def _misspelt(category: str) -> tuple[str, ...]:
    return category[:-1], f"{category} ", category.swapcase()


def _allowed(value: Any, bounds: Mapping[str | None, _Bounds]) -> bool:
    """Whether a feature's value is within the bounds of its columns, by category."""
    return all(
        each.allow(value if category is None or value is None else float(value == category))
        for category, each in bounds.items()
    )
