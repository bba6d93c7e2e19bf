"""A deployment run by a real Spark between topics of a real broker."""

import random
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from support.streams.transform_job import TransformJob, by_key, keyed, make_transform_job, unique, until
from wasmline import dead_letters
from wasmline.control import ClaimProducer, DeploymentTopic, HistoryTopic, JobTopic, StatusTopic
from wasmline.errors import (
    DeploymentNotFound,
    DeploymentPaused,
    Fenced,
    InvalidJob,
    JobFailed,
    ReleaseMismatch,
    TopicNotFound,
    TransformError,
)
from wasmline.job_offsets.resume_plan import takeover_claim
from wasmline.job_specs import JobState
from wasmline.kafka import ConsumerGroups, Topics, read_to_end
from wasmline.spark import task_release
from wasmline.spark.main import make_stream_job
from wasmline.testing.guests import SCRATCH, TRAP, WRITE, guest, require, when_key
from wasmline.testing.kafka import RunningKafka
from wasmline.wasm import Schema

IDENTITY = guest()
NEXT_IDENTITY = guest(abi=2)
TRAPS_ON_X = guest(when_key("x", TRAP) + WRITE)
TRAPS_ON_K = guest(when_key("k", TRAP) + WRITE)
TRAPS_ALWAYS = guest(TRAP)
TRAPS_WITHOUT_SCHEMA_7 = guest(
    require(f"(call $get_schema_definition_len (i32.const 7) (i32.const {SCRATCH}))", 0) + WRITE
)
TRAPS_AT_START = guest(on_start=TRAP)


@pytest.fixture
def transform_job(kafka: RunningKafka, spark: SparkSession, tmp_path: Path) -> TransformJob:
    return make_transform_job(kafka.config, spark, tmp_path)


def test_every_record_arrives_once_in_the_order_of_its_key(transform_job: TransformJob) -> None:
    transform_job.deploy(IDENTITY)
    records = keyed(5_000)
    transform_job.produce(records)

    report = transform_job.run(max_offsets_per_trigger=2_000)

    out = transform_job.out()
    assert by_key((key, value) for key, value, _ in out) == by_key(records)
    expected = transform_job.expected_headers()
    assert all(headers == expected[value] for _, value, headers in out)
    assert report.state is JobState.SUCCEEDED
    assert report.result["records_in"] == report.result["records_out"] == 5_000
    assert len(report.result["batches"]) >= 3


def test_a_guest_finds_the_schemas_of_its_deployment(transform_job: TransformJob) -> None:
    transform_job.deploy(TRAPS_WITHOUT_SCHEMA_7, schemas=(Schema(id=7, definition="{}", format="json"),))
    transform_job.produce(keyed(20))
    assert transform_job.run().result["records_out"] == 20


def test_progress_is_seen_by_lag_tools_and_in_the_status_topic(transform_job: TransformJob) -> None:
    generation = transform_job.deploy(IDENTITY)
    transform_job.produce(keyed(1_000))
    transform_job.run()

    ends = Topics(transform_job.config).end_offsets(transform_job.spec.input_topic)
    assert (
        ConsumerGroups(transform_job.config).committed(f"wasmline.{transform_job.job}", transform_job.spec.input_topic)
        == ends
    )
    statuses = [status for status in StatusTopic(transform_job.config).all() if status.job == transform_job.job]
    assert {status.partition: status.offset for status in statuses} == ends
    assert {(status.generation, status.lag, status.state) for status in statuses} == {(generation, 0, "stopped")}
    assert sum(status.records_in for status in statuses) == 1_000


def test_the_next_run_goes_on_where_the_last_one_ended(transform_job: TransformJob) -> None:
    transform_job.deploy(IDENTITY)
    transform_job.produce(keyed(300))
    transform_job.run()
    transform_job.produce(keyed(200, first=300))
    report = transform_job.run()

    assert report.result["records_in"] == 200
    assert by_key((key, value) for key, value, _ in transform_job.out()) == by_key(keyed(500))


def test_a_failing_record_becomes_a_dead_letter_with_its_source_and_the_rest_goes_on(
    transform_job: TransformJob,
) -> None:
    transform_job.deploy(TRAPS_ON_X)
    records = keyed(500)
    records[250] = (b"x", b"poison")
    transform_job.produce(records)

    report = transform_job.run()

    [(value, headers)] = transform_job.letters()
    assert value == b"poison"
    assert headers[dead_letters.ERROR] == b"GuestTrap"
    assert headers[dead_letters.MODULE].decode() == transform_job.spec.digest
    assert headers["h"] == b"x"
    assert report.result["dead_letters"] == {"GuestTrap": 1}
    source = read_to_end(transform_job.config, transform_job.spec.input_topic)
    where = next((m.partition(), m.offset()) for m in source if m.value() == b"poison")
    assert (int(headers[dead_letters.SOURCE_PARTITION]), int(headers[dead_letters.SOURCE_OFFSET])) == where
    rest = [(key, value) for key, value in records if value != b"poison"]
    assert by_key((key, value) for key, value, _ in transform_job.out()) == by_key(rest)


