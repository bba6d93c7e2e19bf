"""A small model of travel times, its record and its rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from wasmline.digests import digest_of
from wasmline.model_reference import ModelReference
from wasmline.training import Dataset, FeatureLayout, Metrics, ModelRecord, TreeParameters
from wasmline.training.boosting import fit
from wasmline.wasm.model_section import HoldoutMetrics, ModelInput, ModelProof, ModelSection

VEHICLES = ("scooter", "bicycle", 'a "quoted" ä')
LAYOUT = FeatureLayout(features=("km", "age", "vehicle"), categories={"vehicle": VEHICLES})
ROWS = 1_500


def eta_rows() -> list[dict[str, Any]]:
    generator = np.random.default_rng(3)
    return [
        {
            "km": None if generator.random() < 0.1 else float(generator.normal(8, 5)),
            "age": None if generator.random() < 0.1 else int(generator.integers(18, 60)),
            "vehicle": None if generator.random() < 0.1 else VEHICLES[generator.integers(3)],
        }
        for _ in range(ROWS)
    ]


def eta_record() -> ModelRecord:
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
        units={"km": "km", "age": "years", "minutes": "min"},
    )


def eta_model(rows: Sequence[dict[str, Any]], record: ModelRecord) -> bytes:
    """Return the model's bytes."""
    generator = np.random.default_rng(4)
    return fit(matrix(rows), target(rows) + generator.normal(size=len(rows)), record.columns, record.parameters)


def target(rows: Sequence[dict[str, Any]]) -> Any:
    return np.array([(row["km"] or 3) * 2 + (row["age"] or 40) / 3 for row in rows])


def held_out(rows: Sequence[dict[str, Any]]) -> pa.Table:
    """Return rows as a training holds them out, with identity and target."""
    minutes = target(rows)
    return pa.Table.from_pylist(
        [{"id": f"d{place}", **row, "minutes": float(minutes[place])} for place, row in enumerate(rows)],
        pa.schema([("id", "string"), ("km", "double"), ("age", "int64"), ("vehicle", "string"), ("minutes", "double")]),
    )


def matrix(rows: Sequence[dict[str, Any]]) -> Any:
    types = {"km": pa.float64(), "age": pa.int64(), "vehicle": pa.string()}
    return LAYOUT.matrix(pa.table({name: pa.array([row[name] for row in rows], its) for name, its in types.items()}))


def eta_section(module: bytes) -> ModelSection:
    """Return what a module would say of the model if these bytes had been proven."""
    return ModelSection(
        model=ModelReference(name="eta", version="1.0.0", digest=digest_of(b"{}"), dataset=eta_record().dataset_digest),
        target="minutes",
        unit="min",
        inputs=(
            ModelInput(name="id", type="string", missing="dead_letter"),
            ModelInput(name="km", type="double", unit="km", missing="default_branch"),
            ModelInput(name="vehicle", type="string", categories=VEHICLES, missing="default_branch"),
        ),
        holdout=HoldoutMetrics(rows=8_987, rmse=7.166, mae=5.7, r2=0.4, mean_rmse=9.295),
        proof=ModelProof(held_out=8_987, boundaries=25_000, categories=20, random=2_000, xgboost="3.2.0"),
        module=digest_of(module),
    )
