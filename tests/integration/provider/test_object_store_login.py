"""The login to an object store from a connection to the driver of a job, and to Hadoop."""

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG

from support.s3_in_memory import REGION, s3_server
from wasmline.kafka import Topics, produce_all
from wasmline.testing.kafka import RunningKafka
from wasmline.training import ModelRegistry
from wasmline_provider.hooks.object_store import ObjectStoreLogin
from wasmline_provider.hooks.wasmline import WasmlineHook
from wasmline_provider.operators.model import PromoteModelOperator, TrainModelOperator

SECRET = "hunter2-of-the-store"

HADOOP = """
from pyspark.sql import SparkSession

builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
conf = builder.getOrCreate()._jsc.hadoopConfiguration()
print(*(conf.get(f"fs.s3a.{name}") for name in ("access.key", "secret.key", "session.token", "endpoint")))
"""


@pytest.mark.long
def test_spark_gives_the_login_of_its_environment_to_hadoop() -> None:
    login = ObjectStoreLogin(access_key="key", secret_key=SECRET, session_token="token", endpoint_url="http://s3:1")
    environment = login.environment({**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"})
    done = subprocess.run([sys.executable, "-c", HADOOP], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["key", SECRET, "token", "http://s3:1"]


@pytest.mark.long
def test_a_driver_stores_a_model_on_the_object_store_of_the_connection(
    kafka: RunningKafka, run_dag: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = f"trips-{uuid.uuid4().hex[:8]}"
    Topics(kafka.config).create(topic, 1)
    rows = ({"id": str(number), "km": float(number % 50), "minutes": 3.0 * (number % 50)} for number in range(1_000))
    produce_all(kafka.config, topic, ((None, json.dumps(row).encode(), None, None) for row in rows))
    with DAG(f"train_{topic}", schedule=None) as dag:
        train = TrainModelOperator(
            task_id="train",
            job=topic,
            conf={"spark.ui.enabled": "false"},
            model="eta",
            topic=topic,
            fields={"id": "string", "km": "double", "minutes": "double"},
            features=["km"],
            target="minutes",
            identity="id",
        )
        PromoteModelOperator(task_id="promote", trained=train.output)
    with s3_server({"writer": SECRET}) as server:
        extra = {"endpoint_url": server.url, "region_name": REGION}
        places = {"models": "s3://bucket/models", "storage": str(tmp_path), "object_store_conn_id": "store"}
        for name, connection in {
            "KAFKA_DEFAULT": {"conn_type": "kafka", "extra": {"bootstrap.servers": kafka.bootstrap_servers}},
            "SPARK_DEFAULT": {"conn_type": "spark", "host": "local[2]"},
            "STORE": {"conn_type": "aws", "login": "writer", "password": SECRET, "extra": extra},
            "WASMLINE_DEFAULT": {"conn_type": "wasmline", "extra": places},
        }.items():
            monkeypatch.setenv(f"AIRFLOW_CONN_{name}", json.dumps(connection))
        run = run_dag(dag)
        assert run.state == "success"
        (promote,) = [task for task in run.get_task_instances() if task.task_id == "promote"]
        assert promote.xcom_pull(task_ids="promote")["version"] == "1.0.0"
        with WasmlineHook().locate(models=None).opened() as at:
            assert ModelRegistry(at.models).versions("eta") == ["1.0.0"]
