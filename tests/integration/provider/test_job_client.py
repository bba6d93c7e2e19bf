"""Runs of jobs as tasks see them, on a real broker: ordered once, found again, followed, stopped, lost."""

import asyncio
import json
import uuid
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from airflow.triggers.base import TriggerEvent

from demo_stack.job_messages import JobMessages
from demo_stack.stack import close_orphans
from wasmline.control import JobTopic
from wasmline.digests import digest_of
from wasmline.documents import encode, plain
from wasmline.errors import BrokerUnavailable, Fenced, JobBusy, JobFailed
from wasmline.job_specs import JobReport, JobSpec, JobState, StreamSpec
from wasmline.testing.kafka import RunningKafka
from wasmline_provider.job_client import JobClient, JobRun, RunMonitor, format_report, task_instance_key
from wasmline_provider.local import TaskState
from wasmline_provider.operators.job import OUTDATED
from wasmline_provider.operators.model import TrainModelOperator
from wasmline_provider.triggers.job import JobTrigger

OWNER, STRANGER = "owner", "stranger"


class Desk:
    """A desk over the run's broker whose launches are only counted, and the driver's hand to write reports."""

    def __init__(self, kafka: RunningKafka, folder: Path) -> None:
        self.log = JobTopic(kafka.config)
        self.desk = JobClient(self.log, heartbeat=60)
        self.folder = folder
        self.spec = JobSpec(
            job=f"job-{uuid.uuid4()}", run="", storage=str(folder), stream=StreamSpec(transform="identity")
        )
        self.launched: list[JobRun] = []

    def order(self, owner: str = OWNER, spec: JobSpec | None = None) -> JobRun:
        return self.desk.submit_or_attach(spec or self.spec, owner, self.folder, self.launched.append)

    def tell(self, run: JobRun, state: JobState, updated_ms: int | None = None, **result: int) -> None:
        standing = self.desk.report(run)
        told = replace(standing, state=state, result=result, updated_ms=updated_ms or standing.updated_ms + 1)
        self.log.write_report(told)

    def watch(self, run: JobRun, **options: object) -> tuple[RunMonitor, list[str]]:
        lines: list[str] = []
        return RunMonitor(self.log, run, lines.append, **options), lines  # type: ignore[arg-type]


@pytest.fixture
def desk(kafka: RunningKafka, tmp_path: Path) -> Iterator[Desk]:
    made = Desk(kafka, tmp_path)
    yield made
    made.desk.close()


def test_a_task_that_starts_again_finds_its_living_run(desk: Desk) -> None:
    first = desk.order()
    desk.tell(first, JobState.RUNNING)
    assert desk.order() == first
    assert desk.launched == [first]
    assert desk.desk.state(first) is JobState.RUNNING


@pytest.mark.parametrize("end", [JobState.SUCCEEDED, JobState.STOPPED, JobState.FAILED])
def test_after_an_end_there_is_a_new_run(desk: Desk, end: JobState) -> None:
    first = desk.order()
    desk.tell(first, end)
    second = desk.order()
    assert second.run != first.run
    assert desk.launched == [first, second]


def test_a_run_that_gave_no_sign_of_life_for_long_is_lost_and_replaced(desk: Desk) -> None:
    first = desk.order()
    desk.tell(first, JobState.RUNNING, updated_ms=1)
    assert desk.desk.state(first) == "lost"
    assert desk.order() != first


def test_another_tasks_living_run_is_left_alone(desk: Desk) -> None:
    first = desk.order()
    with pytest.raises(JobBusy, match=first.run):
        desk.order(STRANGER)
    desk.tell(first, JobState.SUCCEEDED)
    assert desk.order(STRANGER).run.startswith(STRANGER)


def test_a_living_run_that_was_ordered_otherwise_is_stopped_before_the_new_one(desk: Desk) -> None:
    first = desk.order()
    changed = replace(desk.spec, stream=StreamSpec(transform="identity", max_offsets_per_trigger=7))
    desk.desk = JobClient(desk.log, heartbeat=1)  # the wait for the old run's end ends with its heartbeat
    second = desk.order(spec=changed)
    assert second.run != first.run
    assert desk.log.order(desk.spec.job).spec.run == second.run


def test_a_launch_that_fails_is_reported_and_leaves_no_living_run(desk: Desk) -> None:
    def fail(run: JobRun) -> None:
        raise OSError("no spark-submit here")

    with pytest.raises(OSError, match="no spark-submit"):
        desk.desk.submit_or_attach(desk.spec, OWNER, desk.folder, fail)
    run = desk.log.order(desk.spec.job).spec.run
    report = desk.log.report(desk.spec.job, run)
    assert report is not None
    assert (report.state, report.error, report.message) == (JobState.FAILED, "OSError", "no spark-submit here")


