"""A model as a transform: it predicts what XGBoost predicts, to the bit, and a changed one is refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import xgboost
from hypothesis import example, given, settings
from hypothesis import strategies as st

from support.eta_model import LAYOUT, VEHICLES, held_out, matrix
from wasmline.errors import InvalidModel, ModelProofFailed
from wasmline.record_batches import record_batch
from wasmline.testing import guests
from wasmline.training import ModelProof, ModelRecord
from wasmline.training.boosting import fit, predict, predictor
from wasmline.training.model_compiler import compile_model, scorer_module
from wasmline.training.model_data import MARK, Ensemble, encode_model, parse_ensemble
from wasmline.training.model_proof import prove
from wasmline.wasm import TransformContext, TransformInstance, TransformRuntime
from wasmline.wasm.binary import add_data
from wasmline.wasm.inspection.module_inspection import inspect


@pytest.fixture(scope="module")
def wasm(model: bytes, record: ModelRecord) -> bytes:
    return compile_model(model, record)


@pytest.fixture(scope="module")
def instance(wasm: bytes) -> TransformInstance:
    context = TransformContext(name="eta", input_topic="features", output_topics=("eta", "eta.dlq"))
    return TransformRuntime().compile(wasm).instantiate(context)


def score(instance: TransformInstance, values: Sequence[bytes | None]) -> list[float | str]:
    """Return the prediction of each record, or why it was rejected."""
    count = len(values)
    batch = record_batch(
        keys=[b"k"] * count,
        values=values,
        headers=[()] * count,
        timestamps=[0] * count,
        partitions=[0] * count,
        offsets=range(count),
    )
    result = instance.transform(batch)
    assert not result.failures
    assert result.outputs.column("row").to_pylist() == list(range(count))
    return [
        float(np.float32(json.loads(each["value"])["prediction"])) if each["output"] == 0 else reason(each["headers"])
        for each in result.outputs.to_pylist()
    ]


def reason(headers: list[dict[str, Any]]) -> str:
    [header] = [each for each in headers if each["key"] == "wasmline.reason"]
    return str(header["value"].decode())


def test_a_compiled_model_is_proven_to_predict_what_xgboost_does(
    model: bytes, record: ModelRecord, wasm: bytes, rows: list[dict[str, Any]]
) -> None:
    proof = prove(model, record, wasm, held_out(rows[:500]))
    ensemble = parse_ensemble(model, len(record.columns))
    splits = sum(left >= 0 for tree in ensemble.trees for left in tree.left)
    counts = {"boundaries": proof.boundaries, "categories": proof.categories}
    assert proof == ModelProof(held_out=500, random=2_000, xgboost=xgboost.__version__, **counts)
    assert proof.boundaries > 2 * splits
    assert compile_model(model, record) == wasm
    assert inspect(wasm).redpanda.accepted


def flipped_leaf(ensemble: Ensemble) -> Ensemble:
    tree = ensemble.trees[-1]
    leaf = next(node for node, left in enumerate(tree.left) if left < 0)
    values = list(tree.value)
    values[leaf] = -values[leaf]
    return replace(ensemble, trees=(*ensemble.trees[:-1], replace(tree, value=tuple(values))))


def swapped_feature(ensemble: Ensemble) -> Ensemble:
    tree = ensemble.trees[0]
    columns = (1 - tree.column[0], *tree.column[1:])
    return replace(ensemble, trees=(replace(tree, column=columns), *ensemble.trees[1:]))


def changed_base_score(ensemble: Ensemble) -> Ensemble:
    return replace(ensemble, base_score=np.nextafter(ensemble.base_score, np.float32(0)))


def other_default(ensemble: Ensemble) -> Ensemble:
    tree = ensemble.trees[3]
    return replace(
        ensemble,
        trees=(
            *ensemble.trees[:3],
            replace(tree, default_left=(not tree.default_left[0], *tree.default_left[1:])),
            *ensemble.trees[4:],
        ),
    )


@pytest.mark.parametrize("change", [flipped_leaf, swapped_feature, changed_base_score, other_default])
def test_a_changed_model_is_refused(
    change: Callable[[Ensemble], Ensemble], model: bytes, record: ModelRecord, rows: list[dict[str, Any]]
) -> None:
    changed = change(parse_ensemble(model, len(record.columns)))
    data = encode_model(changed, LAYOUT, "id", record.dataset.fields)
    with pytest.raises(ModelProofFailed) as failed:
        prove(model, record, add_data(scorer_module(), data, MARK), held_out(rows[:50]))
    assert len(failed.value.path) == record.parameters.trees
    assert failed.value.actual != failed.value.expected
    assert json.loads(failed.value.record)["id"] == "proof"


def test_a_changed_category_is_refused(model: bytes, record: ModelRecord, rows: list[dict[str, Any]]) -> None:
    layout = replace(LAYOUT, categories={"vehicle": (VEHICLES[1], VEHICLES[0], VEHICLES[2])})
    data = encode_model(parse_ensemble(model, len(record.columns)), layout, "id", record.dataset.fields)
    with pytest.raises(ModelProofFailed):
        prove(model, record, add_data(scorer_module(), data, MARK), held_out(rows[:50]))


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "null value"),
        (b"", "not a JSON object"),
        (b"[]", "not a JSON object"),
        (b'{"id":"1"} x', "not a JSON object"),
        (b'{"id":"1","km":01}', "not a JSON object"),
        (b'{"km":1}', "missing: id"),
        (b'{"id":null}', "missing: id"),
        (b'{"id":7}', "wrong type: id is not a text"),
        (b'{"id":"1","km":"3"}', "wrong type: km is not a number"),
        (b'{"id":"1","age":3.5}', "wrong type: age is not an integer of 64 bits"),
        (b'{"id":"1","age":9223372036854775808}', "wrong type: age is not an integer of 64 bits"),
        (b'{"id":"1","vehicle":4}', "wrong type: vehicle is not a text"),
        (b'{"id":"1","km":1e39}', "out of range: km in single precision"),
        (b'{"id":"1","km":-1e400}', "out of range: km in single precision"),
    ],
)
def test_a_record_that_breaks_the_contract_is_rejected_with_its_reason(
    instance: TransformInstance, value: bytes | None, reason: str
) -> None:
    assert score(instance, [value, b'{"id":"1"}'])[0] == reason


def test_the_form_of_a_record_does_not_matter(instance: TransformInstance, model: bytes, record: ModelRecord) -> None:
    plain = {"km": 7.25, "age": 30, "vehicle": VEHICLES[2]}
    [expected] = predict(model, matrix([plain]), record.columns)
    forms = [
        json.dumps({"id": "1", **plain}).encode(),
        json.dumps({"id": "1", **plain}, ensure_ascii=False, indent=3).encode(),
        json.dumps({**plain, "minutes": {"a": [1, {"b": None}]}, "id": "1"}).encode(),
        b'{"km":"twice","id":"1","age":30,"km":725e-2,"vehicle":"a \\u0022quoted\\" \\u00e4"}'.replace(
            b'"twice"', b"1"
        ),
        json.dumps({"id": "1", **plain, "text": "x" * 1_000_000}).encode(),
    ]
    assert score(instance, forms) == [float(expected)] * len(forms)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=300)
@given(
    document=st.dictionaries(st.sampled_from(["other", "km", "", "ä"]), JSON, max_size=4),
    ascii_only=st.booleans(),
    cut=st.integers(0, 40),
    junk=st.sampled_from([b"", b",", b"}", b"\x00", b'"', b"\\", b" ", b"1", b"e"]),
)
@example(document={"other": "\ud800"}, ascii_only=True, cut=0, junk=b"")
@example(document={"other": "😀"}, ascii_only=True, cut=0, junk=b"")
def test_what_is_a_json_object_is_decided_as_python_does(
    instance: TransformInstance, document: dict[str, Any], ascii_only: bool, cut: int, junk: bytes
) -> None:
    whole = json.dumps({"id": "1", **document}, ensure_ascii=ascii_only).encode(errors="surrogatepass")
    text = whole[: len(whole) - cut] + junk + whole[len(whole) - cut :] if cut else whole + junk
    try:
        is_object = isinstance(json.loads(text.decode("latin-1")), dict)  # bytes that are not UTF-8 are kept
    except ValueError:
        is_object = False
    [found] = score(instance, [text])
    assert (found != "not a JSON object") == is_object or _is_early(found)


def _is_early(found: float | str) -> bool:
    """Whether a record was rejected for a field before its end was read."""
    return isinstance(found, str) and found.startswith(("wrong type", "out of range"))


@pytest.fixture(scope="module")
def predict_rows(model: bytes, record: ModelRecord) -> Callable[[Any], Any]:
    return predictor(model, record.columns)


@settings(max_examples=300)
@given(st.floats(width=64, allow_nan=False, allow_infinity=False, min_value=-3e38, max_value=3e38), st.booleans())
def test_any_number_is_read_as_xgboost_has_it(
    instance: TransformInstance, predict_rows: Callable[[Any], Any], number: float, is_exponential: bool
) -> None:
    text = f"{number:.17e}" if is_exponential else repr(number)
    row = {"km": number, "age": None, "vehicle": None}
    assert score(instance, [b'{"id":"1","km":' + text.encode() + b"}"]) == [float(predict_rows(matrix([row]))[0])]


def edited(model: bytes, edit: Callable[[dict[str, Any], list[dict[str, Any]]], None]) -> bytes:
    """Return the model after an edit of its learner and its trees."""
    document = json.loads(model)
    edit(document["learner"], document["learner"]["gradient_booster"]["model"]["trees"])
    return json.dumps(document, ensure_ascii=False).encode()  # XGBoost reads no escapes of Unicode


EXTREME = (0.0, -0.0, 1e-45, -1e-45, 3.4028234663852886e38, -3.4028234663852886e38, 2.0**25 + 4, -(2.0**62))


def extreme(learner: dict[str, Any], trees: list[dict[str, Any]]) -> None:
    """Give the first splits extreme thresholds, on a number and on an integer, and one tree a single leaf."""
    for place, threshold in enumerate(EXTREME):
        trees[place]["split_conditions"][0] = threshold
        trees[place]["split_indices"][0] = place % 2
        trees[place]["split_conditions"][1] = threshold
        trees[place]["split_indices"][1] = 1 - place % 2
    for name, values in trees[-1].items():
        if isinstance(values, list):
            trees[-1][name] = values[-1:] if name != "parents" else [2147483647]
    trees[-1]["tree_param"]["num_nodes"] = "1"
    learner["learner_model_param"]["base_score"] = "2.5E1"  # as earlier releases of XGBoost write it


def no_trees(learner: dict[str, Any], trees: list[dict[str, Any]]) -> None:
    trees.clear()
    booster = learner["gradient_booster"]["model"]
    booster["gbtree_model_param"]["num_trees"] = "0"
    booster["tree_info"], booster["iteration_indptr"] = [], [0]


@pytest.mark.parametrize("edit", [extreme, no_trees])
def test_models_with_extreme_thresholds_and_without_trees_are_proven(
    edit: Callable[..., None], model: bytes, record: ModelRecord, rows: list[dict[str, Any]]
) -> None:
    changed = edited(model, edit)
    assert prove(changed, record, compile_model(changed, record), held_out(rows[:20])).held_out == 20


def test_an_integer_that_is_compared_before_it_is_rounded_is_refused(
    model: bytes, record: ModelRecord, rows: list[dict[str, Any]]
) -> None:
    """Above 2^24, single precision rounds integers: a threshold's place among them is not its own value."""

    def edit(_: dict[str, Any], trees: list[dict[str, Any]]) -> None:
        trees[0]["split_conditions"][0], trees[0]["split_indices"][0] = 2.0**25 + 4, 1

    changed = edited(model, edit)
    ensemble = parse_ensemble(changed, len(record.columns))
    tree = ensemble.trees[0]
    moved = replace(tree, value=(np.nextafter(tree.value[0], np.float32(0)), *tree.value[1:]))
    data = encode_model(replace(ensemble, trees=(moved, *ensemble.trees[1:])), LAYOUT, "id", record.dataset.fields)
    with pytest.raises(ModelProofFailed) as failed:
        prove(changed, record, add_data(scorer_module(), data, MARK), held_out(rows[:20]))
    assert json.loads(failed.value.record)["age"] == 2**25 + 2