def test_an_endless_job_stops_at_a_batch_boundary_and_loses_nothing(transform_job: TransformJob) -> None:
    transform_job.deploy(IDENTITY)
    transform_job.produce(keyed(1_000))
    with transform_job.running():
        until(lambda: len(transform_job.out()) == 1_000)
    transform_job.produce(keyed(500, first=1_000))
    transform_job.run()

    assert by_key((key, value) for key, value, _ in transform_job.out()) == by_key(keyed(1_500))


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_an_executor_of_another_release_refuses_the_tasks_in_one_line(
    transform_job: TransformJob, monkeypatch: pytest.MonkeyPatch, delivery: str
) -> None:
    transform_job.deploy(IDENTITY)
    transform_job.produce(keyed(20))
    monkeypatch.setattr(task_release, "RELEASE", "0.0.9")
    with pytest.raises(ReleaseMismatch, match=r"the driver has Wasmline 0\.0\.9, and the executor on .* has"):
        transform_job.run(delivery=delivery)
    monkeypatch.undo()
    transform_job.run(delivery=delivery)
    assert len(transform_job.out()) == 20


def test_a_running_job_switches_to_the_next_generation_between_batches(transform_job: TransformJob) -> None:
    transform_job.deploy(IDENTITY)
    first = transform_job.spec
    transform_job.produce(keyed(600))
    with transform_job.running():
        until(lambda: len(transform_job.out()) == 600)
        second = transform_job.deploy(NEXT_IDENTITY, version="1.1.0")
        transform_job.produce(keyed(600, first=600))
        until(lambda: len(transform_job.out()) == 1_200)
    statuses = [status for status in StatusTopic(transform_job.config).all() if status.job == transform_job.job]
    out = transform_job.out()

    assert {status.generation for status in statuses} == {second}
    assert sum(status.since_offset for status in statuses) == 600
    assert sum(status.generation_records for status in statuses) == 600
    assert {status.host for status in statuses} == {socket.gethostname()}
    assert by_key((key, value) for key, value, _ in out) == by_key(keyed(1_200))
    since = {status.partition: status.since_offset for status in statuses}
    expected = transform_job.expected_headers(
        lambda partition, offset: first if offset < since[partition] else transform_job.spec
    )
    for _, value, headers in random.Random(7).sample(out, 1_000):
        assert headers == expected[value]
    assert [b"@1.1.0 " in each["wasmline.provenance"] for each in expected.values()].count(True) == 600

    history = HistoryTopic(transform_job.config).generations(transform_job.spec.name)
    before, after = [offsets for each in history for offsets in each.offsets]
    assert (before.start.offsets, before.end, after.start.offsets, after.end) == (
        {0: 0, 1: 0, 2: 0},
        since,
        since,
        None,
    )
    assert before.report is not None
    assert before.report.result["records_in"] == 600


def test_a_replayed_batch_runs_the_generation_it_was_recorded_with(transform_job: TransformJob) -> None:
    transform_job.deploy(IDENTITY)
    transform_job.produce(keyed(50))
    transform_job.run()
    for commit in transform_job.folder.glob(f"checkpoints/{transform_job.job}/*/commits/*0*"):
        commit.unlink()  # as if the driver had died after the batch and before its commit
    transform_job.deploy(TRAPS_ON_K)

    report = transform_job.run()

    assert [batch["generation"] for batch in report.result["batches"]] == [1]
    assert len(transform_job.out()) == 100
    assert transform_job.letters() == []


def test_a_topic_made_anew_is_read_from_its_beginning(transform_job: TransformJob) -> None:
    transform_job.deploy(IDENTITY)
    transform_job.produce(keyed(100))
    transform_job.run()
    Topics(transform_job.config).delete([transform_job.spec.input_topic])
    Topics(transform_job.config).create(transform_job.spec.input_topic, 3)
    transform_job.produce(keyed(30))

    assert transform_job.run().result["records_in"] == 30


def test_a_module_that_fails_before_its_first_record_fails_its_deployment(transform_job: TransformJob) -> None:
    transform_job.deploy(TRAPS_AT_START)
    transform_job.produce(keyed(100))

    with pytest.raises(TransformError):
        transform_job.run()

    standing = DeploymentTopic(transform_job.config).get(transform_job.spec.name)
    assert standing.state == "paused"
    assert "before its first record" in standing.reason
    assert transform_job.letters() == []


