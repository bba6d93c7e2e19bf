"""The parallel mode on a real Spark: leases that follow each other, tasks that die or freeze, drivers that follow."""

import itertools
import os
import signal
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from support.leases.lease_driver import prepare_session, running
from support.leases.lease_harness import EXACTLY_ONCE, Harnesses
from support.rounds import ROUNDS, rounds
from support.streams.transform_job import TransformJob, by_key, keyed, make_transform_job, unique, until
from wasmline import dead_letters
from wasmline.control import (
    ChangeCause,
    DeploymentTopic,
    HistoryTopic,
    JobTopic,
    StatusTopic,
    control_topics,
    read_job_events,
)
from wasmline.control.job_keys import report_key
from wasmline.documents import decode
from wasmline.errors import DeploymentPaused, Fenced, InvalidJob, ProgressLost
from wasmline.job_offsets.progress_change import JobProgress, set_progress
from wasmline.job_specs import FunctionSpec, JobReport, JobState
from wasmline.kafka import ConsumerGroups, Topics, read_to_end
from wasmline.spark.parallel import job
from wasmline.spark.timings import StreamTimings
from wasmline.testing.guests import TRAP, WRITE, guest, when_key
from wasmline.testing.guests import log as say
from wasmline.testing.kafka import RunningKafka
from wasmline.topic_partitions import TopicPartition

IDENTITY = guest()
NEXT_IDENTITY = guest(abi=2)
TRAPS_ON_X = guest(when_key("x", TRAP) + WRITE)
TRAPS_ALWAYS = guest(TRAP)

ONCE: dict[str, Any] = {"mode": "parallel", **EXACTLY_ONCE}


@pytest.fixture(scope="module")
def parallel_spark(kafka: RunningKafka, spark: SparkSession) -> SparkSession:
    """Return the session, whose Python processes know the cluster and the handlers."""
    prepare_session(spark, kafka.config)
    return spark


@pytest.fixture
def transform_job(kafka: RunningKafka, parallel_spark: SparkSession, tmp_path: Path) -> TransformJob:
    return make_transform_job(kafka.config, parallel_spark, tmp_path)


def test_a_transform_is_run_until_caught_up_and_each_record_leaves_once_in_order(transform_job: TransformJob) -> None:
    transform_job.deploy(TRAPS_ON_X)
    records = keyed(3_000)
    transform_job.produce([*records, (b"x", b"poison")])

    report = transform_job.run(**ONCE)

    out = transform_job.out()
    assert by_key((key, value) for key, value, _ in out) == by_key(records)
    expected = transform_job.expected_headers()
    assert all(headers == expected[value] for _, value, headers in out)
    [(value, headers)] = transform_job.letters()
    assert (value, headers[dead_letters.ERROR]) == (b"poison", b"GuestTrap")
    assert report.state is JobState.SUCCEEDED
    counts = [report.result[name] for name in ("records_in", "records_out", "dead_letters")]
    assert counts == [3_001, 3_000, {"GuestTrap": 1}]
    ends = Topics(transform_job.config).end_offsets(transform_job.spec.input_topic)
    assert (
        ConsumerGroups(transform_job.config).committed(f"wasmline.{transform_job.job}", transform_job.spec.input_topic)
        == ends
    )
    assert {
        status.partition: status.offset for status in StatusTopic(transform_job.config).of(transform_job.job)
    } == ends


def test_the_modes_go_on_from_each_other_without_a_gap_or_an_overlap(transform_job: TransformJob) -> None:
    transform_job.deploy(IDENTITY)
    for number, mode in enumerate(("microbatch", "parallel", "microbatch")):
        transform_job.produce(keyed(200, first=200 * number))
        assert transform_job.run(mode=mode, delivery="exactly_once").result["records_in"] == 200
    assert by_key((key, value) for key, value, _ in transform_job.out()) == by_key(keyed(600))


