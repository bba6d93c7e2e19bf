"""SparkStreamOperator with a real Spark and a real broker: to the end, for ever, found again, stopped in order."""

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.request import urlopen

import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowSkipException, TaskDeferred

from support.streams.identity_transform import deploy_identity
from wasmline.control import DeploymentSpec, JobTopic
from wasmline.errors import DeploymentNotFound, JobFailed
from wasmline.job_specs import JobState
from wasmline.kafka import produce_all, read_to_end
from wasmline.local.process import wait_until
from wasmline.testing.kafka import RunningKafka
from wasmline_provider.openlineage.settings import sends_lineage
from wasmline_provider.operators.stream import SparkStreamOperator

RECORDS = 500


@pytest.fixture
def transform(kafka: RunningKafka, monkeypatch: pytest.MonkeyPatch) -> DeploymentSpec:
    """An identity transform between fresh topics with records, and connections to reach all of it."""
    spec = deploy_identity(kafka.config)
    produce_all(kafka.config, spec.input_topic, ((b"%d" % (n % 9), b"%d" % n, None, None) for n in range(RECORDS)))
    extra = {"bootstrap.servers": kafka.bootstrap_servers}
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_DEFAULT", json.dumps({"conn_type": "kafka", "extra": extra}))
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", "host": "local[2]"}))
    return spec


def operator(spec: DeploymentSpec, folder: Path, **arguments: Any) -> SparkStreamOperator:
    return SparkStreamOperator(
        task_id="stream",
        job=spec.name,
        transform=spec.name,
        storage=str(folder),
        **{"conf": {"spark.ui.enabled": "false"}, **arguments},
    )


def context(run_id: str = "run") -> Any:
    ti = SimpleNamespace(dag_id="dag", run_id=run_id, task_id="stream", map_index=-1, log_url="")
    return {"ti": ti, "outlet_events": {}}


@pytest.mark.parametrize(
    "deferrable",
    [pytest.param(False, id="on a worker", marks=pytest.mark.long), pytest.param(True, id="deferred")],
)
def test_a_dag_streams_until_caught_up(
    transform: DeploymentSpec,
    kafka: RunningKafka,
    run_dag: Callable[..., Any],
    tmp_path: Path,
    deferrable: bool,
) -> None:
    with DAG(f"stream_{transform.name}", schedule=None) as dag:
        operator(transform, tmp_path, deferrable=deferrable)
    run = run_dag(dag)
    assert run.state == "success"
    (task,) = run.get_task_instances()
    result = task.xcom_pull(task_ids="stream")
    assert (result["state"], result["records_in"], result["records_out"]) == ("succeeded", RECORDS, RECORDS)
    assert (result["digest"], result["action"]) == (transform.digest, "started")
    assert not sends_lineage(), "openlineage is installed, and nothing is configured"
    assert {name: task.xcom_pull(task_ids="stream", key=name) for name in result} == result
    assert len(list(read_to_end(kafka.config, transform.output_topics[0]))) == RECORDS


def test_a_stream_for_ever_is_adopted_by_another_run_of_its_dag_restarted_for_a_change_and_stopped_by_a_kill(
    transform: DeploymentSpec, kafka: RunningKafka, tmp_path: Path
) -> None:
    def stream(**changes: Any) -> SparkStreamOperator:
        return operator(transform, tmp_path, trigger_interval="1 second", conf={"spark.ui.port": "0"}, **changes)

    first, second = (stream(deferrable=True) for _ in range(2))
    run = first.submit_job(context())
    jobs = JobTopic(kafka.config)

    def read() -> int:
        report = jobs.report(run["job"], run["run"])
        assert report is None or not report.state.final, report
        return int(report.result.get("records_in", 0)) if report else 0

    try:
        assert wait_until(lambda: read() == RECORDS, 120)
        shown = jobs.report(run["job"], run["run"])
        assert shown is not None
        with urlopen(shown.spark_ui) as page:
            assert b"Spark Jobs" in page.read()
        with pytest.raises(TaskDeferred) as deferred:
            second.execute(context())
        _, arguments = deferred.value.trigger.serialize()
        assert arguments.items() >= {name: run[name] for name in ("job", "run", "log")}.items()
        adopted = stream(wait_for_completion=False).execute(context("another run"))
        assert adopted == {"state": "running", "job": run["job"], "run": run["run"], "action": "adopted", "changed": []}

        restarted = stream(max_offsets_per_trigger=7, wait_for_completion=False).execute(context("a third run"))
        assert (restarted["action"], restarted["changed"]) == ("restarted", ["stream.max_offsets_per_trigger"])
        assert first.get_job_status(run, context()) == JobState.STOPPED
        assert first.get_job_result(run, context())["records_out"] == RECORDS
        ended = jobs.report(run["job"], run["run"])
        assert ended is None or ended.spark_ui == ""

        last = {**run, "run": restarted["run"]}
        killed = stream(max_offsets_per_trigger=7)
        killed._running = last
        killed.on_kill()
        assert wait_until(lambda: killed.get_job_status(run | last, context()) != "running", 60)
        assert jobs.order(run["job"]).is_stopped_by_user
        with pytest.raises(AirflowSkipException, match="a user has stopped the job"):
            stream(wait_for_completion=False, restart_stopped=False).execute(context("a fourth run"))
    finally:
        jobs.close()


def test_a_driver_that_fails_fails_the_task_with_its_reason(transform: DeploymentSpec, tmp_path: Path) -> None:
    unknown = SparkStreamOperator(
        task_id="stream",
        job=transform.name,
        transform="never-deployed",
        storage=str(tmp_path),
        conf={"spark.ui.enabled": "false"},
        durable=False,
    )
    with pytest.raises(JobFailed, match=DeploymentNotFound.__name__) as failure:
        unknown.execute_resumable(context())
    assert "never-deployed" in str(failure.value)
    assert "driver's output" in str(failure.value)
