"""What is measured: a model of 100 trees of depth 6 for each kind of record."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa

from delivery.generator import generate
from delivery.training_spec import train_spec
from wasmline.build import build, load_project
from wasmline.job_specs import FieldType
from wasmline.record_batches import record_batch
from wasmline.training.boosting import TreeParameters, fit
from wasmline.training.feature_encoding import FeatureLayout, Matrix, Vector, layout_of
from wasmline.training.model_data import encode_model, parse_ensemble
from wasmline.wasm import TransformContext, TransformRuntime

MODULES = Path(__file__).parents[3] / "wasm_modules"
PARAMETERS = TreeParameters(trees=100, depth=6, learning_rate=0.1, seed=7)
WIDE_COLUMNS = 17
CONTEXT = TransformContext(name="bench", input_topic="in", output_topics=("out", "rejected"))


@dataclass(frozen=True, kw_only=True)
class Case:
    """Records of one kind, and the types of what the model reads of them."""

    name: str
    records: tuple[bytes, ...]
    layout: FeatureLayout
    fields: dict[str, FieldType]
    target: Vector

    @cached_property
    def matrix(self) -> Matrix:
        """The inputs of the records, as training makes them."""
        rows = [json.loads(record) for record in self.records]
        return self.layout.matrix(
            pa.table({name: pa.array([row[name] for row in rows]) for name in self.layout.features})
        )

    @cached_property
    def model(self) -> bytes:
        return fit(self.matrix, self.target, self.layout.columns, PARAMETERS)

    @property
    def data(self) -> bytes:
        """The model as the scorer's data."""
        ensemble = parse_ensemble(self.model, len(self.layout.columns))
        return encode_model(ensemble, self.layout, "id", self.fields)


def delivery_case(rows: int) -> Case:
    """Return the demo's contract, with records as its transform writes them."""
    spec = train_spec(topic="features", models="unused")
    with tempfile.TemporaryDirectory() as temporary:
        output = Path(temporary) / "transform.wasm"
        build(load_project(MODULES / "delivery_distance"), output=output)
        wasm = output.read_bytes()
    raw = batch([source.value for source in generate(rows)])
    with TransformRuntime().compile(wasm).instantiate(CONTEXT) as transform:
        outputs = transform.transform(raw).outputs.to_pylist()
    records = tuple(each["value"] for each in outputs if each["output"] == 0)
    target = np.array([json.loads(record)[spec.target] for record in records], np.float64)
    layout = layout_of(spec.features, spec.categories)
    return Case(name="delivery", records=records, layout=layout, fields=spec.fields, target=target)


def wide_case(rows: int) -> Case:
    """Return records of 17 numbers of 17 digits."""
    generator = np.random.default_rng(7)
    names = tuple(f"f{number:02}" for number in range(WIDE_COLUMNS))
    values = generator.normal(size=(rows, WIDE_COLUMNS))
    target = values[:, 0] * 2 + np.where(values[:, 1] > 0, values[:, 2], values[:, 3]) + values[:, 4:].sum(axis=1) / 4
    records = [
        json.dumps({"id": f"{row:05}", **dict(zip(names, values[row], strict=True))}, separators=(",", ":")).encode()
        for row in range(rows)
    ]
    fields: dict[str, FieldType] = {"id": "string", **dict.fromkeys(names, "double")}
    layout = FeatureLayout(features=names)
    return Case(name="wide", records=tuple(records), layout=layout, fields=fields, target=target)


def batch(values: Sequence[bytes]) -> pa.RecordBatch:
    """Return records of these values."""
    count = len(values)
    return record_batch(
        keys=[b"key"] * count,
        values=values,
        headers=[()] * count,
        timestamps=[0] * count,
        partitions=[0] * count,
        offsets=range(count),
    )
