"""Settings of the example DAGs: topics, connections, folders below ``$WASMLINE_HOME`` (by default ``build/demo``)."""

from __future__ import annotations

import os
from pathlib import Path

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
