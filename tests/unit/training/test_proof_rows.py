"""The rows of a proof come to every split that a record can come to, and leave it on both sides."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wasmline.job_specs import FieldType
from wasmline.training import FeatureLayout
from wasmline.training.model_data import LEAF, Ensemble, Tree
from wasmline.training.proof_rows import UNKNOWN, RowMaker, first_integer, neighbour

KINDS = ("a", "b", "")
LAYOUT = FeatureLayout(features=("km", "age", "kind"), categories={"kind": KINDS})
TYPES: dict[str, FieldType] = {"km": "double", "age": "bigint", "kind": "string"}
SAMPLES: list[dict[str, Any]] = [{"km": 3.5, "age": 30, "kind": "a"}, {"km": None, "age": None, "kind": None}]
NUMBERS = (
    0.0,
    1e-45,
    -1e-45,
    30.0,
    30.5,
    2.0**24 + 2,
    -(2.0**25) - 4,
    2.0**40,
    2.0**63,
    -(2.0**63),
    3.4028234663852886e38,
    -3.4028234663852886e38,
)
THRESHOLDS = st.sampled_from(NUMBERS).map(np.float32) | st.floats(-1e3, 1e3, width=32).map(np.float32)


@st.composite
def trees(draw: st.DrawFn) -> Tree:
    """Draw a tree of up to seven splits; a split of a category is at 1, as XGBoost makes it, or anywhere."""
    left, right, column, value, default_left = [LEAF], [LEAF], [0], [np.float32(0)], [False]
    for _ in range(draw(st.integers(1, 7))):
        leaves = [node for node, child in enumerate(left) if child == LEAF]
        node = draw(st.sampled_from(leaves))
        left[node], right[node] = len(left), len(left) + 1
        column[node] = draw(st.integers(0, len(LAYOUT.columns) - 1))
        value[node] = draw(st.just(np.float32(1)) | THRESHOLDS if column[node] > 1 else THRESHOLDS)
        default_left[node] = draw(st.booleans())
        left += [LEAF, LEAF]
        right += [LEAF, LEAF]
        column += [0, 0]
        value += [np.float32(0)] * 2
        default_left += [False, False]
    return Tree(
        left=tuple(left),
        right=tuple(right),
        column=tuple(column),
        value=tuple(value),
        default_left=tuple(default_left),
    )


Turn = tuple[int, str]
"""A split, and the way a row takes there: left or right, or the default as its value is missing."""


def turns(tree: Tree, row: Mapping[str, Any]) -> Iterable[Turn]:
    kinds = [None if row["kind"] is None else float(row["kind"] == each) for each in KINDS]
    columns = [None if each is None else np.float32(each) for each in (row["km"], row["age"], *kinds)]
    node = 0
    while tree.left[node] != LEAF:
        value = columns[tree.column[node]]
        if value is None:
            goes_left, turn = tree.default_left[node], "missing"
        else:
            goes_left = bool(value < tree.value[node])
            turn = "left" if goes_left else "right"
        yield node, turn
        node = tree.left[node] if goes_left else tree.right[node]


def reachable(tree: Tree) -> set[Turn]:
    """Return all turns that any row takes, by trying a row of each kind."""
    splits = [node for node, child in enumerate(tree.left) if child != LEAF]
    numbers: list[float | None] = [None, 0.0]
    integers: list[int | None] = [None, 0, -(2**63), 2**63 - 1]
    for limit in (tree.value[node] for node in splits if tree.column[node] < 2):
        beside = neighbour(limit, np.float32(-np.inf)), limit, neighbour(limit, np.float32(np.inf))
        finite = [float(each) for each in beside if np.isfinite(each)]
        numbers += finite
        integers += [whole for each in finite for whole in (math.floor(each), math.ceil(each))]
    integers = [each for each in integers if each is None or -(2**63) <= each < 2**63]
    rows = product(dict.fromkeys(numbers), dict.fromkeys(integers), (None, *KINDS, UNKNOWN))
    return {turn for km, age, kind in rows for turn in turns(tree, {"km": km, "age": age, "kind": kind})}


@given(trees())
def test_the_rows_take_every_turn_that_a_record_can_take(tree: Tree) -> None:
    ensemble = Ensemble(base_score=np.float32(0.5), trees=(tree,))
    rows = list(RowMaker(LAYOUT, TYPES, SAMPLES).boundary_rows(ensemble))
    assert {turn for row in rows for turn in turns(tree, row)} == reachable(tree)


@pytest.mark.parametrize("threshold", [*NUMBERS, 30.25, -30.25, 2.0**53 + 2.0**30, 2.0**62 + 2.0**39, -(2.0**62)])
def test_the_integers_beside_a_threshold_are_those_that_single_precision_parts(threshold: float) -> None:
    single = np.float32(threshold)
    first = first_integer(single)
    if first < 2**63:
        assert np.float32(first) >= single
    if first > -(2**63):
        assert np.float32(first - 1) < single


def split(column: int, threshold: float) -> Ensemble:
    tree = Tree(
        left=(1, LEAF, LEAF),
        right=(2, LEAF, LEAF),
        column=(column, 0, 0),
        value=(np.float32(threshold), np.float32(1), np.float32(2)),
        default_left=(True, False, False),
    )
    return Ensemble(base_score=np.float32(0.5), trees=(tree,))


def values(name: str, column: int, threshold: float) -> list[Any]:
    return [row[name] for row in RowMaker(LAYOUT, TYPES, SAMPLES[:1]).boundary_rows(split(column, threshold))]


def test_a_threshold_and_its_neighbours_are_tried_and_what_rounds_to_them() -> None:
    below, above = (float(np.nextafter(np.float32(8.5), np.float32(side))) for side in (0, 10))
    middle = (below + 8.5) / 2
    rounded = [float(np.nextafter(middle, side)) for side in (0, 10)]
    assert values("km", 0, 8.5) == [below, 8.5, above, None, rounded[0], middle, rounded[1]]
    assert [np.float32(each) for each in (rounded[0], rounded[1])] == [np.float32(below), np.float32(8.5)]


def test_both_signs_of_zero_and_the_smallest_numbers_are_tried() -> None:
    tried = values("km", 0, 0.0)
    assert [str(each) for each in tried if each == 0] == ["0.0", "-0.0"]
    assert {1.401298464324817e-45, -1.401298464324817e-45} <= set(tried)


def test_integers_that_single_precision_rounds_are_tried_where_it_parts_them() -> None:
    threshold = 2.0**25 + 4
    below = int(threshold) - 2
    assert values("age", 1, threshold) == [below, below + 1, None]
    assert [np.float32(each) < threshold for each in (below, below + 1)] == [True, False]


def test_texts_that_are_nearly_a_category_are_tried() -> None:
    assert values("kind", 3, 1.0) == ["b", "", UNKNOWN, None, "", "b ", "B"]


def test_each_category_an_unknown_one_and_what_is_missing_have_a_row() -> None:
    rows = list(RowMaker(LAYOUT, TYPES, SAMPLES).category_rows())
    assert [row["kind"] for row in rows[2:7]] == [*KINDS, UNKNOWN, None]
    assert rows[0] == {**SAMPLES[0], "km": None}
    assert rows[-1] == {"km": None, "age": None, "kind": None}