@pytest.mark.long
def test_progress_that_is_set_is_where_each_mode_and_delivery_continues(transform_job: TransformJob) -> None:
    transform_job.deploy(IDENTITY)
    transform_job.produce(keyed(200))
    back = 0
    for mode in ("microbatch", "parallel"):
        for delivery in ("exactly_once", "at_least_once"):
            assert transform_job.run(mode=mode, delivery=delivery).result["records_in"] == (back or 200)
            found = set_progress(transform_job.config, transform_job.job, ten_back)
            back = sum(found.topic.ends.values()) - sum(found.offsets.values())
    assert transform_job.run(mode="microbatch", delivery="at_least_once").result["records_in"] == back > 10


def ten_back(found: JobProgress) -> dict[int, int]:
    return {partition: max(0, offset - 10) for partition, offset in found.offsets.items()}


def test_a_generation_ends_the_lease_and_one_that_is_at_fault_waits_for_a_better_one(
    transform_job: TransformJob,
) -> None:
    transform_job.deploy(IDENTITY)
    with transform_job.running(**ONCE):
        transform_job.produce(keyed(500))
        until(lambda: len(transform_job.out()) == 500)
        transform_job.deploy(TRAPS_ALWAYS)
        transform_job.produce(keyed(600, first=500))
        until(lambda: DeploymentTopic(transform_job.config).get(transform_job.spec.name).state == "paused")
        until(
            lambda: {status.state for status in StatusTopic(transform_job.config).of(transform_job.job)} == {"paused"}
        )
        assert "share" in DeploymentTopic(transform_job.config).get(transform_job.spec.name).reason
        letters = len(transform_job.letters())
        assert letters < 600
        third = transform_job.deploy(NEXT_IDENTITY)
        until(lambda: len(transform_job.out()) + letters == 1_100)
    assert {status.generation for status in StatusTopic(transform_job.config).of(transform_job.job)} == {third}
    history = HistoryTopic(transform_job.config).generations(transform_job.spec.name)
    assert [event.action for event in history[1].events] == ["deploy", "pause"]
    assert history[1].events[-1].cause.run.startswith(f"{transform_job.job}/run-")
    _, at_fault, better = [offsets for each in history for offsets in each.offsets]
    assert sum(at_fault.start.offsets.values()) == 500
    assert (at_fault.end, better.end) == (better.start.offsets, None)
    values = [value for _, value, _ in transform_job.out()] + [value for value, _ in transform_job.letters()]
    assert sorted(values) == sorted(value for _, value in keyed(1_100))


def test_a_module_that_is_at_fault_ends_a_job_that_is_to_catch_up(transform_job: TransformJob) -> None:
    transform_job.deploy(TRAPS_ALWAYS, dead_letter_topic=None)
    transform_job.produce(keyed(20))
    with pytest.raises(DeploymentPaused, match="no dead-letter topic"):
        transform_job.run(**ONCE)
    transform_job.deploy(guest(say("fine", 1) + WRITE))
    assert transform_job.run(**ONCE).result["records_out"] == 20
    lines = [(line.key(), line.value()) for line in read_to_end(transform_job.config, "_wasmline.logs")]
    assert lines.count((transform_job.spec.name.encode(), b"INFO fine")) == 20


@pytest.mark.parametrize("mode", ["microbatch", pytest.param("parallel", marks=pytest.mark.long)])
def test_a_stream_that_starts_while_its_deployment_is_paused_waits_for_its_resumption(
    transform_job: TransformJob, mode: str
) -> None:
    transform_job.deploy(IDENTITY)
    transform_job.produce(keyed(20))
    deployments = DeploymentTopic(transform_job.config)
    deployments.pause(transform_job.spec.name, "lunch")
    with transform_job.running(mode=mode) as order, closing(JobTopic(transform_job.config)) as jobs:
        until(lambda: (report := jobs.report(order.job, order.run)) is not None and "(lunch)" in report.message)
        assert transform_job.out() == []
        deployments.resume(transform_job.spec.name)
        until(lambda: len(transform_job.out()) == 20)
    key = report_key(order.job, order.run)
    jobs_topic = read_to_end(transform_job.config, control_topics.JOBS)
    reports = [decode(JobReport, each.value() or b"") for each in jobs_topic if each.key() == key]
    states = [state for state, _ in itertools.groupby(each.state for each in reports)]
    assert states[-4:-1] == [JobState.RUNNING, JobState.STARTING, JobState.RUNNING]  # it has the time to plan
    deployments.pause(transform_job.spec.name, "dinner")
    with transform_job.running(mode=mode) as order, closing(JobTopic(transform_job.config)) as jobs:
        until(lambda: (report := jobs.report(order.job, order.run)) is not None and "(dinner)" in report.message)