def test_a_stop_is_a_record_and_waits_for_the_last_report(desk: Desk) -> None:
    run = desk.order()
    assert desk.desk.stop(run, timeout=0.5) is None
    assert desk.log.order(run.job).wanted == "stopped"
    desk.tell(run, JobState.STOPPED)
    stopped = desk.desk.stop(run)
    assert stopped is not None
    assert stopped.state is JobState.STOPPED


def test_runs_that_a_killed_stack_left_are_closed_and_ended_ones_are_not_touched(
    desk: Desk, kafka: RunningKafka
) -> None:
    run = desk.order()
    desk.tell(run, JobState.RUNNING, records_in=7)
    close_orphans(kafka.config)
    assert desk.desk.report(run).state is JobState.FAILED
    assert "ended with the Airflow" in desk.desk.report(run).message
    again = desk.order(STRANGER)
    desk.tell(again, JobState.SUCCEEDED)
    close_orphans(kafka.config)
    assert desk.desk.report(again).state is JobState.SUCCEEDED


def test_a_watch_tells_of_each_change_once_and_returns_the_last_report(desk: Desk) -> None:
    run = desk.order()
    watch, lines = desk.watch(run)
    assert watch.poll() is None
    desk.tell(run, JobState.RUNNING, records_in=1_000, records_out=990)
    assert watch.poll() is None
    assert watch.poll() is None
    desk.tell(run, JobState.SUCCEEDED, records_in=2_000, records_out=1_990)
    last = watch.poll()
    assert last is not None
    assert last.state is JobState.SUCCEEDED
    assert [line.partition(" ")[2].partition(" ")[2] for line in lines] == [
        "starting",
        "running: 1,000 records in, 990 out, 0 dead letters",
        "succeeded: 2,000 records in, 1,990 out, 0 dead letters",
    ]


def test_the_news_of_a_task_are_what_its_job_reported_since_it_began(desk: Desk, kafka: RunningKafka) -> None:
    run = desk.order()
    now = datetime.now(UTC)
    news = JobMessages(kafka.config, {"stream": desk.spec.job, "train": "nobody-ordered-it"})

    def of(state: str, began: datetime) -> dict[str, str]:
        tasks = [TaskState(task=name, state=state, started=began, ended=None, tries=1) for name in ("stream", "train")]
        return news.of(tasks)

    desk.tell(run, JobState.RUNNING, records_in=1_000, records_out=990)
    assert of("deferred", now - timedelta(minutes=1)) == {
        "stream": "running: 1,000 records in, 990 out, 0 dead letters"
    }
    assert of("deferred", now + timedelta(minutes=1)) == {}, "what an earlier run said is no news"
    assert of("success", now - timedelta(minutes=1)) == {}
    news.close()


def test_a_watch_gives_up_a_run_without_heartbeat_and_names_the_drivers_log(desk: Desk) -> None:
    now = 0.0
    run = desk.order()
    watch, _ = desk.watch(run, heartbeat=120, clock=lambda: now)
    now = 119
    assert watch.poll() is None
    now = 238
    assert watch.poll() is None, "the first look saw a sign of life at 119"
    now = 240
    with pytest.raises(JobFailed, match="no heartbeat for 120 s") as lost:
        watch.poll()
    assert run.log in str(lost.value)


def test_a_watch_learns_that_a_newer_run_took_over(desk: Desk) -> None:
    first = desk.order()
    watch, _ = desk.watch(first)
    desk.tell(first, JobState.RUNNING, updated_ms=1)
    second = desk.order(STRANGER)
    with pytest.raises(Fenced, match=second.run):
        watch.poll()
    assert desk.desk.report(first).state is JobState.RUNNING  # its own report is not the newer run's to overwrite


def test_an_unreachable_broker_is_no_sign_of_life_but_no_end_either() -> None:
    class Unreachable:
        def report(self, job: str, run: str) -> JobReport:
            raise BrokerUnavailable("no broker answered", bootstrap_servers="nowhere:1")

    now = 0.0
    lines: list[str] = []
    run = JobRun(job="job", run="run", log="driver.log")
    watch = RunMonitor(Unreachable(), run, lines.append, heartbeat=10, clock=lambda: now)  # type: ignore[arg-type]
    assert watch.poll() is None
    assert lines == ["cannot read the report of job job: no broker answered"]
    now = 11
    with pytest.raises(JobFailed, match="no broker answered"):
        watch.poll()


def test_a_task_takes_the_run_of_an_earlier_try_only_if_its_specification_is_the_same_and_it_was_not_skipped(
    desk: Desk, connection: str
) -> None:
    fields = {"id": "string", "km": "double", "minutes": "double"}
    train = {"model": "eta", "topic": "t", "models": "m", "fields": fields, "features": ["km"], "target": "minutes"}

    def operator(**more: int) -> TrainModelOperator:
        return TrainModelOperator(
            task_id="train",
            job=desk.spec.job,
            storage="s",
            train={**train, "identity": "id", **more},
            kafka_conn_id=connection,
        )

    spec = operator().spec({})
    run = desk.order(spec=spec)
    desk.tell(run, JobState.SUCCEEDED)
    earlier = {**plain(run), "spec": digest_of(encode(spec))}
    assert operator().get_job_status(earlier, {}) == "succeeded"
    assert operator(trees=99).get_job_status(earlier, {}) == OUTDATED
    assert operator().get_job_status(plain(run), {}) == OUTDATED, "of an earlier release"
    desk.tell(run, JobState.SUCCEEDED, skipped=True)
    assert operator().get_job_status(earlier, {}) == OUTDATED


