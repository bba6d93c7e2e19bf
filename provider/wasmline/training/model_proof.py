"""Proves that a compiled model predicts what XGBoost predicts, to the bit, from the same JSON records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from wasmline.errors import ModelProofFailed
from wasmline.record_batches import record_batch
from wasmline.training.boosting import library, predict
from wasmline.training.model_data import Ensemble, Tree, parse_ensemble
from wasmline.training.model_registry import ModelRecord
from wasmline.training.proof_rows import Row, RowMaker
from wasmline.wasm import TransformContext, TransformInstance, TransformRuntime
from wasmline.wasm.model_section import ModelProof

RANDOM_ROWS = 2_000
BATCH_ROWS = 10_000
PREDICTION = "prediction"
"""The member of an output that has the prediction."""


def prove(model: bytes, record: ModelRecord, wasm: bytes, held_out: Sequence[Row]) -> ModelProof:
    """Return the proof that ``wasm`` is the model, or raise ModelProofFailed with the first record that differs.

    ``held_out``: rows that the model was not trained on, by feature; at least one.
    """
    layout, ensemble = record.layout, parse_ensemble(model, len(record.columns))
    maker = RowMaker(layout, record.dataset.fields)
    rows: dict[str, list[Row]] = {
        "held_out": [{name: row[name] for name in layout.features} for row in held_out],
        "boundaries": list(maker.boundary_rows(ensemble, held_out)),
        "categories": list(maker.category_rows(held_out[0])),
        "random": list(maker.random_rows(held_out, RANDOM_ROWS, record.dataset.seed)),
    }
    context = TransformContext(name="proof", input_topic="rows", output_topics=("predictions", "rejected"))
    with TransformRuntime().compile(wasm).instantiate(context) as module:
        for its in rows.values():
            for first in range(0, len(its), BATCH_ROWS):
                _compare(model, ensemble, record, module, its[first : first + BATCH_ROWS])
    return ModelProof(**{kind: len(its) for kind, its in rows.items()}, xgboost=library()["xgboost"])


def _compare(
    model: bytes, ensemble: Ensemble, record: ModelRecord, module: TransformInstance, rows: Sequence[Row]
) -> None:
    identity = record.dataset.identity
    one: Any = "proof" if record.dataset.fields[identity] == "string" else 1
    records = [msgspec.json.encode({identity: one, **row}) for row in rows]
    matrix = record.layout.matrix(_table([msgspec.json.decode(each) for each in records], record))
    expected = predict(model, matrix, record.columns).astype(np.float32)
    for place, value in enumerate(_outputs(module, records)):
        actual = None if value is None else np.float32(msgspec.json.decode(value)[PREDICTION])
        if actual is None or actual.view(np.uint32) != expected[place].view(np.uint32):
            raise _failed(record, records[place], expected[place], actual, _paths(ensemble, record, matrix[place]))


def _outputs(module: TransformInstance, records: Sequence[bytes]) -> Iterator[bytes | None]:
    """Return the first output of each record, or None."""
    found: dict[int, bytes] = {}
    count = len(records)
    batch = record_batch(
        keys=[None] * count,
        values=records,
        headers=[()] * count,
        timestamps=[0] * count,
        partitions=[0] * count,
        offsets=range(count),
    )
    for part in module.parts(batch):
        columns = (part.outputs.column(name).to_pylist() for name in ("row", "output", "value"))
        found |= {row: value for row, output, value in zip(*columns, strict=True) if output == 0}
    return (found.get(row) for row in range(count))


def _failed(
    record: ModelRecord, data: bytes, expected: np.float32, actual: np.float32 | None, path: tuple[str, ...]
) -> ModelProofFailed:
    said = "nothing" if actual is None else repr(float(actual))
    text = f"the module of {record.model} predicts {said}, and XGBoost {float(expected)!r}, for {data.decode()[:500]}; "
    return ModelProofFailed(
        f"{text}it must not be deployed. By the first tree: {path[0] if path else 'there is none'}",
        record=data.decode(),
        expected=float(expected),
        actual=None if actual is None else float(actual),
        path=path,
    )


def _paths(ensemble: Ensemble, record: ModelRecord, row: npt.NDArray[np.float32]) -> tuple[str, ...]:
    """Return the way of a row through each tree."""
    return tuple(_path(tree, record.columns, row) for tree in ensemble.trees)


def _path(tree: Tree, columns: Sequence[str], row: npt.NDArray[np.float32]) -> str:
    node, steps = 0, []
    while tree.left[node] >= 0:
        value, threshold = row[tree.column[node]], tree.value[node]
        goes_left = tree.default_left[node] if np.isnan(value) else value < threshold
        steps.append(f"{columns[tree.column[node]]} = {value!s} {'<' if goes_left else '>='} {threshold!s}")
        node = tree.left[node] if goes_left else tree.right[node]
    return ", ".join([*steps, f"leaf {node}: {tree.value[node]!s}"])


def _table(rows: Sequence[Row], record: ModelRecord) -> pa.Table:
    types = {"double": pa.float64(), "bigint": pa.int64(), "string": pa.string()}
    fields = {name: types[record.dataset.fields[name]] for name in record.layout.features}
    return pa.table({name: pa.array([row[name] for row in rows], kind) for name, kind in fields.items()})
