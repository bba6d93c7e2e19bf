"""Deferred tasks on a real broker: what ends, delays and stops them, and how many threads a hundred of them take."""

import asyncio
import json
import logging
import os
import subprocess
import sys
import threading
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.definitions.connection import Connection
from airflow.sdk.exceptions import AirflowNotFoundException
from airflow.triggers.base import TriggerEvent

from wasmline import reading_gaps
from wasmline.control import JobTopic
from wasmline.job_specs import JobReport, JobSpec, JobState, StreamSpec
from wasmline.kafka import CompactedTopic, Topics
from wasmline.local.process import wait_until
from wasmline.testing.kafka import RunningKafka
from wasmline_provider.job_client import JobRun
from wasmline_provider.triggers import job as job_trigger
from wasmline_provider.triggers.job import UNKNOWN_CONNECTION, JobTrigger

MANY = 100

MAX_THREADS = 30
"""Threads of a reader's clients, however many followers it has."""

MAX_DESCRIPTORS = 60

WAIT_S = 60.0

NOWHERE = "127.0.0.1:1"
"""An address at which no broker listens."""


class Runs:
    """Runs that are ordered and reported here, without drivers."""

    def __init__(self, kafka: RunningKafka) -> None:
        self.topic = JobTopic(kafka.config)

    def order(self, job: str, run: str = "run") -> JobRun:
        stream = StreamSpec(transform=job, trigger_interval="1 second")
        self.topic.submit(JobSpec(job=job, run=run, storage="s", stream=stream))
        return JobRun(job=job, run=run, log="driver.log")

    def tell(self, run: JobRun, state: JobState = JobState.RUNNING, message: str = "") -> None:
        self.topic.write_report(JobReport.now(run.job, run.run, state, message))


@pytest.fixture
def runs(kafka: RunningKafka) -> Iterator[Runs]:
    made = Runs(kafka)
    yield made
    made.topic.close()


@pytest.fixture
def unique() -> str:
    return f"job-{uuid.uuid4()}"


