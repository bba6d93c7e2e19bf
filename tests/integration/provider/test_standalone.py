"""SparkStreamOperator on a real standalone cluster, in client mode: shared cores, executors and workers that die."""

import json
import os
import signal
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from support.streams.identity_transform import deploy_identity
from support.streams.standalone_cluster import CORES, WORKERS, StandaloneCluster, is_alive, standalone_cluster
from support.streams.transform_job import by_key, keyed
from wasmline.control import JobTopic
from wasmline.errors import JobNotFound
from wasmline.job_specs import JobReport
from wasmline.kafka import produce_all, read_to_end
from wasmline.local.process import wait_until
from wasmline.testing.kafka import RunningKafka
from wasmline_provider.operators.stream import SparkStreamOperator

TIMEOUT_S = 120.0
RECORDS = 400


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    with standalone_cluster(tmp_path_factory.mktemp("standalone")) as cluster:
        yield cluster


class Stream:
    """An identity transform between topics of its own, run by an operator."""

    def __init__(self, kafka: RunningKafka, folder: Path, partitions: int = 2, **arguments: Any) -> None:
        self._config = kafka.config
        self.spec = deploy_identity(kafka.config, partitions)
        self.records: list[tuple[bytes, bytes]] = []
        self.operator = SparkStreamOperator(
            task_id="stream",
            job=self.spec.name,
            transform=self.spec.name,
            storage=str(folder),
            delivery="exactly_once",
            conf={"spark.ui.enabled": "false", "spark.executor.memory": "512m"},
            **arguments,
        )

    def produce(self) -> None:
        records = keyed(RECORDS, first=len(self.records))
        produce_all(self._config, self.spec.input_topic, ((key, value, None, None) for key, value in records))
        self.records += records

    def out(self) -> list[tuple[bytes, bytes]]:
        messages: Iterator[Any] = read_to_end(self._config, self.spec.output_topics[0])
        return [(each.key(), each.value()) for each in messages]

    def is_done(self) -> bool:
        """Return whether each record's output is there; fail if one is there twice, or out of its key's order."""
        out = self.out()
        if len(out) < len(self.records):
            return False
        assert by_key(out) == by_key(self.records)
        return True

    def report(self) -> JobReport | None:
        jobs = JobTopic(self._config)
        try:
            order = jobs.order(self.spec.name)
            return jobs.report(self.spec.name, order.spec.run)
        finally:
            jobs.close()

    def message(self) -> str:
        report = self.report()
        return report.message if report else ""

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run until the end of the block, and stop as a killed task does."""
        started = self.operator.submit_job(context())
        try:
            yield
            report = self.report()
            assert report is not None
            assert report.state.value == "running", report
        finally:
            self.operator._running = started
            self.operator.on_kill()


def context() -> Any:
    ti = SimpleNamespace(dag_id="dag", run_id=uuid.uuid4().hex, task_id="stream", map_index=-1, log_url="")
    return {"ti": ti, "outlet_events": {}}


@pytest.fixture
def stream(
    kafka: RunningKafka, cluster: StandaloneCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Stream]:
    extra = {"bootstrap.servers": kafka.bootstrap_servers}
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_DEFAULT", json.dumps({"conn_type": "kafka", "extra": extra}))
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", "host": cluster.master}))
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    return lambda **arguments: Stream(kafka, tmp_path, **arguments)


def test_a_continuous_stream_leaves_cores_to_a_second_application_and_survives_the_end_of_an_executor(
    stream: Callable[..., Stream], cluster: StandaloneCluster
) -> None:
    """The stream runs in parallel mode, and the second application in micro-batches, both exactly once."""
    continuous = stream(mode="parallel", trigger_interval="1 second", commit_interval_ms=50)
    bounded = stream(mode="microbatch", deferrable=False, durable=False)
    continuous.produce()
    bounded.produce()
    with continuous.running():
        assert wait_until(continuous.is_done, TIMEOUT_S), continuous.report()
        executors = cluster.executors()
        assert executors
        assert len({each.app for each in executors}) == 1

        result = bounded.operator.execute_resumable(context())
        assert (result["state"], result["records_in"]) == ("succeeded", RECORDS)
        assert bounded.is_done()

        os.kill(executors[0].pid, signal.SIGKILL)
        assert wait_until(lambda: not is_alive(executors[0]), TIMEOUT_S)
        continuous.produce()
        assert wait_until(continuous.is_done, TIMEOUT_S), continuous.report()


def test_a_driver_on_a_standalone_cluster_is_refused_and_nothing_is_ordered(
    stream: Callable[..., Stream], cluster: StandaloneCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = {"conn_type": "spark", "host": cluster.master, "extra": {"deploy-mode": "cluster"}}
    refused = stream(deferrable=True)
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(connection))
    with pytest.raises(AirflowFailException, match="use deploy mode client"):
        refused.operator.execute(context())
    with pytest.raises(JobNotFound):
        refused.report()


@pytest.mark.long
@pytest.mark.parametrize("mode", ["microbatch", "parallel"])
def test_a_continuous_stream_goes_on_with_the_slots_that_are_left_when_a_worker_dies(
    stream: Callable[..., Stream], cluster: StandaloneCluster, mode: str
) -> None:
    """The stream has all cores of both workers: the executors of the dead one are not replaced until another comes."""
    slots = WORKERS * CORES
    tasks = {"tasks": slots} if mode == "parallel" else {}
    continuous = stream(partitions=slots, mode=mode, trigger_interval="1 second", **tasks)
    lacks = f"Spark has {slots - CORES} slots for {slots} tasks"
    continuous.produce()
    with continuous.running():
        assert wait_until(continuous.is_done, TIMEOUT_S), continuous.report()
        number = max(range(len(cluster.workers)), key=lambda each: len(cluster.executors(each)))
        executors = cluster.executors(number)
        assert executors
        cluster.workers[number].kill()
        try:
            assert wait_until(lambda: not any(is_alive(each) for each in executors), TIMEOUT_S)
            continuous.produce()
            assert wait_until(continuous.is_done, 2 * TIMEOUT_S), continuous.report()
            if mode == "parallel":
                assert wait_until(lambda: continuous.message() == lacks, TIMEOUT_S), continuous.report()
        finally:
            cluster.add_worker()
        continuous.produce()
        assert wait_until(continuous.is_done, TIMEOUT_S), continuous.report()
        assert wait_until(lambda: "slots" not in continuous.message(), TIMEOUT_S), continuous.report()
