"""Settings of the example DAGs: topics, connections, folders below ``$WASMLINE_HOME`` (by default ``build/demo``).

Tasks take registry, models and storage from the connection ``wasmline_default``. The URIs of assets and the connection
of the demo are made of the places here.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]
HOME = Path(os.environ.get("WASMLINE_HOME") or REPOSITORY / "build" / "demo").absolute()


def _place(variable: str, folder: str) -> str:
    """Return the URL or the absolute folder that a variable names, by default ``folder`` below HOME."""
    place = os.environ.get(variable) or str(HOME / folder)
    return place if "://" in place else str(Path(place).absolute())


PROJECT = str(REPOSITORY / "wasm_modules" / "delivery_distance")
REGISTRY = _place("WASMLINE_REGISTRY", "registry")
MODELS = _place("WASMLINE_MODELS", "models")
STORAGE = _place("WASMLINE_STORAGE", "storage")

WASMLINE_CONNECTION: dict[str, Any] = {
    "conn_type": "wasmline",
    "extra": {"registry": REGISTRY, "models": MODELS, "storage": STORAGE},
}
"""The connection ``wasmline_default`` of the demo, as Airflow reads it from JSON."""

KAFKA = os.environ.get("WASMLINE_KAFKA_CONN_ID") or "kafka_default"
KAFKA_SERVER = os.environ.get("WASMLINE_KAFKA_SERVER") or "localhost:9092"
"""The cluster's name in the URIs of assets."""

SPARK = os.environ.get("WASMLINE_SPARK_CONN_ID") or "spark_default"

TRANSFORM = "delivery-distance"
TRAIN_JOB = "delivery-eta"
RAW = "deliveries.raw"
FEATURES = "deliveries.features"
DEAD_LETTERS = "deliveries.features.dlq"
PREDICT_JOB = "delivery-eta-predictions"
PREDICTIONS = "deliveries.eta"
UNPREDICTED = "deliveries.eta.dlq"

ENRICH_JOB = "enrich-over-http"
ORDERS = "orders"
ENRICHED = "orders.enriched"
UNENRICHED = "orders.dlq"

LAUNCHER = os.environ.get("WASMLINE_LAUNCHER") or None
"""The launcher that starts the drivers of endless streams; None: Airflow's worker does."""

STREAM_POOL = os.environ.get("WASMLINE_STREAM_POOL") or "default_pool"
"""The pool of the tasks that start endless streams: however many wait, other tasks have the other slots."""

FIRST_METRICS_PORT = os.environ.get("WASMLINE_METRICS_PORT")
METRICS_PORTS: dict[str, int] = (
    {job: int(FIRST_METRICS_PORT) + number for number, job in enumerate((TRANSFORM, ENRICH_JOB))}
    if FIRST_METRICS_PORT
    else {}
)
"""The port at which each stream's driver serves metrics: that of the variable and the next one; by default none."""
