"""The rounds of a run that continues in the checkpoint of the one before, as a driver plans and starts it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from wasmline.control import DriverClaim
from wasmline.job_offsets.resume_plan import CheckpointState, TopicState, plan_run, takeover_claim
from wasmline.job_specs import JobReport, JobSpec, JobState, StreamSpec
from wasmline.kafka import KafkaConfig
from wasmline.kafka.librdkafka_ctypes import CLIENT
from wasmline.leases.lease_planner import LeaseRound
from wasmline.spark.driver_claim_builder import final_claim
from wasmline.spark.parallel import job as parallel_job
from wasmline.spark.parallel import query as parallel_query
from wasmline.spark.parallel.job import ParallelJob
from wasmline.spark.parallel.lease_source import LeaseReader
from wasmline.spark.run_planner import PlannedRun, PreparedRun

TOPIC = TopicState(name="in", id="ID", begins={0: 0}, ends={0: 90})
STREAM = StreamSpec(transform="t", mode="parallel", trigger_interval="1 second")
LAST = DriverClaim(
    run="r1", mode="parallel", driver="d1", topic="in", topic_id="ID", checkpoint="/s/checkpoints/j/ID-parallel",
    batch_id=41, partitions=1, offsets={0: 50}, ended=True, deployment=None,
)  # fmt: skip


class Spark:
    """A session that keeps the options of its source and starts nothing."""

    def __init__(self) -> None:
        self.options: dict[str, str] = {}
        self.sparkContext = self.dataSource = self.conf = self.readStream = self.writeStream = self

    def option(self, name: str, value: str) -> Spark:
        self.options[name] = value
        return self

    def format(self, name: str) -> Spark:
        return self

    load = register = set = queryName = start = lambda self, *_: self  # noqa: N815 - Spark's name


class Driver(ParallelJob):
    """One driver of a job, up to the start of its query."""

    def __init__(self, name: str, claims: list[DriverClaim], spark: Any) -> None:
        job = JobSpec(job="j", run=f"run-{name}", storage="/s", stream=STREAM)
        context: Any = SimpleNamespace(
            spark=spark,
            config=KafkaConfig({"bootstrap.servers": "b:1"}),
            job=job,
            stream=STREAM,
            driver=name,
            jobs=SimpleNamespace(last_claim=lambda *_: claims[-1]),
            claims=SimpleNamespace(claim=lambda claim, *_: claims.append(claim)),
            statuses=None,
            write_report=None,
            timings=SimpleNamespace(task_start_timeout_s=60.0),
        )
        self._context = context

    def plan(self, last: DriverClaim) -> PlannedRun[Any]:
        job = self._context.job
        taken = takeover_claim(job, STREAM, self._context.driver, last)
        plan = plan_run(taken, CheckpointState(), {0: 50}, TOPIC, job, self._context.driver)
        prepared: PreparedRun[Any] = PreparedRun(deployment=None, topic="in", data_loss=None)  # type: ignore[arg-type]
        return PlannedRun(prepared=prepared, topic=TOPIC, plan=plan, earlier=None, mapped=set(), is_renewed=False)

    def _await_query(self, run: object, job_query: object, query: object) -> JobReport:
        return JobReport.now("j", "r", JobState.SUCCEEDED)


class Planner:
    """Plans a round at each call."""

    def next(self, last: LeaseRound) -> LeaseRound:
        return replace(last, epoch=last.epoch + 1)


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    def reporter(*_: object) -> Any:
        return SimpleNamespace(begin=lambda *_: None, report=lambda *_: None)

    def topics(_: object) -> Any:
        return SimpleNamespace(end_offsets=lambda topic: TOPIC.ends)

    monkeypatch.setattr(parallel_query, "ParallelReporter", reporter)
    monkeypatch.setattr(parallel_query, "Topics", topics)
    monkeypatch.setattr(parallel_job, "task_slots", lambda context: 1)


def first_round(name: str, claims: list[DriverClaim]) -> Mapping[str, Any]:
    """Start a driver after the last claim, end it cleanly, and return its first round as Spark before 4.2 asks."""
    spark = Spark()
    driver = Driver(name, claims, spark)
    driver._run_query(driver.plan(claims[-1]))
    claims.append(final_claim(claims[-1], {}))
    reader: Any = LeaseReader(spark.options)
    assert reader._planned.client == CLIENT
    reader._opened = Planner()
    return dict(reader.latestOffset())


def test_a_run_continues_the_rounds_of_its_checkpoint_also_after_one_that_had_none() -> None:
    claims = [LAST]
    assert first_round("d2", claims)["epoch"] == 42
    assert claims[-1].checkpoint == LAST.checkpoint
    assert first_round("d3", claims)["epoch"] == 42


def test_a_run_with_a_checkpoint_of_its_own_begins_with_the_first_round() -> None:
    claims = [replace(LAST, ended=False)]
    assert first_round("d2", claims)["epoch"] == 1
    assert claims[-1].checkpoint != LAST.checkpoint
    assert claims[-1].batch_id == -1