def test_too_many_failures_pause_the_deployment_and_a_better_one_does_every_record(transform_job: TransformJob) -> None:
    transform_job.deploy(TRAPS_ALWAYS)
    records = keyed(600)
    transform_job.produce(records)

    with pytest.raises(DeploymentPaused, match="share"):
        transform_job.run()
    assert DeploymentTopic(transform_job.config).get(transform_job.spec.name).state == "paused"
    assert transform_job.letters() == []

    transform_job.deploy(IDENTITY)
    transform_job.run()
    assert by_key((key, value) for key, value, _ in transform_job.out()) == by_key(records)


def test_a_paused_deployment_is_not_run(transform_job: TransformJob) -> None:
    transform_job.deploy(IDENTITY)
    DeploymentTopic(transform_job.config).pause(transform_job.spec.name, "lunch")
    with pytest.raises(DeploymentPaused, match="lunch"):
        transform_job.run()


def test_an_unknown_transform_is_named(transform_job: TransformJob) -> None:
    with pytest.raises(DeploymentNotFound, match=transform_job.spec.name):
        transform_job.run()


def test_a_batch_after_an_idle_while_is_published_with_its_own_offsets(transform_job: TransformJob) -> None:
    transform_job.deploy(IDENTITY)
    groups = ConsumerGroups(transform_job.config)
    with transform_job.running():
        until(lambda: bool(StatusTopic(transform_job.config).of(transform_job.job)))
        transform_job.produce(keyed(100))
        until(lambda: len(transform_job.out()) == 100)
        ends = Topics(transform_job.config).end_offsets(transform_job.spec.input_topic)
        until(lambda: groups.committed(f"wasmline.{transform_job.job}", transform_job.spec.input_topic) == ends)
    assert sum(status.records_in for status in StatusTopic(transform_job.config).of(transform_job.job)) == 100


def test_many_small_batches_of_failures_pause_the_deployment_too(transform_job: TransformJob) -> None:
    transform_job.deploy(TRAPS_ALWAYS)
    transform_job.produce(keyed(600))
    with pytest.raises(DeploymentPaused):
        transform_job.run(max_offsets_per_trigger=60)
    assert DeploymentTopic(transform_job.config).get(transform_job.spec.name).state == "paused"
    assert len(transform_job.letters()) < 300


def test_without_a_dead_letter_topic_a_bad_record_fails_the_job_until_a_better_version_comes(
    transform_job: TransformJob,
) -> None:
    transform_job.deploy(TRAPS_ON_X, dead_letter_topic=None)
    transform_job.produce([*keyed(50), (b"x", b"poison")])
    with pytest.raises(DeploymentPaused, match="GuestTrap"):
        transform_job.run()

    transform_job.deploy(IDENTITY)
    transform_job.run()
    assert by_key((key, value) for key, value, _ in transform_job.out())[b"x"] == [b"poison"]


def test_a_batch_that_cannot_be_written_fails_the_job_with_its_cause(transform_job: TransformJob) -> None:
    compacted = unique("compacted")
    Topics(transform_job.config).create(compacted, 3, config={"cleanup.policy": "compact"})
    transform_job.deploy(IDENTITY, output_topics=(compacted,))
    transform_job.produce([(None, b"a compacted topic wants a key")] * 10)
    with pytest.raises(JobFailed, match=rf"{compacted} rejects an output: .*validate record"):
        transform_job.run()
    assert {status.state for status in StatusTopic(transform_job.config).of(transform_job.job)} == {"failed"}


def test_a_topic_of_small_messages_is_written_in_batches_that_it_takes(transform_job: TransformJob) -> None:
    Topics(transform_job.config).create(small := unique("small"), 3, config={"max.message.bytes": "1000"})
    transform_job.deploy(IDENTITY, output_topics=(small,))
    transform_job.produce(keyed(2_000))
    assert transform_job.run().result["records_out"] == 2_000
    assert by_key((key, value) for key, value, _ in transform_job.out()) == by_key(keyed(2_000))


@pytest.mark.parametrize("gone", [1, 2], ids=["output", "dead letters"])
def test_a_topic_that_is_gone_is_named_before_a_record_is_read(transform_job: TransformJob, gone: int) -> None:
    transform_job.deploy(IDENTITY)
    transform_job.produce(keyed(10))
    topic = transform_job.spec.topics[gone]
    Topics(transform_job.config).delete([topic])
    with pytest.raises(TopicNotFound, match=topic):
        transform_job.run()
    assert DeploymentTopic(transform_job.config).get(transform_job.spec.name).state == "running"
    assert StatusTopic(transform_job.config).of(transform_job.job) == []


