"""Streams outlive the workers of Airflow's executors that started them, or are refused before anything starts."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import support
from support.streams.identity_transform import deploy_identity
from support.streams.transform_job import unique
from support.supervision.airflow_components import AirflowComponents
from support.supervision.pod_executor import PodExecutor
from support.supervision.processes import drivers, has_pid_namespaces, kill, processes_of
from support.supervision.supervised_streams import current_report
from wasmline.control import JobTopic
from wasmline.errors import JobNotFound
from wasmline.job_specs import JobState
from wasmline.local.ports import free_port
from wasmline.local.process import Service, wait_until
from wasmline.testing.kafka import RunningKafka
from wasmline_provider.local import LocalAirflow

TIMEOUT_S = 180.0

CELERY_WORKER = "celery worker"

POD_EXECUTOR = f"{PodExecutor.__module__}.{PodExecutor.__name__}"

SOURCE = """
from airflow.sdk import DAG

from wasmline_provider.operators.stream import SparkStreamOperator

for job, arguments in {jobs!r}.items():
    with DAG(job, schedule=None):
        SparkStreamOperator(
            task_id="stream",
            job=job,
            transform=job,
            storage={storage!r},
            trigger_interval="1 second",
            conf={{"spark.ui.enabled": "false"}},
            wait_for_completion=False,
            **arguments,
        )
"""


@dataclass
class Streams:
    """Streams of an Airflow with three executors. Each has a DAG of its name, with the task ``stream``."""

    kafka: RunningKafka
    airflow: AirflowComponents
    by_local: str
    by_celery: str
    by_pod: str
    by_pod_and_launcher: str

    def ensure(self, job: str) -> str:
        """Run the DAG of a stream to its end; return what the operator did, or the last lines of its log."""
        api = self.airflow.api
        run = api.trigger(job)
        if api.wait(job, run, timeout=TIMEOUT_S) == "success":
            return str(api.xcom(job, run, "stream")["action"])
        [task] = api.tasks(job, run)
        return "\n".join(api.log(job, run, task)[-30:])

    def report_is_renewed(self, job: str) -> bool:
        """Return whether a running driver reports once more."""
        first = current_report(self.kafka.config, job)
        assert first is not None

        def is_renewed() -> bool:
            report = current_report(self.kafka.config, job)
            return report is not None and report.state is JobState.RUNNING and report.updated_ms > first.updated_ms

        return wait_until(is_renewed, TIMEOUT_S)


@pytest.fixture(scope="module")
def streams(kafka: RunningKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Streams]:
    folder = tmp_path_factory.mktemp("executors")
    launcher, names = unique("launcher"), [deploy_identity(kafka.config).name for _ in range(4)]
    arguments: list[dict[str, str]] = [
        {"executor": "LocalExecutor"},
        {"executor": "CeleryExecutor"},
        {"executor": POD_EXECUTOR},
        {"executor": POD_EXECUTOR, "launcher": launcher},
    ]
    jobs = dict(zip(names, arguments, strict=True))
    dags, queue = folder / "dags", folder / "queue"
    for each in (dags, queue):
        each.mkdir()
    (dags / "streams.py").write_text(SOURCE.format(jobs=jobs, storage=str(folder / "storage")))
    connections: dict[str, dict[str, Any]] = {
        "kafka_default": {"conn_type": "kafka", "extra": {"bootstrap.servers": kafka.bootstrap_servers}},
        "spark_default": {"conn_type": "spark", "host": "local[1]"},
    }
    settings = {
        "AIRFLOW__CORE__EXECUTOR": f"LocalExecutor,CeleryExecutor,{POD_EXECUTOR}",
        "AIRFLOW__CELERY__BROKER_URL": "filesystem://",
        "AIRFLOW__CELERY__RESULT_BACKEND": f"db+sqlite:///{folder}/results.db",
        "AIRFLOW__CELERY__WORKER_CONCURRENCY": "1",
        "AIRFLOW__CELERY_BROKER_TRANSPORT_OPTIONS__DATA_FOLDER_IN": str(queue),
        "AIRFLOW__CELERY_BROKER_TRANSPORT_OPTIONS__DATA_FOLDER_OUT": str(queue),
        "AIRFLOW__CELERY_BROKER_TRANSPORT_OPTIONS__CONTROL_FOLDER": str(folder / "control"),
    }
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        patch.setenv("WASMLINE_HOME", str(folder))
        stack.callback(lambda: kill(processes_of("WASMLINE_HOME", str(folder))))
        tests = Path(support.__path__[0]).parent
        local = LocalAirflow(folder / "airflow", dags, connections=connections, python_path=[tests])
        local.prepare()
        airflow = AirflowComponents(local, settings)
        stack.callback(airflow.close)
        airflow.start(CELERY_WORKER, environment=_log_server())
        command = [sys.executable, "-m", "wasmline.cli", "launcher", "--name", launcher, "--log-folder", str(folder)]
        environment = {**local.environment(), "WASMLINE_KAFKA_CONFIG": kafka.config.to_json()}
        service = Service.start(command, launcher, folder / "launcher.log", environment)
        stack.callback(service.stop)
        assert wait_until(lambda: all(airflow.api.knows(job) for job in jobs), TIMEOUT_S), airflow.log_ends()
        for job in jobs:
            airflow.api.unpause(job)
        yield Streams(kafka, airflow, *names)


def _log_server() -> dict[str, str]:
    """Return a setting that lets a worker serve its logs beside those of the local executor."""
    return {"AIRFLOW__LOGGING__WORKER_LOG_SERVER_PORT": str(free_port(set()))}


pytestmark = [pytest.mark.long, pytest.mark.timeout(0)]


def test_a_stream_outlives_a_worker_of_the_local_executor_with_its_scheduler(streams: Streams) -> None:
    assert streams.ensure(streams.by_local) == "started"
    started = drivers(streams.by_local)
    streams.airflow.kill("scheduler")
    assert streams.report_is_renewed(streams.by_local)
    streams.airflow.start("scheduler")
    streams.airflow.await_health()
    assert streams.ensure(streams.by_local) == "adopted"
    assert drivers(streams.by_local) == started != []


def test_a_stream_outlives_a_worker_of_celery(streams: Streams) -> None:
    assert streams.ensure(streams.by_celery) == "started"
    started = drivers(streams.by_celery)
    streams.airflow.kill(CELERY_WORKER)
    assert streams.report_is_renewed(streams.by_celery)
    streams.airflow.start(CELERY_WORKER, environment=_log_server())
    assert streams.ensure(streams.by_celery) == "adopted"
    assert drivers(streams.by_celery) == started != []


def test_a_stream_outlives_the_pod_that_ordered_it_of_a_launcher_and_is_refused_without_one(streams: Streams) -> None:
    assert has_pid_namespaces(), "needs unshare and the right to make a pid namespace"
    refused = streams.ensure(streams.by_pod)
    assert "EphemeralContainer" in refused
    assert "process 1 of this container runs one task" in refused
    with closing(JobTopic(streams.kafka.config)) as jobs, pytest.raises(JobNotFound):
        jobs.order(streams.by_pod)
    assert streams.ensure(streams.by_pod_and_launcher) == "started"
    started = drivers(streams.by_pod_and_launcher)
    assert streams.report_is_renewed(streams.by_pod_and_launcher)
    assert streams.ensure(streams.by_pod_and_launcher) == "adopted"
    assert drivers(streams.by_pod_and_launcher) == started != []
