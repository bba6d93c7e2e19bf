"""Streams whose checkpoints are in an S3 server, with Hadoop's client of S3 and the login of Airflow's connection."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG

from support.s3_server import S3Server
from support.streams.identity_transform import deploy_identity
from wasmline.kafka import produce_all, read_to_end
from wasmline.local import jar_lock, jars
from wasmline.testing.kafka import RunningKafka
from wasmline_provider.operators.stream import SparkStreamOperator

pytestmark = pytest.mark.long

HADOOP_AWS = Path(__file__).parents[2] / "support/hadoop_aws.lock"
RECORDS = 300


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with S3Server(folder=tmp_path_factory.mktemp("s3")) as started:
        yield started


@pytest.mark.timeout(900)
@pytest.mark.parametrize("mode", ["microbatch", "parallel"])
@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_a_run_goes_on_from_a_checkpoint_in_s3(
    kafka: RunningKafka,
    server: S3Server,
    monkeypatch: pytest.MonkeyPatch,
    run_dag: Callable[..., Any],
    mode: str,
    delivery: str,
) -> None:
    spec, bucket = deploy_identity(kafka.config), server.bucket()
    store = {"endpoint_url": server.url, "region_name": "us-east-1"}
    connections: dict[str, dict[str, Any]] = {
        "KAFKA_DEFAULT": {"conn_type": "kafka", "extra": {"bootstrap.servers": kafka.bootstrap_servers}},
        "SPARK_DEFAULT": {"conn_type": "spark", "host": "local[2]"},
        "STORE": {"conn_type": "aws", "login": server.access_key, "password": server.secret_key, "extra": store},
        "WASMLINE_DEFAULT": {
            "conn_type": "wasmline",
            "extra": {"storage": f"s3a://{bucket}/jobs", "object_store_conn_id": "store"},
        },
    }
    for name, connection in connections.items():
        monkeypatch.setenv(f"AIRFLOW_CONN_{name}", json.dumps(connection))
    with DAG(f"stream_{spec.name}", schedule=None) as dag:
        SparkStreamOperator(
            task_id="stream",
            job=spec.name,
            transform=spec.name,
            mode=mode,
            delivery=delivery,
            conf={
                "spark.ui.enabled": "false",
                "spark.driver.extraClassPath": ":".join(map(str, jars.cached(jar_lock.read(HADOOP_AWS)))),
                "spark.hadoop.fs.s3a.endpoint": server.url,
                "spark.hadoop.fs.s3a.path.style.access": "true",
            },
        )
    values = [b"%d" % number for number in range(2 * RECORDS)]
    for run in (1, 2):
        new = values[(run - 1) * RECORDS : run * RECORDS]
        produce_all(kafka.config, spec.input_topic, ((each[-1:], each, None, None) for each in new))
        assert run_dag(dag).state == "success"
        written = [message.value() or b"" for message in read_to_end(kafka.config, spec.output_topics[0])]
        assert sorted(written) == sorted(values[: run * RECORDS])
        commits = (server.buckets / bucket).glob("jobs/checkpoints/*/*/commits/*")
        assert len([each for each in commits if each.name.isdecimal()]) == run