def test_a_running_job_ends_at_a_generation_whose_topic_is_gone_and_its_records_wait(
    transform_job: TransformJob,
) -> None:
    transform_job.deploy(IDENTITY)
    with pytest.raises(TopicNotFound) as caught, transform_job.running() as order:  # noqa: PT012
        until(lambda: JobTopic(transform_job.config).report(transform_job.job, order.run) is not None)
        out, gone = transform_job.spec.output_topics[0], unique("gone")
        Topics(transform_job.config).create(gone, 1)
        transform_job.deploy(IDENTITY, output_topics=(out, gone))
        Topics(transform_job.config).delete([gone])
        transform_job.produce(keyed(50))
        until(
            lambda: (
                (report := JobTopic(transform_job.config).report(transform_job.job, order.run)) is not None
                and report.state.final
            )
        )
    assert caught.value.topic == gone

    transform_job.deploy(IDENTITY, output_topics=(out,))
    transform_job.run()
    assert by_key((key, value) for key, value, _ in transform_job.out()) == by_key(keyed(50))


def test_a_generation_with_another_input_topic_is_not_run_on_this_one(transform_job: TransformJob) -> None:
    transform_job.deploy(IDENTITY)
    transform_job.produce(keyed(50))
    with pytest.raises(InvalidJob, match="run the job again"), transform_job.running() as order:  # noqa: PT012
        until(lambda: len(transform_job.out()) == 50)
        other = unique("other")
        Topics(transform_job.config).create(other, 1)
        source = transform_job.spec.input_topic
        transform_job.deploy(IDENTITY, input_topic=other)
        transform_job.spec = replace(transform_job.spec, input_topic=source)
        transform_job.produce(keyed(50, first=50))
        until(
            lambda: (
                (report := JobTopic(transform_job.config).report(transform_job.job, order.run)) is not None
                and report.state.final
            )
        )
    assert len(transform_job.out()) == 50


@pytest.mark.long
def test_a_newer_run_takes_over_from_the_older_and_no_record_is_lost(transform_job: TransformJob) -> None:
    transform_job.deploy(IDENTITY)
    transform_job.produce(keyed(200))
    with transform_job.running():
        until(lambda: len(transform_job.out()) == 200)
        with transform_job.running():
            transform_job.produce(keyed(200, first=200))
            until(lambda: len(transform_job.out()) >= 400)
    assert by_key((key, value) for key, value, _ in transform_job.out()) == by_key(keyed(400))
    assert len(list(transform_job.folder.glob("checkpoints/*/*"))) == 1  # the older one had left it


def test_a_driver_that_stood_still_until_another_one_of_its_run_had_the_job_ends_and_leaves_it_to_that(
    transform_job: TransformJob,
) -> None:
    transform_job.deploy(IDENTITY)
    order = transform_job.order(trigger_interval="200 milliseconds")
    assert transform_job.spark is not None
    assert order.stream is not None
    with closing(JobTopic(transform_job.config)) as jobs:
        frozen = make_stream_job(transform_job.spark, transform_job.config, order, order.stream)
        taken = takeover_claim(order, order.stream, "newer", None)
        with closing(ClaimProducer(transform_job.config, transform_job.job)) as newer:
            newer.claim(taken)
        before = jobs.report(transform_job.job, order.run)
        with pytest.raises(Fenced):
            frozen.run()
        assert jobs.last_claim(transform_job.job) == taken
        assert jobs.report(transform_job.job, order.run) == before


def test_a_driver_that_was_fenced_ends_at_its_next_batch_and_leaves_the_report_of_its_run(
    transform_job: TransformJob,
) -> None:
    transform_job.deploy(IDENTITY)
    order = transform_job.order(trigger_interval="200 milliseconds")
    assert transform_job.spark is not None
    assert order.stream is not None
    with closing(JobTopic(transform_job.config)) as jobs, ThreadPoolExecutor(1) as thread:
        outcome = thread.submit(make_stream_job(transform_job.spark, transform_job.config, order, order.stream).run)
        until(lambda: jobs.last_claim(transform_job.job) is not None)
        newest = jobs.last_claim(transform_job.job)
        assert newest is not None
        with closing(ClaimProducer(transform_job.config, transform_job.job)) as rival:
            rival.claim(replace(newest, driver="rival"))
        transform_job.produce(keyed(10))
        with pytest.raises(Fenced):
            outcome.result(90)
        report = jobs.report(transform_job.job, order.run)
        assert report is not None
        assert not report.state.final
    assert transform_job.out() == []
