"""A DAG whose stream goes on for longer than its task may take."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG

import demo_settings
from wasmline_provider.operators.stream import SparkStreamOperator

with DAG("stream_with_timeout", schedule=None, catchup=False, params={"transform": ""}) as dag:
    SparkStreamOperator(
        task_id="stream",
        job="{{ params.transform }}",
        transform="{{ params.transform }}",
        trigger_interval="1 second",
        kafka_conn_id=demo_settings.KAFKA,
        spark_conn_id=demo_settings.SPARK,
        deferrable=True,
        execution_timeout=timedelta(seconds=60),
    )
