"""Encodes a trained model as the data of the scorer, ``wasm_modules/model_scorer``: its format is in ``src/model.hpp``.

What it takes from XGBoost's JSON (xgboost.readthedocs.io, "Introduction to Model IO"): a split sends a row to the left
if its value is below the threshold, a missing value to the default side, and a prediction is the sum of the base score
and each tree's leaf, in single precision.
"""

from __future__ import annotations

import json
import struct
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from wasmline.errors import InvalidModel
from wasmline.job_specs import FieldType
from wasmline.printable import bounded_line
from wasmline.training.feature_encoding import FeatureLayout

MAGIC = b"WLTREES2"
MARK = b"wasmline:model@>"
"""Marks the place of the model's address in the scorer."""

LEAF = -1
"""The children of a leaf."""

OBJECTIVES = ("reg:squarederror",)
MAX_COLUMNS = 2_047
GROUP_TREES = 20
"""Trees that are walked side by side."""

FLOAT_BYTES = 4

_HEADER = struct.Struct("<8s6If")
_FIELD = struct.Struct("<7I")
_CATEGORY = struct.Struct("<2I")
_GROUP = struct.Struct(f"<{2 + GROUP_TREES}I")
_PAIR = np.dtype([("value", "<f4", 2), ("input", "<u4", 2), ("left", "<u4", 2)])
_TYPES: dict[FieldType, int] = {"double": 0, "bigint": 1, "string": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """One tree, by node. A leaf has no children (-1), and ``value`` is its score; else ``value`` is the threshold."""

    left: tuple[int, ...]
    right: tuple[int, ...]
    column: tuple[int, ...]
    value: tuple[np.float32, ...]
    default_left: tuple[bool, ...]

    @property
    def depth(self) -> int:
        """The number of splits on the longest path."""
        depths = {0: 0}
        for node in range(len(self.left)):  # XGBoost numbers parents before their children
            if self.left[node] >= 0:
                depths[self.left[node]] = depths[self.right[node]] = depths[node] + 1
        return max(depths.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Ensemble:
    """The trees of a model, in the order in which their leaves are added to ``base_score``."""

    base_score: np.float32
    trees: tuple[Tree, ...]


class _StoredTree(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a tree in XGBoost's JSON that decide what it predicts."""

    left_children: list[int]
    right_children: list[int]
    split_indices: list[int]
    split_conditions: list[float]
    default_left: list[int | bool]


def parse_ensemble(model: bytes, columns: int) -> Ensemble:
    """Return the trees of XGBoost's model JSON. Raises InvalidModel for what the scorer cannot compute."""
    try:
        learner = json.loads(model)["learner"]
        booster, objective = learner["gradient_booster"], learner["objective"]["name"]
        if booster["name"] != "gbtree" or objective not in OBJECTIVES:
            raise InvalidModel(
                f"a {booster['name']} model of {objective} cannot be compiled: gbtree with {', '.join(OBJECTIVES)} can"
            )
        parameters = learner["learner_model_param"]
        if int(parameters.get("num_target", "1")) > 1 or int(parameters.get("num_class", "0")) > 1:
            raise InvalidModel("a model of several targets or classes cannot be compiled")
        base = _single(float(str(parameters["base_score"]).strip("[]")), "the base score")
        trees = tuple(_tree(each, columns) for each in booster["model"]["trees"])
    except (KeyError, TypeError, ValueError, IndexError, OverflowError, RecursionError, AttributeError) as error:
        raise InvalidModel(f"it is not a model of XGBoost that can be read: {bounded_line(repr(error))}") from error
    return Ensemble(base_score=base, trees=trees)


def _single(value: float, what: str) -> np.float32:
    """Return a finite number in single precision. Raises InvalidModel."""
    with np.errstate(over="ignore"):
        single = np.float32(value)
    if not np.isfinite(single):
        raise InvalidModel(f"{what} of the model is {value}, which is no finite number in single precision")
    return single


def _tree(found: dict[str, Any], columns: int) -> Tree:
    if any(found.get("split_type", ())) or int(found["tree_param"].get("size_leaf_vector", "1")) > 1:
        raise InvalidModel("a model with splits by category or with leaves of several values cannot be compiled")
    stored = msgspec.convert(found, _StoredTree)
    tree = Tree(
        left=tuple(stored.left_children),
        right=tuple(stored.right_children),
        column=tuple(stored.split_indices),
        value=tuple(_single(each, "a threshold or a leaf") for each in stored.split_conditions),
        default_left=tuple(map(bool, stored.default_left)),
    )
    parts = zip(tree.left, tree.right, tree.column, tree.value, tree.default_left, strict=True)
    children: set[int] = set()
    for node, (left, right, column, _, _) in enumerate(parts):
        if left == right == LEAF:
            continue
        if not 0 <= column < columns:
            raise InvalidModel(f"a split is on column {column}, and the model has {columns}")
        if node and node not in children:
            raise InvalidModel(f"no split leads to node {node}, which has the children {left} and {right}")
        if (
            not node < min(left, right) <= max(left, right) < len(tree.left)
            or left == right
            or {left, right} & children
        ):
            raise InvalidModel(f"node {node} has the children {left} and {right}, which is no tree")
        children |= {left, right}
    if not tree.left:
        raise InvalidModel("a tree of the model has no nodes")
    return tree


def encode_model(ensemble: Ensemble, layout: FeatureLayout, identity: str, types: dict[str, FieldType]) -> bytes:
    """Return the data of the scorer. Raises InvalidModel for a model that is too large for its format."""
    if len(layout.columns) > MAX_COLUMNS:
        raise InvalidModel(f"a model has at most {MAX_COLUMNS} columns, got {len(layout.columns)}")
    if identity in layout.features:
        raise InvalidModel(f"the identity of its records, {identity}, is a feature of it, too")
    roots, pairs = _pairs(ensemble)
    groups = tuple(_groups(ensemble, roots))
    text = _Text()
    fields: list[bytes] = []
    categories: list[bytes] = []
    column = 0
    for name in (identity, *layout.features):
        is_identity = name == identity
        values = () if is_identity else layout.categories.get(name, ())
        fields.append(
            _FIELD.pack(*text.add(name), _TYPES[types[name]], is_identity, column, len(categories), len(values))
        )
        categories += [_CATEGORY.pack(*text.add(value)) for value in values]
        column += 0 if is_identity else len(values) if name in layout.categories else 1
    header = _HEADER.pack(
        MAGIC,
        len(fields),
        len(categories),
        column,
        len(groups),
        len(pairs),
        len(text.data),
        ensemble.base_score,
    )
    return b"".join((header, *fields, *categories, *groups, pairs.tobytes(), text.data))


class _Text:
    """Names, one behind the other."""

    def __init__(self) -> None:
        self.data = bytearray()

    def add(self, name: str) -> tuple[int, int]:
        """Return the place and size of a name."""
        encoded = name.encode()
        self.data += encoded
        return len(self.data) - len(encoded), len(encoded)


def _pairs(ensemble: Ensemble) -> tuple[list[int], np.ndarray[Any, Any]]:
    """Return the places of the roots, and all nodes in pairs: a root with nothing, or the children of a split."""
    size = sum(len(tree.left) + 1 for tree in ensemble.trees) // 2
    pairs = np.zeros(size, _PAIR)
    roots, free = [], 0
    for tree in ensemble.trees:
        roots.append(free * _PAIR.itemsize)
        places = deque([(0, free, 0)])
        free += 1
        while places:
            node, pair, side = places.popleft()
            pairs["value"][pair, side] = tree.value[node]
            if tree.left[node] < 0:
                continue
            pairs["input"][pair, side] = FLOAT_BYTES * _input(tree, node)
            pairs["left"][pair, side] = (free - pair) * _PAIR.itemsize - side * FLOAT_BYTES
            places += [(tree.left[node], free, 0), (tree.right[node], free, 1)]
            free += 1
    return roots, pairs


def _input(tree: Tree, node: int) -> int:
    """Return the input of a split: each column has two, where a missing value goes left, and where it goes right."""
    return 2 * tree.column[node] + (1 if tree.default_left[node] else 2)


def _groups(ensemble: Ensemble, roots: Sequence[int]) -> Iterator[bytes]:
    """Yield the groups of trees; the last one is filled up with the root of its first tree."""
    for first in range(0, len(roots), GROUP_TREES):
        its = roots[first : first + GROUP_TREES]
        depth = max(tree.depth for tree in ensemble.trees[first : first + GROUP_TREES])
        yield _GROUP.pack(len(its), depth, *its, *[its[0]] * (GROUP_TREES - len(its)))
