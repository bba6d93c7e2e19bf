"""JobTrigger as the triggerer runs it, on a real broker: it fires, outlives outages, and shares its reader."""

import asyncio
import json
import threading
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from airflow.triggers.base import TriggerEvent

from wasmline.control import JobOrder, JobTopic, control_topics, run_follower
from wasmline.documents import encode
from wasmline.job_specs import JobReport, JobSpec, JobState, StreamSpec
from wasmline.kafka import CompactedTopic, KafkaConfig, compacted_topic
from wasmline.local import LocalKafka
from wasmline.local.process import wait_until
from wasmline.testing.kafka import RunningKafka
from wasmline_provider.job_client import JobRun
from wasmline_provider.triggers import job as trigger_module
from wasmline_provider.triggers.job import JobTrigger

TRIGGERS = 100


class Runs:
    """Runs that are ordered, whose drivers are the test."""

    def __init__(self, kafka: RunningKafka) -> None:
        self.config = kafka.config
        self.topic = JobTopic(kafka.config)

    def order_many(self, count: int) -> list[JobRun]:
        """Order runs in one transaction."""
        stream = StreamSpec(transform="t", trigger_interval="1 second")
        specs = [JobSpec(job=f"job-{uuid.uuid4()}", run="run-1", storage="s", stream=stream) for _ in range(count)]
        orders = {spec.job.encode(): encode(JobOrder(spec=spec, wanted="running")) for spec in specs}
        table = CompactedTopic(self.config, control_topics.JOBS)
        table.compare_and_set("wasmline.test", lambda _: orders)
        table.close()
        return [JobRun(job=spec.job, run=spec.run, log="driver.log") for spec in specs]

    def order(self, run: str = "run-1", job: str = "") -> JobRun:
        job = job or f"job-{uuid.uuid4()}"
        stream = StreamSpec(transform=f"t-{job}", trigger_interval="1 second")
        self.topic.submit(JobSpec(job=job, run=run, storage="s", stream=stream))
        return JobRun(job=job, run=run, log="driver.log")

    def report(self, run: JobRun, state: JobState, message: str = "") -> None:
        self.topic.write_report(JobReport.now(run.job, run.run, state, message))


@pytest.fixture
def runs(kafka: RunningKafka) -> Iterator[Runs]:
    made = Runs(kafka)
    with closing(made.topic):
        yield made


def connect(monkeypatch: pytest.MonkeyPatch, servers: str, name: str = "kafka_jobs") -> str:
    extra = {"bootstrap.servers": servers}
    monkeypatch.setenv(f"AIRFLOW_CONN_{name.upper()}", json.dumps({"conn_type": "kafka", "extra": extra}))
    return name


@pytest.fixture
def connection(kafka: RunningKafka, monkeypatch: pytest.MonkeyPatch) -> str:
    return connect(monkeypatch, kafka.bootstrap_servers)


def trigger(run: JobRun, connection: str, **options: float) -> JobTrigger:
    """Return a trigger as another triggerer makes it."""
    made = JobTrigger(job=run.job, run=run.run, log=run.log, kafka_conn_id=connection, poll_seconds=0.05, **options)
    path, arguments = made.serialize()
    assert path == f"{JobTrigger.__module__}.{JobTrigger.__name__}"
    again = JobTrigger(**json.loads(json.dumps(arguments)))
    assert again.serialize() == made.serialize()
    return again


async def fired(waiting: JobTrigger) -> TriggerEvent:
    return await anext(aiter(waiting.run()))


def test_a_trigger_fires_when_the_run_ends(runs: Runs, connection: str) -> None:
    run = runs.order()

    async def scene() -> TriggerEvent:
        event = asyncio.ensure_future(fired(trigger(run, connection)))
        await asyncio.to_thread(runs.report, run, JobState.RUNNING)
        await asyncio.to_thread(runs.report, run, JobState.SUCCEEDED)
        return await event

    names = {"job": run.job, "run": run.run, "log": run.log}
    assert asyncio.run(scene()).payload == {**names, "state": "succeeded", "message": ""}


def test_a_trigger_waits_for_its_connection(runs: Runs, kafka: RunningKafka, monkeypatch: pytest.MonkeyPatch) -> None:
    run = runs.order()
    runs.report(run, JobState.SUCCEEDED)

    async def scene() -> TriggerEvent:
        event = asyncio.ensure_future(fired(trigger(run, "kafka_later", heartbeat_seconds=0.1)))
        await asyncio.sleep(0.3)
        assert not event.done(), "longer than a heartbeat"
        connect(monkeypatch, kafka.bootstrap_servers, "kafka_later")
        return await event

    assert asyncio.run(scene()).payload["state"] == "succeeded"


