"""TrainModelOperator with a real Spark and a real broker."""

import json
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG

from wasmline.kafka import Topics, produce_all
from wasmline.testing.kafka import RunningKafka
from wasmline_provider.operators.model import TrainModelOperator

RECORDS = 30


def test_a_run_before_there_are_enough_rows_is_skipped_with_their_number(
    kafka: RunningKafka, run_dag: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    extra = {"bootstrap.servers": kafka.bootstrap_servers}
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_DEFAULT", json.dumps({"conn_type": "kafka", "extra": extra}))
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", "host": "local[2]"}))
    topic = f"trips-{uuid.uuid4().hex[:8]}"
    Topics(kafka.config).create(topic, 1)
    rows = ({"id": str(number), "km": float(number), "minutes": 3.0 * number} for number in range(RECORDS))
    produce_all(kafka.config, topic, ((None, json.dumps(row).encode(), None, None) for row in rows))
    with DAG(f"train_{topic}", schedule=None, params={"skip": True}) as dag:
        TrainModelOperator(
            task_id="train",
            job=topic,
            storage=str(tmp_path / "storage"),
            conf={"spark.ui.enabled": "false"},
            model="eta",
            topic=topic,
            models=str(tmp_path / "models"),
            fields={"id": "string", "km": "double", "minutes": "double"},
            features=["km"],
            target="minutes",
            identity="id",
            min_rows="{{ 500 }}",
            skip_without_enough_data="{{ params.skip }}",
        )
    (task,) = run_dag(dag).get_task_instances()
    assert task.state == "skipped"
    reason = task.xcom_pull(task_ids="train", key="skipped")["reason"]
    assert "NotEnoughData" in reason
    assert "min_rows is 500" in reason