def test_a_function_is_paused_by_its_job_and_continues_where_it_was(transform_job: TransformJob) -> None:
    source = transform_job.spec.input_topic
    Topics(transform_job.config).create(f"{source}.out", 1)
    function = FunctionSpec(function="lease_handlers:relay", topic=source)

    def out() -> list[bytes]:
        return sorted(each.value() or b"" for each in read_to_end(transform_job.config, f"{source}.out"))

    def states() -> set[str]:
        return {each.state for each in StatusTopic(transform_job.config).of(transform_job.job)}

    with closing(JobTopic(transform_job.config)) as jobs:
        with transform_job.running(function=function, **ONCE):
            transform_job.produce(keyed(50))
            until(lambda: len(out()) == 50)
            jobs.pause(transform_job.job, "the service is down", cause=ChangeCause(reason="the service is down"))
            until(lambda: states() == {"paused"})
            transform_job.produce(keyed(50, first=50))
        assert len(out()) == 50
        with pytest.raises(DeploymentPaused, match=rf"is down\): wasmline resume --job {transform_job.job}"):
            transform_job.run(function=function, **ONCE)
        with transform_job.running(function=function, **ONCE) as order:
            until(lambda: (report := jobs.report(order.job, order.run)) is not None and "is paused" in report.message)
            jobs.resume(transform_job.job)
            until(lambda: len(out()) == 100)
    assert out() == sorted(value for _, value in keyed(100))
    events = read_job_events(transform_job.config, transform_job.job)
    assert [(each.action, each.cause.reason) for each in events] == [("pause", "the service is down"), ("resume", "")]


def test_a_deployment_that_cannot_be_run_ends_the_job_by_its_name(transform_job: TransformJob) -> None:
    transform_job.deploy(IDENTITY)
    with pytest.raises(InvalidJob, match="run the job again"), transform_job.running(**ONCE) as order:  # noqa: PT012
        until(lambda: JobTopic(transform_job.config).report(transform_job.job, order.run) is not None)
        Topics(transform_job.config).create(other := unique("other"), 1)
        transform_job.deploy(IDENTITY, input_topic=other)
        until(
            lambda: (
                (report := JobTopic(transform_job.config).report(transform_job.job, order.run)) is not None
                and report.state.final
            )
        )


@pytest.mark.long
def test_leases_that_end_in_a_row_under_load_lose_and_repeat_nothing(
    parallel_spark: SparkSession, harnesses: Harnesses
) -> None:
    harness = harnesses(**EXACTLY_ONCE)
    with running(parallel_spark, harness) as ended:
        for number in rounds(max(7, 10 * ROUNDS)):
            seen = harness.seen()
            harness.produce(300)
            harness.until(lambda seen=seen: harness.seen() > seen, "the next lease")  # type: ignore[misc]
            if number % 3 == 2:
                harness.order(tasks=1 + number % 2)
            else:
                harness.jobs.withdraw(harness.job.job)
        harness.finish()
        harness.stop()
        assert ended.result(60).state is JobState.STOPPED
    assert harness.committed() == len(harness.written)


@pytest.mark.parametrize(
    "options",
    [pytest.param({}, id="at least once", marks=pytest.mark.long), pytest.param(EXACTLY_ONCE, id="exactly once")],
)
def test_a_task_that_is_killed_and_one_that_is_frozen_are_tried_again(
    parallel_spark: SparkSession, harnesses: Harnesses, options: dict[str, Any]
) -> None:
    harness = harnesses(**options)
    with running(parallel_spark, harness):
        for _ in rounds():
            for blow in (signal.SIGKILL, signal.SIGSTOP):
                harness.produce(500)
                harness.until(lambda: harness.done() == len(harness.written), "tasks at work")
                os.kill(harness.workers()[0], blow)
            harness.produce(500)
            harness.finish()
            harness.jobs.withdraw(harness.job.job)  # Spark gives up a task that fails often within one lease


