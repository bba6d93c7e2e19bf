"""A real Airflow on this machine, for demos and tests, beside the Kafka of ``wasmline.local``."""

from wasmline_provider.local.airflow import LocalAirflow
from wasmline_provider.local.api_client import AirflowApi, TaskState

__all__ = ["AirflowApi", "LocalAirflow", "TaskState"]