def test_a_trigger_fires_when_the_run_is_lost(runs: Runs, connection: str) -> None:
    event = asyncio.run(fired(trigger(runs.order(), connection, heartbeat_seconds=1.5)))
    assert event.payload["state"] == "lost"
    assert "no heartbeat" in event.payload["message"]


def test_a_trigger_fires_when_a_newer_run_replaces_its_own(runs: Runs, connection: str) -> None:
    run = runs.order()
    runs.order("run-2", run.job)
    event = asyncio.run(fired(trigger(run, connection)))
    assert event.payload["state"] == "replaced"
    assert "was replaced by run run-2" in event.payload["message"]


def test_a_broker_that_is_away_at_first_or_later_delays_and_fails_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compacted_topic, "REQUEST_TIMEOUT_S", 5.0)
    with LocalKafka(tmp_path) as local:
        kafka = RunningKafka(local=local, config=KafkaConfig({"bootstrap.servers": local.bootstrap_servers}))
        connection = connect(monkeypatch, local.bootstrap_servers, "kafka_away")
        runs = Runs(kafka)
        run = runs.order()
        runs.topic.close()
        local.stop_node(1)  # in order: a broker that is killed now may lose the marker of the order's transaction

        async def scene() -> TriggerEvent:
            first = asyncio.ensure_future(fired(trigger(run, connection, heartbeat_seconds=2.0)))
            follower = run_follower(kafka.config)
            with follower.following(run.job, run.run, lambda: None) as seen:
                assert await asyncio.to_thread(wait_until, lambda: bool(seen.snapshot.unreadable), 120)
                await asyncio.sleep(3.0)  # longer than the heartbeat's time
                assert not first.done()
                await asyncio.to_thread(local.start_node, 1)
                assert await asyncio.to_thread(wait_until, lambda: not seen.snapshot.unreadable, 120)
                await asyncio.to_thread(local.kill_node, 1)
                assert await asyncio.to_thread(wait_until, lambda: bool(seen.snapshot.unreadable), 120)
                await asyncio.to_thread(local.start_node, 1)
                await asyncio.to_thread(runs.report, run, JobState.STOPPED)
            return await first

        assert asyncio.run(scene()).payload["state"] == "stopped"
        runs.topic.close()


def test_a_hundred_triggers_share_one_reader_and_their_kills_one_writer(runs: Runs, connection: str) -> None:
    ordered = runs.order_many(TRIGGERS)

    async def scene() -> None:
        threads, files = threading.active_count(), len(list(Path("/proc/self/fd").iterdir()))
        waiting = [trigger(run, connection, heartbeat_seconds=3_600) for run in ordered]
        events = [asyncio.ensure_future(fired(each)) for each in waiting]
        await asyncio.sleep(3.0)
        assert threading.active_count() - threads <= 2, "a reader, and what a client has"
        assert len(list(Path("/proc/self/fd").iterdir())) - files <= 20
        await asyncio.gather(*(_killed(each, runs) for each in waiting))
        assert {event.payload["state"] for event in await asyncio.gather(*events)} == {"stopped"}

    asyncio.run(scene())
    orders = {order.spec.job: order for order in runs.topic.orders()}
    assert all(orders[run.job].is_stopped_by_user for run in ordered)


async def _killed(waiting: JobTrigger, runs: Runs) -> None:
    await asyncio.to_thread(runs.report, waiting.run_of, JobState.STOPPED)
    await waiting.on_kill()


def test_killing_a_trigger_requests_the_stop_and_waits_for_it(runs: Runs, connection: str) -> None:
    run = runs.order()
    runs.report(run, JobState.STOPPED)
    asyncio.run(trigger(run, connection).on_kill())
    assert runs.topic.order(run.job).is_stopped_by_user


def test_a_kill_that_does_not_reach_the_cluster_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(trigger_module, "STOP_TIMEOUT_S", 3.0)
    connection = connect(monkeypatch, "127.0.0.1:1", "kafka_nowhere")
    run = JobRun(job="unreached", run="run-1", log="driver.log")
    killed: Any = trigger(run, connection)
    lines: list[str] = []
    monkeypatch.setattr(type(killed.log), "error", lambda _, text, *facts: lines.append(text % facts), raising=False)
    asyncio.run(killed.on_kill())
    assert len(lines) == 1
    assert "its stop could NOT be requested, and it runs on; use wasmline stop unreached" in lines[0]


def test_a_trigger_keeps_no_secret(connection: str) -> None:
    path, arguments = trigger(JobRun(job="j", run="r", log="l"), connection).serialize()
    assert set(arguments) == {"job", "run", "log", "kafka_conn_id", "poll_seconds", "heartbeat_seconds"}
    assert "bootstrap" not in f"{path}{arguments}"