def test_a_module_that_predicts_nothing_or_no_number_is_refused(
    model: bytes, record: ModelRecord, rows: list[dict[str, Any]]
) -> None:
    for wasm in (guests.guest(""), guests.guest()):  # it writes nothing, or the record
        with pytest.raises(ModelProofFailed, match="predicts nothing, and XGBoost") as failed:
            prove(model, record, wasm, held_out(rows[:20]))
        assert failed.value.actual is None


def test_a_model_without_held_out_rows_is_not_proven(model: bytes, record: ModelRecord, wasm: bytes) -> None:
    with pytest.raises(InvalidModel, match="no held-out rows"):
        prove(model, record, wasm, held_out([]))


NAMES = ("id", "km", "age", "vehicle", "i", "idd", "kn", "vehicles", "", 'a"', "a\\", "ä", "x" * 40)


@settings(max_examples=300)
@given(
    st.lists(
        st.permutations(NAMES).flatmap(lambda names: st.integers(1, len(names)).map(lambda n: names[:n])), min_size=1
    )
)
def test_members_may_come_in_any_order_and_beside_any_others(
    instance: TransformInstance, model: bytes, record: ModelRecord, orders: list[list[str]]
) -> None:
    values = {"id": "1", "km": 7.25, "age": 30, "vehicle": VEHICLES[2]}
    texts = [json.dumps({name: values.get(name, 5) for name in names}).encode() for names in orders]
    rows = [{name: values[name] if name in names else None for name in LAYOUT.features} for names in orders]
    expected = predict(model, matrix(rows), record.columns)
    found = score(instance, texts)
    assert found == [
        float(value) if "id" in names else "missing: id" for names, value in zip(orders, expected, strict=True)
    ]