def test_a_driver_that_goes_on_from_a_checkpoint_loses_and_repeats_nothing(
    parallel_spark: SparkSession, harnesses: Harnesses
) -> None:
    harness = harnesses(**EXACTLY_ONCE)
    with running(parallel_spark, harness):
        harness.produce(1_000)
        harness.until(lambda: harness.seen() > 100, "tasks at work")
        for query in parallel_spark.streams.active:
            query.stop()  # its tasks are killed where they are, and the round of leases has begun and not ended
    harness.jobs.submit(harness.job)
    harness.produce(500)
    with running(parallel_spark, harness):
        harness.finish()


@pytest.mark.long
def test_of_two_drivers_of_a_run_the_newer_one_goes_on_in_a_checkpoint_of_its_own(
    parallel_spark: SparkSession, harnesses: Harnesses
) -> None:
    harness = harnesses(**EXACTLY_ONCE)
    with running(parallel_spark, harness) as first:
        harness.produce(500)
        harness.until(lambda: harness.seen() > 100, "tasks at work")
        with running(parallel_spark, harness) as second:
            assert isinstance(first.exception(90), Fenced)
            harness.produce(500)
            harness.finish()
        assert second.result().state is JobState.STOPPED
    assert len(list(Path(harness.job.storage).glob("checkpoints/*/*"))) == 2


@pytest.mark.parametrize("counted", [*(pytest.param(each, marks=pytest.mark.long) for each in (1, 2)), 3])
def test_a_job_has_as_many_tasks_as_there_are_slots_and_reads_every_partition(
    parallel_spark: SparkSession,
    harnesses: Harnesses,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    counted: int,
) -> None:
    """The session has two slots; executors may have been counted that are lost, or not those that come later."""
    monkeypatch.setattr(job, "task_slots", lambda context: counted)
    harness = harnesses(tasks=3, **EXACTLY_ONCE)

    def reported() -> str | None:
        report = harness.jobs.report(harness.job.job, harness.job.run)
        return report.message if report is not None else None

    with running(parallel_spark, harness, StreamTimings(task_start_timeout_s=1.0)):
        harness.produce(300)
        if counted != 2:
            harness.until(lambda: "2 tasks from the next round on" in caplog.text, "as many tasks as slots")
        harness.produce(300)
        harness.finish()
        harness.until(lambda: reported() == "Spark has 2 slots for 3 tasks", "a report of the missing slot")
    assert caplog.text.count("from the next round on") == (counted != 2)


@pytest.mark.long
@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_progress_that_is_moved_between_two_runs_ends_the_second_unless_it_is_to_be_taken(
    transform_job: TransformJob, delivery: str
) -> None:
    job = {**ONCE, "delivery": delivery}
    transform_job.deploy(IDENTITY)
    transform_job.produce((b"k", b"%d" % number) for number in range(30))
    transform_job.run(**job)
    groups, group = ConsumerGroups(transform_job.config), f"wasmline.{transform_job.job}"
    [(partition, _)] = [
        each for each in groups.committed(group, transform_job.spec.input_topic).items() if each[1] == 30
    ]
    transform_job.produce((b"k", b"%d" % number) for number in range(30, 60))
    for to in (29, 31):
        groups.commit_offsets(group, {TopicPartition(transform_job.spec.input_topic, partition): to})
        with pytest.raises(ProgressLost, match=f"has {to} committed .* got to 30"):
            transform_job.run(**job)
    assert transform_job.run(**job, fail_on_moved_progress=False).result["records_in"] == 29
    assert transform_job.run(**job).result["records_in"] == 0
    assert [value for _, value, _ in transform_job.out()] == [b"%d" % number for number in range(60) if number != 30]


def test_progress_that_is_gone_ends_the_next_run(transform_job: TransformJob) -> None:
    transform_job.deploy(IDENTITY)
    transform_job.produce(keyed(30))
    transform_job.run(**ONCE)
    group = f"wasmline.{transform_job.job}"
    admin = AdminClient(transform_job.config.client())
    admin.delete_consumer_groups([group])[group].result(30)
    with pytest.raises(ProgressLost, match="has nothing committed"):
        transform_job.run(**ONCE, starting_offsets="latest")
    assert len(transform_job.out()) == 30
