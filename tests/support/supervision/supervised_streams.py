"""Two streams that a copy of the supervising DAG keeps running, on a real Airflow and a standalone Spark cluster."""

from __future__ import annotations

import json
import math
import random
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import psutil  # type: ignore[import-untyped]
import pytest

import wasmline
from support.record_traffic import Feed, Watch
from support.short_lived_jvms import JDK_JAVA_OPTIONS
from support.streams.identity_transform import deploy_identity
from support.streams.standalone_cluster import StandaloneCluster, standalone_cluster
from support.streams.transform_job import unique
from support.supervision.airflow_components import AirflowComponents
from support.supervision.processes import PID_NAMESPACE, descendants, drivers, kill, processes_of, with_supervisors
from support.supervision.stream_ledger import COMMITS, StreamLedger
from wasmline.control import DeploymentSpec, JobTopic, control_topics
from wasmline.errors import JobNotFound
from wasmline.job_specs import JobReport
from wasmline.kafka import KafkaConfig
from wasmline.local.process import Service, wait_until
from wasmline.testing.kafka import RunningKafka
from wasmline_provider.local import LocalAirflow

REPOSITORY = Path(wasmline.__file__).parents[2]

DAG = "supervise_streams"

RATE = 20
"""Records a second that are written to each stream, whatever happens."""

START_TIMEOUT_S = 300.0

RUN_TIMEOUT_S = 1_800.0
"""Seconds until a run of the DAG must have ended: its own limit."""