@pytest.mark.parametrize("trees", [1, 20, 21])
def test_any_number_of_trees_is_added_up(rows: list[dict[str, Any]], record: ModelRecord, trees: int) -> None:
    target = np.arange(len(rows), dtype=np.float64)
    model = fit(matrix(rows), target, record.columns, replace(record.parameters, trees=trees))
    assert prove(model, record, compile_model(model, record), held_out(rows[:50])).held_out == 50


def test_a_model_of_another_kind_is_not_compiled(model: bytes) -> None:
    for old, new in ((b"reg:squarederror", b"binary:logistic"), (b"gbtree", b"dart")):
        with pytest.raises(InvalidModel, match=new.decode()):
            parse_ensemble(model.replace(old, new), 5)
    for document in (b"{}", b"[]", b"\xff", b"[" * 100_000):
        with pytest.raises(InvalidModel, match="not a model of XGBoost that can be read"):
            parse_ensemble(document, 5)


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        ("base_score", "[1E0,2E0]", "cannot|can be read"),
        ("base_score", "NaN", "the base score of the model is nan"),
        ("base_score", "1e39", r"the base score of the model is 1e\+39"),
        ("base_score", None, "can be read"),
        ("num_target", "2", "several targets"),
        ("num_class", "3", "several targets or classes"),
    ],
)
def test_a_model_with_other_parameters_than_one_number_to_predict_is_not_compiled(
    model: bytes, name: str, value: Any, complaint: str
) -> None:
    changed = edited(model, lambda learner, _: learner["learner_model_param"].update({name: value}))
    with pytest.raises(InvalidModel, match=complaint):
        parse_ensemble(changed, 5)


