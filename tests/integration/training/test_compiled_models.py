"""A model as a transform: it predicts what XGBoost predicts, to the bit, and a changed one is refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from wasmline.errors import InvalidModel, ModelProofFailed
from wasmline.record_batches import record_batch
from wasmline.training import Dataset, FeatureLayout, Metrics, ModelRecord, TreeParameters
from wasmline.training.boosting import fit, predict
from wasmline.training.model_compiler import compile_model, scorer_module
from wasmline.training.model_data import MARK, Ensemble, encode_model, parse_ensemble
from wasmline.training.model_proof import ModelProof, prove
from wasmline.wasm import TransformContext, TransformInstance, TransformRuntime
from wasmline.wasm.binary import add_data
from wasmline.wasm.inspection.module_inspection import inspect

VEHICLES = ("scooter", "bicycle", 'a "quoted" ä')
LAYOUT = FeatureLayout(features=("km", "age", "vehicle"), categories={"vehicle": VEHICLES})
ROWS = 1_500


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    generator = np.random.default_rng(3)
    return [
        {
            "km": None if generator.random() < 0.1 else float(generator.normal(8, 5)),
            "age": None if generator.random() < 0.1 else int(generator.integers(18, 60)),
            "vehicle": None if generator.random() < 0.1 else VEHICLES[generator.integers(3)],
        }
        for _ in range(ROWS)
    ]


@pytest.fixture(scope="module")
def record() -> ModelRecord:
    dataset = Dataset(
        topic="features",
        topic_id="t1",
        offsets={"0": (0, ROWS)},
        fields={"id": "string", "km": "double", "age": "bigint", "vehicle": "string", "minutes": "double"},
        where="true",
        target="minutes",
        identity="id",
        seed=7,
        holdout_share=0.2,
    )
    return ModelRecord(
        model="eta",
        target="minutes",
        layout=LAYOUT,
        columns=LAYOUT.columns,
        parameters=TreeParameters(trees=19, depth=5, learning_rate=0.3, seed=7),
        dataset=dataset,
        dataset_digest=dataset.digest,
        training_rows=ROWS,
        metrics=Metrics(rows=100, rmse=7.2, mae=5.7, r2=0.4, mean_rmse=9.4, holdout="sha256:aa"),
        libraries={},
        created="2026-01-01T00:00:00Z",
    )


@pytest.fixture(scope="module")
def model(rows: list[dict[str, Any]], record: ModelRecord) -> bytes:
    generator = np.random.default_rng(4)
    target = np.array([(row["km"] or 3) * 2 + (row["age"] or 40) / 3 for row in rows]) + generator.normal(size=ROWS)
    return fit(matrix(rows), target, record.columns, record.parameters)


def matrix(rows: Sequence[dict[str, Any]]) -> Any:
    types = {"km": pa.float64(), "age": pa.int64(), "vehicle": pa.string()}
    return LAYOUT.matrix(pa.table({name: pa.array([row[name] for row in rows], its) for name, its in types.items()}))


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
    proof = prove(model, record, wasm, rows[:500])
    ensemble = parse_ensemble(model, len(record.columns))
    splits = sum(left >= 0 for tree in ensemble.trees for left in tree.left)
    assert proof == ModelProof(held_out=500, boundaries=proof.boundaries, categories=proof.categories, random=2_000)
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
        prove(model, record, add_data(scorer_module(), data, MARK), rows[:50])
    assert len(failed.value.path) == record.parameters.trees
    assert failed.value.actual != failed.value.expected
    assert json.loads(failed.value.record)["id"] == "proof"


def test_a_changed_category_is_refused(model: bytes, record: ModelRecord, rows: list[dict[str, Any]]) -> None:
    layout = replace(LAYOUT, categories={"vehicle": (VEHICLES[1], VEHICLES[0], VEHICLES[2])})
    data = encode_model(parse_ensemble(model, len(record.columns)), layout, "id", record.dataset.fields)
    with pytest.raises(ModelProofFailed):
        prove(model, record, add_data(scorer_module(), data, MARK), rows[:50])


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


@settings(max_examples=300)
@given(st.floats(width=64, allow_nan=False, allow_infinity=False, min_value=-3e38, max_value=3e38), st.booleans())
def test_any_number_is_read_as_xgboost_has_it(
    instance: TransformInstance, model: bytes, record: ModelRecord, number: float, is_exponential: bool
) -> None:
    text = f"{number:.17e}" if is_exponential else repr(number)
    row = {"km": number, "age": None, "vehicle": None}
    assert score(instance, [b'{"id":"1","km":' + text.encode() + b"}"]) == [
        float(predict(model, matrix([row]), record.columns)[0])
    ]


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
    assert prove(model, record, compile_model(model, record), rows[:50]).held_out == 50


def test_a_model_of_another_kind_is_not_compiled(model: bytes) -> None:
    for old, new in ((b"reg:squarederror", b"binary:logistic"), (b"gbtree", b"dart")):
        with pytest.raises(InvalidModel, match=new.decode()):
            parse_ensemble(model.replace(old, new), 5)
    with pytest.raises(InvalidModel):
        parse_ensemble(b"{}", 5)
    with pytest.raises(InvalidModel):
        parse_ensemble(msgspec.json.encode([]), 5)


@pytest.mark.parametrize("changed", [{"left_children": [0]}, {"right_children": [9_999]}, {"split_conditions": [1.5]}])
def test_a_model_whose_nodes_are_no_tree_is_not_compiled(model: bytes, changed: dict[str, list[Any]]) -> None:
    document = json.loads(model)
    tree = document["learner"]["gradient_booster"]["model"]["trees"][0]
    for name, first in changed.items():
        tree[name] = first if name == "split_conditions" else first + tree[name][1:]
    with pytest.raises(InvalidModel):
        parse_ensemble(json.dumps(document).encode(), 5)
