"""Tasks and triggers that a real Airflow evicts, redistributes and ends, while they wait for streams."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from support.streams.identity_transform import deploy_identity
from support.supervision.airflow_components import AirflowComponents
from support.supervision.processes import kill, processes_of
from support.supervision.supervised_streams import current_report
from wasmline.clock import now_ms
from wasmline.control import JobOrder, JobTopic
from wasmline.job_specs import HEARTBEAT_INTERVAL_S, JobReport, JobState
from wasmline.local.ports import free_port
from wasmline.local.process import wait_until
from wasmline.testing.kafka import RunningKafka
from wasmline_provider.local import LocalAirflow

TIMEOUT_S = 180.0

DAG = "two_streams"

SOURCE = """
from datetime import timedelta

from airflow.sdk import DAG

from wasmline_provider.operators.stream import SparkStreamOperator

with DAG({dag!r}, schedule=None):
    for job, deferrable in {jobs!r}.items():
        SparkStreamOperator(
            task_id=job,
            job=job,
            transform=job,
            storage={storage!r},
            trigger_interval="1 second",
            conf={{"spark.ui.enabled": "false"}},
            deferrable=deferrable,
            retries=3,
            retry_delay=timedelta(seconds=2),
        )
"""


@dataclass
class WaitingTasks:
    """Two tasks that wait for streams: ``worker`` on a worker, ``triggerer`` deferred."""

    kafka: RunningKafka
    local: LocalAirflow
    airflow: AirflowComponents
    worker: str
    triggerer: str
    dag_run: str = ""

    def order(self, job: str) -> JobOrder:
        with closing(JobTopic(self.kafka.config)) as jobs:
            return jobs.order(job)

    def report(self, job: str) -> JobReport | None:
        return current_report(self.kafka.config, job)

    def runs(self, job: str) -> bool:
        report = self.report(job)
        if report is None or report.state is not JobState.RUNNING:
            return False
        return now_ms() - report.updated_ms < 2_000 * HEARTBEAT_INTERVAL_S

    def is_stopped_by_user(self, job: str) -> bool:
        """Return whether the run has ended because a user asked for it."""
        report = self.report(job)
        return self.order(job).is_stopped_by_user and report is not None and report.state is JobState.STOPPED

    def mark_failed(self, job: str) -> None:
        self.airflow.api.request(
            "PATCH", f"/dags/{DAG}/dagRuns/{self.dag_run}/taskInstances/{job}", {"new_state": "failed"}
        )

    def task(self, job: str) -> tuple[str, int]:
        """Return state and number of tries of a task."""
        [found] = [each for each in self.airflow.api.tasks(DAG, self.dag_run) if each.task == job]
        return found.state, found.tries

    def has_logged(self, text: str) -> bool:
        logs = (self.local.home / "logs").rglob("*.log*")
        return any(text in log.read_text(errors="replace") for log in logs if log.is_file())


@pytest.fixture
def tasks(kafka: RunningKafka, tmp_path: Path) -> Iterator[WaitingTasks]:
    worker, triggerer = (deploy_identity(kafka.config).name for _ in range(2))
    source = SOURCE.format(dag=DAG, jobs={worker: False, triggerer: True}, storage=str(tmp_path / "storage"))
    (tmp_path / "dags").mkdir()
    (tmp_path / "dags" / "two_streams.py").write_text(source)
    connections: dict[str, dict[str, Any]] = {
        "kafka_default": {"conn_type": "kafka", "extra": {"bootstrap.servers": kafka.bootstrap_servers}},
        "spark_default": {"conn_type": "spark", "host": "local[1]"},
    }
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        patch.setenv("WASMLINE_HOME", str(tmp_path))
        stack.callback(lambda: kill(processes_of("WASMLINE_HOME", str(tmp_path))))
        local = LocalAirflow(tmp_path / "airflow", tmp_path / "dags", connections=connections)
        local.prepare()
        airflow = AirflowComponents(local)
        stack.callback(airflow.close)
        found = WaitingTasks(kafka, local, airflow, worker, triggerer)
        airflow.api.unpause(DAG)
        found.dag_run = airflow.api.trigger(DAG)
        assert wait_until(lambda: found.runs(worker) and found.runs(triggerer), TIMEOUT_S)
        assert wait_until(lambda: found.task(triggerer)[0] == "deferred", TIMEOUT_S)
        yield found


@pytest.mark.long
@pytest.mark.timeout(0)
def test_only_the_end_of_a_task_stops_its_run_and_no_eviction_does(tasks: WaitingTasks) -> None:
    worker, triggerer, airflow = tasks.worker, tasks.triggerer, tasks.airflow
    runs = {job: tasks.order(job).spec.run for job in (worker, triggerer)}

    airflow.evict_tasks()
    assert wait_until(lambda: tasks.task(worker) == ("running", 2), TIMEOUT_S), tasks.task(worker)
    assert tasks.has_logged("nobody has ended the task")

    airflow.suspend("triggerer")
    ports = {"AIRFLOW__LOGGING__TRIGGER_LOG_SERVER_PORT": str(free_port(set()))}
    airflow.start("triggerer", instance="second-triggerer", environment=ports)
    assert wait_until(lambda: "1 triggers currently running" in airflow.log("second-triggerer"), TIMEOUT_S)
    airflow.resume("triggerer")
    assert wait_until(lambda: tasks.has_logged("goes on: nobody has ended its task"), TIMEOUT_S)

    for job, run in runs.items():
        order = tasks.order(job)
        assert (order.spec.run, order.wanted) == (run, "running")
        assert tasks.runs(job)

    for job in (worker, triggerer):
        tasks.mark_failed(job)
        assert wait_until(partial(tasks.is_stopped_by_user, job), TIMEOUT_S), tasks.report(job)


@pytest.mark.long
@pytest.mark.timeout(0)
def test_to_delete_the_rows_of_tasks_that_wait_stops_no_stream(tasks: WaitingTasks) -> None:
    """``airflow db clean`` deletes them in any state, by the time of their start; the scheduler makes them anew."""
    jobs = (tasks.worker, tasks.triggerer)
    runs = {job: tasks.order(job).spec.run for job in jobs}
    waiting = {tasks.worker: "running", tasks.triggerer: "deferred"}
    clean = ["db", "clean", "--tables", "task_instance", "--skip-archive", "--yes", "--clean-before-timestamp"]
    until = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    subprocess.run([sys.executable, "-m", "airflow", *clean, until], env=tasks.local.environment(), check=True)
    assert wait_until(lambda: tasks.has_logged("nobody has ended the task"), TIMEOUT_S)
    assert wait_until(
        lambda: {each.task: each.state for each in tasks.airflow.api.tasks(DAG, tasks.dag_run)} == waiting, TIMEOUT_S
    )
    for job in jobs:
        last = tasks.report(job)
        assert wait_until(lambda job=job, last=last: tasks.report(job) != last and tasks.runs(job), TIMEOUT_S)  # type: ignore[misc]
        assert (tasks.order(job).spec.run, tasks.order(job).wanted) == (runs[job], "running")