@pytest.mark.parametrize(
    "changed",
    [
        {"split_conditions": float("nan")},
        {"split_conditions": float("inf")},
        {"split_conditions": "1"},
        {"split_indices": 5},
        {"split_indices": 1.5},
        {"left_children": -2},
        {"right_children": None},
        {"default_left": "no"},
    ],
)
def test_a_split_that_no_scorer_can_compute_is_not_compiled(model: bytes, changed: dict[str, Any]) -> None:
    def edit(_: dict[str, Any], trees: list[dict[str, Any]]) -> None:
        for name, first in changed.items():
            trees[2][name][0] = first

    with pytest.raises(InvalidModel):
        parse_ensemble(edited(model, edit), 5)


@pytest.mark.parametrize("changed", [{"left_children": [0]}, {"right_children": [9_999]}, {"split_conditions": [1.5]}])
def test_a_model_whose_nodes_are_no_tree_is_not_compiled(model: bytes, changed: dict[str, list[Any]]) -> None:
    document = json.loads(model)
    tree = document["learner"]["gradient_booster"]["model"]["trees"][0]
    for name, first in changed.items():
        tree[name] = first if name == "split_conditions" else first + tree[name][1:]
    with pytest.raises(InvalidModel):
        parse_ensemble(json.dumps(document).encode(), 5)


def test_a_split_that_no_other_leads_to_is_not_compiled(model: bytes) -> None:
    def edit(_: dict[str, Any], trees: list[dict[str, Any]]) -> None:
        trees[0]["left_children"][1] = trees[0]["right_children"][1] = -1

    with pytest.raises(InvalidModel, match="no split leads to node 3"):
        parse_ensemble(edited(model, edit), 5)