SETTINGS = {"AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "60"}
"""Seconds after which Airflow notices that a task died with its worker: 300 by default."""

T = TypeVar("T")

SPARK = {"spark.ui.enabled": "false", "spark.executor.memory": "512m", "spark.cores.max": "2"}


@dataclass
class SupervisedStreams:
    """The streams, and how to kill what they consist of.

    Each method that kills returns the time from which it counts until the streams are at work again: that of the death,
    or of the return of what was killed.
    """

    kafka: RunningKafka
    folder: Path
    streams: dict[str, DeploymentSpec]
    cluster: StandaloneCluster
    airflow: AirflowComponents
    local: LocalAirflow
    ledger: StreamLedger
    launcher: str
    random: random.Random
    written: dict[str, int] = field(default_factory=dict)
    _pod: Service | None = None

    @property
    def worker_job(self) -> str:
        """The job whose driver a task starts; a launcher starts that of the other one, if there is one."""
        return next(iter(self.streams))

    def kill_driver(self) -> float:
        """Kill the JVM of a driver, or its Python process."""
        job = self.random.choice(list(self.streams))
        kill([self._one_of(lambda: drivers(job))])
        return time.monotonic()

    def kill_machine(self) -> float:
        """Kill a driver with its supervisor, so that nobody reports the driver's end."""
        job = self.random.choice(list(self.streams))
        self._one_of(lambda: drivers(job))
        kill(with_supervisors(job))
        return time.monotonic()

    def freeze_driver(self) -> float:
        """Suspend a driver until a newer one has claimed its job, and let it go on then."""
        job = self.random.choice(list(self.streams))
        self._one_of(lambda: drivers(job))
        claimed, frozen = len(self.ledger.drivers[job]), drivers(job)
        for each in frozen:
            with suppress(psutil.NoSuchProcess):  # a shell of spark-submit
                each.suspend()
        try:
            assert wait_until(lambda: len(self.ledger.drivers[job]) > claimed, START_TIMEOUT_S), self.describe()
        finally:
            for each in frozen:
                with suppress(psutil.NoSuchProcess):
                    each.resume()
        return time.monotonic()

    def kill_executor(self) -> float:
        kill([psutil.Process(self._one_of(self.cluster.executors).pid)])
        return time.monotonic()

    def kill_spark_worker(self) -> float:
        """Kill a worker of the cluster, whose executors end with it, and start another one."""
        self.random.choice([each for each in self.cluster.workers if each.alive()]).kill()
        died = time.monotonic()
        self.cluster.add_worker()
        return died

    def kill_airflow_worker(self) -> float:
        """Kill the worker that is about to start a driver, with its task; the executor starts another one."""
        kill(self._one_of(lambda: [drivers(self.worker_job)]))
        ensures = self._one_of(self._ensuring_workers)
        time.sleep(self.random.uniform(0, 3))
        kill([*descendants(ensures.pid), ensures])
        return time.monotonic()

    def kill_component(self, name: str) -> float:
        """Kill a component of Airflow, and a driver while it is away; return when it is back."""
        self.airflow.kill(name)
        kill([self._one_of(lambda: drivers(self.worker_job))])
        time.sleep(self.random.uniform(1, 20))
        self.airflow.start(name)
        self.airflow.await_health()
        return time.monotonic()

    def start_pod(self) -> None:
        log = self.folder / "launcher.log"
        launcher = [sys.executable, "-m", "wasmline.cli", "launcher", "--name", self.launcher]
        command = [*PID_NAMESPACE, *launcher, "--log-folder", str(self.folder / "drivers")]
        environment = {**self.local.environment(), "WASMLINE_KAFKA_CONFIG": self.kafka.config.to_json()}
        self._pod = Service.start(command, self.launcher, log, environment)

    def kill_pod(self) -> float:
        """Kill the launcher with its drivers, and start it again, as the deployment of a pod does."""
        assert self._pod is not None
        kill(descendants(self._pod.pid))
        self._pod.wait(START_TIMEOUT_S)
        self.start_pod()
        return time.monotonic()

    def await_outputs(self, since: float) -> float:
        """Return the seconds from ``since`` until every key has an output of what is written from now on."""
        jobs, written = list(self.streams), dict(self.written)
        assert wait_until(lambda: all(self.ledger.reached(job) >= written[job] for job in jobs), START_TIMEOUT_S), (
            self.describe()
        )
        return time.monotonic() - since

    def describe(self) -> str:
        """Return the state of the streams and of Airflow."""
        reports = "\n".join(f"{job}: {current_report(self.kafka.config, job)}" for job in self.streams)
        behind = {job: (self.written[job], self.ledger.reached(job)) for job in self.streams}
        return f"{reports}\n(written, reached): {behind}\n{self.dag_runs()}\n{self.airflow.log_ends()}"

    def _ensuring_workers(self) -> list[psutil.Process]:
        path = f"/dags/{DAG}/dagRuns/~/taskInstances?state=running&limit=100"
        tasks = self.airflow.api.get(path)["task_instances"]
        ids = [each["id"] for each in tasks if each["task_id"] == f"ensure_{self.worker_job}"]
        return [worker for each in ids for worker in self.airflow.workers_of(each)]

    def _one_of(self, found: Callable[[], Sequence[T]]) -> T:
        """Return one of what there is, once there is something."""
        there: Sequence[T] = ()

        def is_there() -> bool:
            nonlocal there
            there = [each for each in found() if each]
            return bool(there)

        assert wait_until(is_there, START_TIMEOUT_S), self.describe()
        return self.random.choice(there)

    def dag_runs(self) -> list[tuple[str, str]]:
        """Return id and state of the DAG's runs."""
        found: list[tuple[str, str]] = []
        while True:
            page = self.airflow.api.get(f"/dags/{DAG}/dagRuns?limit=50&offset={len(found)}&order_by=-run_after")
            found += [(run["dag_run_id"], run["state"]) for run in page["dag_runs"]]
            if len(found) >= page["total_entries"]:
                return found

    def await_runs(self, at_most_s: float = math.inf) -> None:
        """Return once the runs of the DAG that are active now have ended, or after ``at_most_s``."""
        active = self._active_runs()
        began = time.monotonic()
        while active & self._active_runs() and time.monotonic() - began < at_most_s:
            assert time.monotonic() - began < RUN_TIMEOUT_S, self.dag_runs()
            time.sleep(1)

    def _active_runs(self) -> set[str]:
        return {run for run, state in self.dag_runs() if state in ("queued", "running")}

    def stop(self) -> None:
        """Stop the streams in order."""
        with closing(JobTopic(self.kafka.config)) as jobs:
            for job in self.streams:
                jobs.stop(job, jobs.order(job).spec.run)
        assert wait_until(lambda: not any(drivers(job) for job in self.streams), START_TIMEOUT_S)

    def close(self) -> None:
        if self._pod is not None:
            kill(descendants(self._pod.pid))
            self._pod.wait(START_TIMEOUT_S)


@contextmanager
def supervised_streams(kafka: RunningKafka, folder: Path, *, pod: bool, seed: int) -> Iterator[SupervisedStreams]:
    """Yield streams that are at work: one in micro-batches, and with ``pod`` one with leases, both exactly once.

    All processes end with the block; those that outlive Airflow are found by $WASMLINE_HOME.
    """
    streams = {spec.name: spec for spec in (deploy_identity(kafka.config) for _ in range(1 + pod))}
    launcher = unique("launcher")
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        patch.setenv("WASMLINE_HOME", str(folder))
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        patch.setenv("JDK_JAVA_OPTIONS", JDK_JAVA_OPTIONS)  # drivers and executors are killed every minute
        stack.callback(lambda: kill(processes_of("WASMLINE_HOME", str(folder))))
        cluster = stack.enter_context(standalone_cluster(folder / "spark"))
        connections: dict[str, dict[str, Any]] = {
            "kafka_default": {"conn_type": "kafka", "extra": {"bootstrap.servers": kafka.bootstrap_servers}},
            "spark_default": {"conn_type": "spark", "host": cluster.master},
            "wasmline_default": {"conn_type": "wasmline", "extra": {"storage": str(folder / "storage")}},
        }
        local = LocalAirflow(
            folder / "airflow", _dags(folder, list(streams), launcher), connections=connections, parallelism=16
        )
        local.prepare()
        airflow = AirflowComponents(local, SETTINGS)
        stack.callback(airflow.close)
        ledger = StreamLedger(streams)
        found = SupervisedStreams(
            kafka, folder, streams, cluster, airflow, local, ledger, launcher, random.Random(seed)
        )
        stack.callback(found.close)
        if pod:
            found.start_pod()
        topics = [control_topics.JOBS, *(spec.output_topics[0] for spec in streams.values())]
        stack.enter_context(Watch(kafka.config, topics, ledger.on_record))
        airflow.api.unpause(DAG)
        with ExitStack() as feeds:
            for job, spec in streams.items():
                feeds.enter_context(_feed(kafka.config, job, spec, found.written))
            found.await_outputs(time.monotonic())
            if pod:
                found.await_runs()  # the first run of the DAG has ended, as nearly always where something dies
            stack.enter_context(Watch(kafka.config, [COMMITS], ledger.on_record))
            yield found
        assert wait_until(lambda: not any(ledger.missing(job, found.written[job]) for job in streams), START_TIMEOUT_S)
        found.stop()


def current_report(config: KafkaConfig, job: str) -> JobReport | None:
    """Return the last report of the ordered run of a job; None before its order."""
    with closing(JobTopic(config)) as jobs, suppress(JobNotFound):
        return jobs.report(job, jobs.order(job).spec.run)
    return None


def _feed(config: KafkaConfig, job: str, spec: DeploymentSpec, written: dict[str, int]) -> Feed:
    written[job] = 0

    def count(number: int, _: Any) -> None:
        written[job] = max(written[job], number + 1)

    return Feed(config, spec.input_topic, RATE, StreamLedger.record, count)


def _dags(folder: Path, jobs: list[str], launcher: str) -> Path:
    """Copy the supervising DAG, with other streams in its table."""
    dags = folder / "dags"
    dags.mkdir()
    (dags / "demo_settings.py").symlink_to(REPOSITORY / "dags" / "demo_settings.py")
    common = {"trigger_interval": "1 second", "delivery": "exactly_once", "conf": SPARK}
    modes: list[dict[str, Any]] = [
        {"mode": "microbatch"},
        {"mode": "parallel", "tasks": 2, "commit_interval_ms": 50, "launcher": launcher},
    ]
    table = {job: {"transform": job, **common, **mode} for job, mode in zip(jobs, modes, strict=False)}
    text = (REPOSITORY / "dags" / f"{DAG}.py").read_text()
    copied, count = re.subn(r"(?ms)^(STREAMS: .*? = )\{$.*?^\}$", rf"\g<1>{json.dumps(table)}", text)
    assert count == 1
    (dags / f"{DAG}.py").write_text(copied)
    return dags
