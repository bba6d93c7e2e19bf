"""A stream that the page shows beside its task, and a promotion that waits for an approval."""

from __future__ import annotations

from airflow.providers.standard.operators.hitl import HITLOperator
from airflow.sdk import DAG, task

import demo_settings
from wasmline_provider.asset_uris import model_asset
from wasmline_provider.operators.stream import SparkStreamOperator

MODEL = "shown-eta"

with DAG("shown_stream", schedule=None, catchup=False, params={"transform": ""}) as stream:
    SparkStreamOperator(
        task_id="stream",
        job="{{ params.transform }}",
        transform="{{ params.transform }}",
        trigger_interval="1 second",
        kafka_conn_id=demo_settings.KAFKA,
        spark_conn_id=demo_settings.SPARK,
        deferrable=True,
    )

with DAG("shown_promotion", schedule=None, catchup=False) as promotion:
    approve = HITLOperator(
        task_id="approve",
        subject=f"Promote the new version of {MODEL}?",
        body="Its error is 5.0 min, and that of the live model 6.0 min.",
        options=["Promote", "Keep the live model"],
    )

    @task(outlets=[model_asset(models=demo_settings.MODELS, name=MODEL)])
    def promoted() -> str:
        """Emit the event of a new champion."""
        return "promoted"

    approve >> promoted()