def test_an_owner_is_the_same_for_every_try_and_for_no_other_task() -> None:
    assert task_instance_key("dag", "run", "task", -1) == task_instance_key("dag", "run", "task", -1)
    assert task_instance_key("dag", "run", "task", -1) != task_instance_key("dag", "run", "task", 1)
    assert task_instance_key("a", "bc") != task_instance_key("ab", "c")


def test_progress_names_the_most_frequent_reasons() -> None:
    dead = {"GuestTrap": 5, "Rejected: negative": 3, "GuestTimeout": 2, "GuestExit": 1}
    report = JobReport(
        job="j",
        run="r",
        state=JobState.RUNNING,
        updated_ms=1,
        result={"records_in": 50, "records_out": 39, "dead_letters": dead},
    )
    assert format_report(report) == (
        "job j running: 50 records in, 39 out, 11 dead letters (5 GuestTrap, 3 Rejected: negative, 2 GuestTimeout)"
    )


@pytest.fixture
def connection(kafka: RunningKafka, monkeypatch: pytest.MonkeyPatch) -> str:
    extra = {"bootstrap.servers": kafka.bootstrap_servers}
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_JOBS", json.dumps({"conn_type": "kafka", "extra": extra}))
    return "kafka_jobs"


def trigger(run: JobRun, connection: str, **options: float) -> JobTrigger:
    made = JobTrigger(job=run.job, run=run.run, log=run.log, kafka_conn_id=connection, poll_seconds=0.05, **options)
    path, arguments = made.serialize()
    assert path == f"{JobTrigger.__module__}.{JobTrigger.__name__}"
    again = JobTrigger(**json.loads(json.dumps(arguments)))
    assert again.serialize() == made.serialize()
    return again


async def fired(waiting: JobTrigger) -> TriggerEvent:
    return await anext(aiter(waiting.run()))


def test_a_trigger_fires_when_the_run_ends(desk: Desk, connection: str) -> None:
    run = desk.order()

    async def scene() -> TriggerEvent:
        event = asyncio.ensure_future(fired(trigger(run, connection)))
        await asyncio.to_thread(desk.tell, run, JobState.RUNNING)
        await asyncio.to_thread(desk.tell, run, JobState.SUCCEEDED)
        return await event

    names = {"job": run.job, "run": run.run, "log": run.log}
    assert asyncio.run(scene()).payload == {**names, "state": "succeeded", "message": ""}


def test_a_trigger_waits_for_its_connection(desk: Desk, kafka: RunningKafka, monkeypatch: pytest.MonkeyPatch) -> None:
    run = desk.order()
    desk.tell(run, JobState.SUCCEEDED)
    extra = {"bootstrap.servers": kafka.bootstrap_servers}

    async def scene() -> TriggerEvent:
        event = asyncio.ensure_future(fired(trigger(run, "kafka_later")))
        await asyncio.sleep(0.2)
        monkeypatch.setenv("AIRFLOW_CONN_KAFKA_LATER", json.dumps({"conn_type": "kafka", "extra": extra}))
        return await event

    assert asyncio.run(scene()).payload["state"] == "succeeded"


def test_a_trigger_that_never_connects_says_after_the_heartbeats_time_that_the_run_is_lost() -> None:
    run = JobRun(job="job", run="run", log="driver.log")
    event = asyncio.run(fired(trigger(run, "no_such_connection", heartbeat_seconds=0.1)))
    assert event.payload["state"] == "lost"
    assert "the reports of job job could not be read for 0 s (run run)" in event.payload["message"]
    assert "no_such_connection" in event.payload["message"]


def test_a_trigger_fires_when_the_run_is_lost(desk: Desk, connection: str) -> None:
    event = asyncio.run(fired(trigger(desk.order(), connection, heartbeat_seconds=0.2)))
    assert event.payload["state"] == "lost"
    assert "no heartbeat" in event.payload["message"]


def test_killing_a_trigger_orders_the_stop_and_waits_for_it(desk: Desk, connection: str) -> None:
    run = desk.order()
    desk.tell(run, JobState.STOPPED)
    asyncio.run(trigger(run, connection).on_kill())
    assert desk.log.order(run.job).wanted == "stopped"


def test_a_trigger_keeps_no_secret(connection: str) -> None:
    path, arguments = trigger(JobRun(job="j", run="r", log="l"), connection).serialize()
    assert set(arguments) == {"job", "run", "log", "kafka_conn_id", "poll_seconds", "heartbeat_seconds"}
    assert "bootstrap" not in f"{path}{arguments}"