@pytest.fixture
def connect(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    def connect(servers: str) -> str:
        connection = {"conn_type": "kafka", "extra": {"bootstrap.servers": servers}}
        monkeypatch.setenv("AIRFLOW_CONN_KAFKA_JOBS", json.dumps(connection))
        return "kafka_jobs"

    return connect


@pytest.fixture
def connection(kafka: RunningKafka, connect: Callable[[str], str]) -> str:
    return connect(kafka.bootstrap_servers)


def trigger(run: JobRun, connection: str, **options: float) -> JobTrigger:
    made = JobTrigger(job=run.job, run=run.run, log=run.log, kafka_conn_id=connection, poll_seconds=0.05, **options)
    path, arguments = made.serialize()
    assert path == f"{JobTrigger.__module__}.{JobTrigger.__name__}"
    again = JobTrigger(**json.loads(json.dumps(arguments)))
    assert again.serialize() == made.serialize()
    again._log = logging.getLogger("triggers")  # type: ignore[assignment]  # Airflow's own has no handler of the test
    return again


@pytest.fixture
def short_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster that does not answer is away after a second, and not after fifteen."""
    monkeypatch.setattr(Topics.__init__, "__kwdefaults__", {"timeout": 1.0})


async def fired(waiting: JobTrigger) -> dict[str, Any]:
    event: TriggerEvent = await anext(aiter(waiting.run()))
    return dict(event.payload)


@asynccontextmanager
async def waiting(*triggers: JobTrigger) -> AsyncIterator[list["asyncio.Task[dict[str, Any]]"]]:
    """Run triggers as a triggerer does; they are cancelled at the end."""
    tasks = [asyncio.create_task(fired(each)) for each in triggers]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def logged(caplog: pytest.LogCaptureFixture, text: str, times: int = 1) -> None:
    """Wait until a text was logged so many times."""
    async with asyncio.timeout(WAIT_S):
        while sum(text in record.getMessage() for record in caplog.records) < times:
            await asyncio.sleep(0.01)


def test_a_trigger_fires_when_the_run_ends(runs: Runs, connection: str, unique: str) -> None:
    run = runs.order(unique)

    async def scene() -> dict[str, Any]:
        async with waiting(trigger(run, connection)) as (event,):
            await asyncio.to_thread(runs.tell, run)
            await asyncio.to_thread(runs.tell, run, JobState.SUCCEEDED, "done")
            return await event

    names = {"job": run.job, "run": run.run, "log": run.log}
    assert asyncio.run(scene()) == {**names, "state": "succeeded", "message": "done"}


def test_a_trigger_fires_when_the_run_is_lost(runs: Runs, connection: str, unique: str) -> None:
    event = asyncio.run(fired(trigger(runs.order(unique), connection, heartbeat_seconds=0.2)))
    assert event["state"] == "lost"
    assert "no heartbeat" in event["message"]


def test_a_trigger_of_a_run_that_another_replaced_names_it(runs: Runs, connection: str, unique: str) -> None:
    run = runs.order(unique)
    runs.order(unique, "newer")
    event = asyncio.run(fired(trigger(run, connection)))
    assert (event["state"], event["replaced_by"]) == ("replaced", "newer")


def test_a_trigger_keeps_no_secret(connection: str) -> None:
    path, arguments = trigger(JobRun(job="j", run="r", log="l"), connection).serialize()
    assert set(arguments) == {"job", "run", "log", "kafka_conn_id", "poll_seconds", "heartbeat_seconds"}
    assert "bootstrap" not in f"{path}{arguments}"


def test_a_hundred_triggers_share_one_reader_and_are_stopped_in_few_transactions(
    runs: Runs, connection: str, unique: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    followed = [runs.order(f"{unique}-{number}") for number in range(MANY)]
    runs.topic.close()
    batches: list[int] = []
    stop_runs = JobTopic.stop_runs

    def counted(topic: JobTopic, stopped: Any, **options: Any) -> set[str]:
        done = stop_runs(topic, stopped, **options)
        batches.append(len(stopped))
        return done

    monkeypatch.setattr(JobTopic, "stop_runs", counted)

    async def scene() -> tuple[int, int, list[dict[str, Any]]]:
        threads, descriptors = threads_and_descriptors()
        triggers = [trigger(run, connection) for run in followed]
        async with waiting(*triggers) as events:
            await logged(caplog, f"job {unique}", MANY)
            now = threads_and_descriptors()
            kills = [asyncio.create_task(each.on_kill()) for each in triggers]
            async with asyncio.timeout(WAIT_S):
                while sum(batches) < MANY:
                    await asyncio.sleep(0.01)
            for run in followed:
                await asyncio.to_thread(runs.tell, run, JobState.STOPPED)
            await asyncio.gather(*kills)
            return now[0] - threads, now[1] - descriptors, await asyncio.gather(*events)

    threads, descriptors, events = asyncio.run(scene())
    assert threads <= MAX_THREADS
    assert descriptors <= MAX_DESCRIPTORS
    assert {event["state"] for event in events} == {"stopped"}
    assert len(batches) <= 3
    assert {runs.topic.order(run.job).wanted for run in followed} == {"stopped"}


def threads_and_descriptors() -> tuple[int, int]:
    return len([*Path("/proc/self/task").iterdir()]), len([*Path("/proc/self/fd").iterdir()])


@pytest.mark.usefixtures("short_requests")
def test_a_triggerer_s_other_triggers_do_not_wait_for_a_cluster_that_is_away(
    connect: Callable[[str], str], caplog: pytest.LogCaptureFixture
) -> None:
    connection = connect(NOWHERE)

    async def scene() -> None:
        run = JobRun(job="job", run="run", log="driver.log")
        triggers = [trigger(replace(run, run=f"run-{number}"), connection) for number in range(MANY)]
        before = threading.active_count()
        async with waiting(*triggers) as events:
            await logged(caplog, "cannot read the reports of job job", MANY)
            assert threading.active_count() <= before + 3
            assert "asyncio_" not in "".join(thread.name for thread in threading.enumerate())
            assert not any(event.done() for event in events)

    asyncio.run(scene())


@pytest.mark.usefixtures("short_requests")
def test_a_broker_that_was_never_reachable_delays_the_event_and_so_does_a_wrong_address_until_it_is_mended(
    runs: Runs,
    kafka: RunningKafka,
    connect: Callable[[str], str],
    unique: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    run = runs.order(unique)
    runs.tell(run, JobState.SUCCEEDED)
    connection = connect(NOWHERE)

    async def scene() -> dict[str, Any]:
        async with waiting(trigger(run, connection, heartbeat_seconds=0.1)) as (event,):
            await logged(caplog, "cannot read the reports")
            connect(kafka.bootstrap_servers)
            return await asyncio.wait_for(event, WAIT_S)

    assert asyncio.run(scene())["state"] == "succeeded"


def test_a_broker_that_is_killed_and_comes_back_costs_no_run(
    stoppable_kafka: RunningKafka,
    connect: Callable[[str], str],
    unique: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    caplog.set_level(logging.INFO)
    heartbeat_s = 2.0
    monkeypatch.setattr(reading_gaps, "SLOW_READING_S", 0.5)
    runs = Runs(stoppable_kafka)
    run = runs.order(unique)
    connection = connect(stoppable_kafka.bootstrap_servers)

    async def scene() -> tuple[float, dict[str, Any]]:
        loop = asyncio.get_running_loop()
        async with waiting(trigger(run, connection, heartbeat_seconds=heartbeat_s)) as (event,):
            await logged(caplog, f"job {unique} starting")
            killed = loop.time()
            await asyncio.to_thread(stoppable_kafka.local.kill_node, 1)
            await asyncio.to_thread(stoppable_kafka.local.start_node, 1)
            away = loop.time() - killed
            await asyncio.to_thread(runs.tell, run, JobState.SUCCEEDED)
            return away, await asyncio.wait_for(event, WAIT_S)

    away, event = asyncio.run(scene())
    assert event["state"] == "succeeded", f"the broker was away for {away:.1f} s"
    assert away > heartbeat_s
    runs.topic.close()


def test_a_connection_that_is_not_defined_for_the_heartbeats_time_ends_the_waiting() -> None:
    run = JobRun(job="job", run="run", log="driver.log")
    event = asyncio.run(fired(trigger(run, "no_such_connection", heartbeat_seconds=0.1)))
    assert event["state"] == UNKNOWN_CONNECTION
    assert "no_such_connection" in event["message"]


@pytest.mark.parametrize("error", [ConnectionError("the API server is away"), AirflowNotFoundException("not defined")])
def test_a_connection_that_cannot_be_read_yet_delays_the_event(
    runs: Runs, connection: str, unique: str, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    run = runs.order(unique)
    runs.tell(run, JobState.SUCCEEDED)
    errors = [error]
    find = Connection.async_get

    async def failing(conn_id: str) -> Connection:
        if errors:
            raise errors.pop()
        found: Connection = await find(conn_id)
        return found

    monkeypatch.setattr(Connection, "async_get", failing)
    assert asyncio.run(fired(trigger(run, connection)))["state"] == "succeeded"


@pytest.mark.parametrize("cancels", [False, True], ids=["once", "and cancelled until it has ended"])
def test_killing_a_trigger_requests_the_stop_and_waits_for_it(
    runs: Runs, connection: str, unique: str, cancels: bool
) -> None:
    """Airflow 3.3 cancels a kill in each loop of the triggerer until the trigger has ended."""
    run = runs.order(unique)

    async def scene() -> None:
        kill = asyncio.create_task(trigger(run, connection).on_kill())
        while runs.topic.order(run.job).wanted != "stopped":
            await asyncio.sleep(0.05)
            if cancels:
                kill.cancel("user-action")
        assert not kill.done()
        runs.tell(run, JobState.STOPPED)
        async with asyncio.timeout(WAIT_S):
            await kill

    asyncio.run(scene())
    order = runs.topic.order(run.job)
    assert (order.wanted, order.stopped_by) == ("stopped", "user")


def test_a_trigger_that_is_killed_long_after_the_end_of_its_run_leaves_the_job_wanted(
    runs: Runs, connection: str, unique: str
) -> None:
    run = runs.order(unique)
    runs.tell(run, JobState.FAILED)
    asyncio.run(trigger(run, connection).on_kill())
    assert runs.topic.order(run.job).wanted == "running"


@pytest.mark.usefixtures("short_requests")
def test_a_kill_while_the_trigger_still_connects_is_not_lost(
    runs: Runs, kafka: RunningKafka, connect: Callable[[str], str], unique: str, caplog: pytest.LogCaptureFixture
) -> None:
    run = runs.order(unique)
    killed = trigger(run, connect(NOWHERE))

    async def scene() -> None:
        async with waiting(killed):
            await logged(caplog, "cannot read the reports")
        connect(kafka.bootstrap_servers)
        kill = asyncio.create_task(killed.on_kill())
        while runs.topic.order(run.job).wanted != "stopped":
            await asyncio.sleep(0.05)
        runs.tell(run, JobState.STOPPED)
        await kill

    asyncio.run(scene())


def test_a_kill_that_cannot_reach_the_broker_says_so_and_names_the_command(
    connect: Callable[[str], str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(job_trigger, "STOP_TIMEOUT_S", 0.5)
    connection = connect(NOWHERE)
    asyncio.run(trigger(JobRun(job="job", run="run", log="driver.log"), connection).on_kill())
    [error] = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert "the stop of job job, run run, was NOT requested" in error
    assert error.endswith("wasmline stop job")


def test_a_kill_that_was_given_up_while_the_broker_was_away_stops_nothing_once_it_is_back(
    runs: Runs, connection: str, unique: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    run = runs.order(unique)
    compare_and_set, is_back = CompactedTopic.compare_and_set, threading.Event()

    def waiting_for_a_broker(topic: CompactedTopic, *arguments: Any) -> Any:
        assert is_back.wait(WAIT_S)
        return compare_and_set(topic, *arguments)

    monkeypatch.setattr(CompactedTopic, "compare_and_set", waiting_for_a_broker)
    monkeypatch.setattr(job_trigger, "STOP_TIMEOUT_S", 3.0)
    asyncio.run(trigger(run, connection).on_kill())
    assert "was NOT requested" in caplog.text
    is_back.set()
    assert wait_until(lambda: "wasmline-stop-writer" not in {each.name for each in threading.enumerate()}, WAIT_S)
    assert runs.topic.order(run.job).wanted == "running"


ON_THE_LOOP = """
import asyncio, sys, threading
from wasmline_provider.triggers.job import JobTrigger

loaded_by = {}

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name in ("confluent_kafka", "wasmline.kafka", "wasmline.control"):
            loaded_by[name] = threading.current_thread().name

sys.meta_path.insert(0, Finder())

async def main():
    waiting = asyncio.create_task(anext(aiter(JobTrigger(job="j", run="r", log="l", poll_seconds=0.05).run())))
    while len(loaded_by) < 3:
        await asyncio.sleep(0.01)
    waiting.cancel()

asyncio.run(asyncio.wait_for(main(), 60))
print(*sorted(set(loaded_by.values())))
"""


def test_the_engine_is_imported_by_the_reader_s_thread() -> None:
    connection = {"conn_type": "kafka", "extra": {"bootstrap.servers": NOWHERE}}
    environment = {**os.environ, "AIRFLOW_CONN_KAFKA_DEFAULT": json.dumps(connection)}
    command = [sys.executable, "-c", ON_THE_LOOP]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["wasmline-run-reader"], done.stderr
