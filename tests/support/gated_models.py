"""Models of travel times of which each is better, with the rows that the gate compares them on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from support.eta_model import eta_model, eta_record, eta_rows, held_out
from wasmline.training import Metrics, ModelRecord, ModelRegistry, TreeParameters
from wasmline.training.evaluate import holdout_digest
from wasmline.training.model_registry import GATE_SPEC_VERSION
from wasmline.training.prepare import HELD_OUT, OFFSET, PARTITION
from wasmline.training.stored_rows import STAND_IN

ROWS = eta_rows()
METRICS = Metrics(
    rows=300,
    rmse=4.0,
    mae=3.0,
    r2=0.4,
    mean_rmse=12.0,
    holdout=holdout_digest(held_out(ROWS[:300])["id"]),
    linear_rmse=11.0,
)


def forward_rows(rows: Sequence[dict[str, Any]], first_offset: int, stand_in: float = 30.0) -> pa.Table:
    """Return rows of records from ``first_offset`` on, of which every fifth is held out; all predictions are one."""
    table = held_out(rows)
    columns = {
        PARTITION: pa.array([0] * len(rows), pa.int32()),
        OFFSET: pa.array(range(first_offset, first_offset + len(rows)), pa.int64()),
        HELD_OUT: pa.array([place % 5 == 0 for place in range(len(rows))]),
        STAND_IN: pa.array([stand_in] * len(rows), pa.float64()),
    }
    for name, column in columns.items():
        table = table.append_column(name, column)
    return table


def gated_record(trees: int, *, end: int = len(ROWS)) -> ModelRecord:
    """Return the record of a model of the offsets up to ``end``, whose rows are stored beside it."""
    record = eta_record()
    dataset = replace(record.dataset, offsets={"0": (0, end)})
    return replace(
        record,
        dataset=dataset,
        dataset_digest=dataset.digest,
        parameters=TreeParameters(trees=trees, depth=4, learning_rate=0.3, seed=7),
        metrics=METRICS,
        spec_version=GATE_SPEC_VERSION,
    )


def publish_gated(models: str, *trees: int, forward: pa.Table | None = None) -> list[str]:
    """Publish a model of each number of trees, and return the versions."""
    registry = ModelRegistry(models)
    records = [gated_record(count) for count in trees]
    return [
        registry.publish(record, eta_model(ROWS, record), held_out=held_out(ROWS[:300]), forward=forward).version
        for record in records
    ]
