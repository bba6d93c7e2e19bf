"""Proves that a compiled model predicts what XGBoost predicts, to the bit, from the same JSON records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from wasmline.errors import InvalidModel, ModelProofFailed
from wasmline.record_batches import record_batch
from wasmline.training.boosting import library, predictor
from wasmline.training.model_data import Ensemble, Tree, parse_ensemble
from wasmline.training.model_registry import ModelRecord
from wasmline.training.proof_rows import Row, RowMaker
from wasmline.training.stored_rows import ARROW_TYPES
from wasmline.wasm import TransformContext, TransformInstance, TransformRuntime
from wasmline.wasm.model_section import ModelProof

RANDOM_ROWS = 2_000
BATCH_ROWS = 10_000
SAMPLE_ROWS = 10_000
"""Held-out rows that the others are made of, at most."""


class _Output(msgspec.Struct):
    """The member of an output that is compared."""

    prediction: float


def prove(model: bytes, record: ModelRecord, wasm: bytes, held_out: pa.Table) -> ModelProof:
    """Return the proof that ``wasm`` is the model, or raise ModelProofFailed with the first record that differs.

    ``held_out``: rows that the model was not trained on; its columns include the features. Raises InvalidModel if there
    are none, and the errors of a module that cannot run.
    """
    if not held_out.num_rows:
        raise InvalidModel(f"there are no held-out rows to prove {record.model} on: train it again")
    samples = held_out.slice(0, SAMPLE_ROWS).select(record.layout.features).to_pylist()
    maker = RowMaker(record.layout, record.dataset.fields, samples)
    ensemble = parse_ensemble(model, len(record.columns))
    kinds = {
        "held_out": _rows(held_out.select(record.layout.features)),
        "boundaries": maker.boundary_rows(ensemble),
        "categories": maker.category_rows(),
        "random": _without_missing(maker.random_rows(RANDOM_ROWS, record.dataset.seed)),
    }
    counts = dict.fromkeys(kinds, 0)
    comparison = _Comparison(model, ensemble, record)
    context = TransformContext(name="proof", input_topic="rows", output_topics=("predictions", "rejected"))
    with TransformRuntime().compile(wasm).instantiate(context) as module:
        for kind, rows in kinds.items():
            while batch := list(islice(rows, BATCH_ROWS)):
                comparison.require_equal(module, batch)
                counts[kind] += len(batch)
    return ModelProof(**counts, xgboost=library()["xgboost"])


def _rows(table: pa.Table) -> Iterator[Row]:
    for batch in table.to_batches(BATCH_ROWS):
        yield from batch.to_pylist()


def _without_missing(rows: Iterator[Row]) -> Iterator[Row]:
    """Yield rows without the features that are missing: in the others these are null."""
    return ({name: value for name, value in row.items() if value is not None} for row in rows)


class _Comparison:
    """Compares the predictions of a module with those of XGBoost."""

    def __init__(self, model: bytes, ensemble: Ensemble, record: ModelRecord) -> None:
        self._predict = predictor(model, record.columns)
        self._ensemble = ensemble
        self._record = record
        identity = record.dataset.identity
        self._identity = {identity: "proof" if record.dataset.fields[identity] == "string" else 1}

    def require_equal(self, module: TransformInstance, rows: Sequence[Row]) -> None:
        """Raise ModelProofFailed for the first row that is predicted otherwise."""
        records = [msgspec.json.encode({**self._identity, **row}) for row in rows]
        matrix = self._record.layout.matrix(self._table([msgspec.json.decode(each) for each in records]))
        expected = self._predict(matrix).astype(np.float32)
        predictions = _predictions(module, records)
        with np.errstate(over="ignore"):
            actual = np.array([np.nan if each is None else each for each in predictions], np.float32)
        missing = np.array([each is None for each in predictions])
        for place in np.flatnonzero(missing | (actual.view(np.uint32) != expected.view(np.uint32))):
            raise self._failed(records[place], float(expected[place]), predictions[place], matrix[place])

    def _table(self, rows: Sequence[Row]) -> pa.Table:
        types = {name: ARROW_TYPES[self._record.dataset.fields[name]] for name in self._record.layout.features}
        return pa.table({name: pa.array([row.get(name) for row in rows], kind) for name, kind in types.items()})

    def _failed(
        self, record: bytes, expected: float, actual: float | None, row: npt.NDArray[np.float32]
    ) -> ModelProofFailed:
        path = tuple(_path(tree, self._record.columns, row) for tree in self._ensemble.trees)
        return ModelProofFailed(
            f"the module of {self._record.model} predicts {'nothing' if actual is None else repr(actual)}, and XGBoost "
            f"{expected!r}, for {record.decode()[:500]}; it must not be deployed. By the first tree: "
            f"{path[0] if path else 'there is none'}",
            record=record.decode(),
            expected=expected,
            actual=actual,
            path=path,
        )


def _predictions(module: TransformInstance, records: Sequence[bytes]) -> list[float | None]:
    """Return the prediction for each record, None for one that has no output, another one or several."""
    count = len(records)
    batch = record_batch(
        keys=[None] * count,
        values=records,
        headers=[()] * count,
        timestamps=[0] * count,
        partitions=[0] * count,
        offsets=range(count),
    )
    outputs: list[list[Any]] = [[] for _ in range(count)]
    for part in module.parts(batch):
        columns = (part.outputs.column(name).to_pylist() for name in ("row", "output", "value"))
        for row, output, value in zip(*columns, strict=True):
            outputs[row].append(value if output == 0 else None)
    return [_prediction(each[0]) if len(each) == 1 else None for each in outputs]


def _prediction(value: bytes | None) -> float | None:
    try:
        return None if value is None else msgspec.json.decode(value, type=_Output).prediction
    except ValueError:  # also for another type
        return None


def _path(tree: Tree, columns: Sequence[str], row: npt.NDArray[np.float32]) -> str:
    """Return the way of a row through a tree."""
    node, steps = 0, []
    while tree.left[node] >= 0:
        value, threshold = row[tree.column[node]], tree.value[node]
        goes_left = tree.default_left[node] if np.isnan(value) else value < threshold
        steps.append(f"{columns[tree.column[node]]} = {value!s} {'<' if goes_left else '>='} {threshold!s}")
        node = tree.left[node] if goes_left else tree.right[node]
    return ", ".join([*steps, f"leaf {node}: {tree.value[node]!s}"])
