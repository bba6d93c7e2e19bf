"""A deployment run by a real Spark between topics of a real broker."""

from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from support.streams.stream_stage import Stage, by_key, keyed, make_stage, unique, until
from wasmline import dead_letters
from wasmline.control import DeploymentTopic, JobDriver, JobTopic, StatusTopic
from wasmline.errors import (
    DeploymentNotFound,
    DeploymentPaused,
    Fenced,
    InvalidJob,
    JobFailed,
    TopicNotFound,
    TransformError,
)
from wasmline.job_specs import JobState
from wasmline.kafka import ConsumerGroups, Topics, read_to_end
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
def stage(kafka: RunningKafka, spark: SparkSession, tmp_path: Path) -> Stage:
    return make_stage(kafka.config, spark, tmp_path)


def test_every_record_arrives_once_in_the_order_of_its_key(stage: Stage) -> None:
    stage.deploy(IDENTITY)
    records = keyed(5_000)
    stage.produce(records)

    report = stage.run(max_offsets_per_trigger=2_000)

    out = stage.out()
    assert by_key((key, value) for key, value, _ in out) == by_key(records)
    assert all(headers == {"h": b"x"} for _, _, headers in out)
    assert report.state is JobState.SUCCEEDED
    assert report.result["records_in"] == report.result["records_out"] == 5_000
    assert len(report.result["batches"]) >= 3


def test_a_guest_finds_the_schemas_of_its_deployment(stage: Stage) -> None:
    stage.deploy(TRAPS_WITHOUT_SCHEMA_7, schemas=(Schema(id=7, definition="{}", format="json"),))
    stage.produce(keyed(20))
    assert stage.run().result["records_out"] == 20


def test_progress_is_seen_by_lag_tools_and_in_the_status_topic(stage: Stage) -> None:
    generation = stage.deploy(IDENTITY)
    stage.produce(keyed(1_000))
    stage.run()

    ends = Topics(stage.config).end_offsets(stage.spec.input_topic)
    assert ConsumerGroups(stage.config).committed(f"wasmline.{stage.job}", stage.spec.input_topic) == ends
    statuses = [status for status in StatusTopic(stage.config).all() if status.job == stage.job]
    assert {status.partition: status.offset for status in statuses} == ends
    assert {(status.generation, status.lag, status.state) for status in statuses} == {(generation, 0, "stopped")}
    assert sum(status.records_in for status in statuses) == 1_000


def test_the_next_run_goes_on_where_the_last_one_ended(stage: Stage) -> None:
    stage.deploy(IDENTITY)
    stage.produce(keyed(300))
    stage.run()
    stage.produce(keyed(200, first=300))
    report = stage.run()

    assert report.result["records_in"] == 200
    assert by_key((key, value) for key, value, _ in stage.out()) == by_key(keyed(500))


def test_a_failing_record_becomes_a_dead_letter_with_its_source_and_the_rest_goes_on(stage: Stage) -> None:
    stage.deploy(TRAPS_ON_X)
    records = keyed(500)
    records[250] = (b"x", b"poison")
    stage.produce(records)

    report = stage.run()

    [(value, headers)] = stage.letters()
    assert value == b"poison"
    assert headers[dead_letters.ERROR] == b"GuestTrap"
    assert headers[dead_letters.MODULE].decode() == stage.spec.digest
    assert headers["h"] == b"x"
    assert report.result["dead_letters"] == {"GuestTrap": 1}
    source = read_to_end(stage.config, stage.spec.input_topic)
    where = next((m.partition(), m.offset()) for m in source if m.value() == b"poison")
    assert (int(headers[dead_letters.SOURCE_PARTITION]), int(headers[dead_letters.SOURCE_OFFSET])) == where
    rest = [(key, value) for key, value in records if value != b"poison"]
    assert by_key((key, value) for key, value, _ in stage.out()) == by_key(rest)


def test_an_endless_job_stops_at_a_batch_boundary_and_loses_nothing(stage: Stage) -> None:
    stage.deploy(IDENTITY)
    stage.produce(keyed(1_000))
    with stage.running():
        until(lambda: len(stage.out()) == 1_000)
    stage.produce(keyed(500, first=1_000))
    stage.run()

    assert by_key((key, value) for key, value, _ in stage.out()) == by_key(keyed(1_500))


def test_a_running_job_switches_to_the_next_generation_between_batches(stage: Stage) -> None:
    stage.deploy(IDENTITY)
    stage.produce(keyed(100))
    with stage.running():
        until(lambda: len(stage.out()) == 100)
        second = stage.deploy(NEXT_IDENTITY)
        stage.produce(keyed(100, first=100))
        until(lambda: len(stage.out()) == 200)
    statuses = [status for status in StatusTopic(stage.config).all() if status.job == stage.job]

    assert {status.generation for status in statuses} == {second}
    assert sum(status.since_offset for status in statuses) == 100
    assert by_key((key, value) for key, value, _ in stage.out()) == by_key(keyed(200))


def test_a_replayed_batch_runs_the_generation_it_was_recorded_with(stage: Stage) -> None:
    stage.deploy(IDENTITY)
    stage.produce(keyed(50))
    stage.run()
    for commit in stage.folder.glob(f"checkpoints/{stage.job}/*/commits/*0*"):
        commit.unlink()  # as if the driver had died after the batch and before its commit
    stage.deploy(TRAPS_ON_K)

    report = stage.run()

    assert [batch["generation"] for batch in report.result["batches"]] == [1]
    assert len(stage.out()) == 100
    assert stage.letters() == []


def test_a_topic_made_anew_is_read_from_its_beginning(stage: Stage) -> None:
    stage.deploy(IDENTITY)
    stage.produce(keyed(100))
    stage.run()
    Topics(stage.config).delete([stage.spec.input_topic])
    Topics(stage.config).create(stage.spec.input_topic, 3)
    stage.produce(keyed(30))

    assert stage.run().result["records_in"] == 30


def test_a_module_that_fails_before_its_first_record_fails_its_deployment(stage: Stage) -> None:
    stage.deploy(TRAPS_AT_START)
    stage.produce(keyed(100))

    with pytest.raises(TransformError):
        stage.run()

    standing = DeploymentTopic(stage.config).get(stage.spec.name)
    assert standing.state == "paused"
    assert "before its first record" in standing.reason
    assert stage.letters() == []


def test_too_many_failures_pause_the_deployment_and_a_better_one_does_every_record(stage: Stage) -> None:
    stage.deploy(TRAPS_ALWAYS)
    records = keyed(600)
    stage.produce(records)

    with pytest.raises(DeploymentPaused, match="share"):
        stage.run()
    assert DeploymentTopic(stage.config).get(stage.spec.name).state == "paused"
    assert stage.letters() == []

    stage.deploy(IDENTITY)
    stage.run()
    assert by_key((key, value) for key, value, _ in stage.out()) == by_key(records)


def test_a_paused_deployment_is_not_run(stage: Stage) -> None:
    stage.deploy(IDENTITY)
    DeploymentTopic(stage.config).pause(stage.spec.name, "lunch")
    with pytest.raises(DeploymentPaused, match="lunch"):
        stage.run()


def test_an_unknown_transform_is_named(stage: Stage) -> None:
    with pytest.raises(DeploymentNotFound, match=stage.spec.name):
        stage.run()


def test_a_batch_after_an_idle_while_is_published_with_its_own_offsets(stage: Stage) -> None:
    stage.deploy(IDENTITY)
    groups = ConsumerGroups(stage.config)
    with stage.running():
        until(lambda: bool(StatusTopic(stage.config).of(stage.job)))
        stage.produce(keyed(100))
        until(lambda: len(stage.out()) == 100)
        ends = Topics(stage.config).end_offsets(stage.spec.input_topic)
        until(lambda: groups.committed(f"wasmline.{stage.job}", stage.spec.input_topic) == ends)
    assert sum(status.records_in for status in StatusTopic(stage.config).of(stage.job)) == 100


def test_many_small_batches_of_failures_pause_the_deployment_too(stage: Stage) -> None:
    stage.deploy(TRAPS_ALWAYS)
    stage.produce(keyed(600))
    with pytest.raises(DeploymentPaused):
        stage.run(max_offsets_per_trigger=60)
    assert DeploymentTopic(stage.config).get(stage.spec.name).state == "paused"
    assert len(stage.letters()) < 300


def test_without_a_dead_letter_topic_a_bad_record_fails_the_job_until_a_better_version_comes(stage: Stage) -> None:
    stage.deploy(TRAPS_ON_X, dead_letter_topic=None)
    stage.produce([*keyed(50), (b"x", b"poison")])
    with pytest.raises(DeploymentPaused, match="GuestTrap"):
        stage.run()

    stage.deploy(IDENTITY)
    stage.run()
    assert by_key((key, value) for key, value, _ in stage.out())[b"x"] == [b"poison"]


def test_a_batch_that_cannot_be_written_fails_the_job_with_its_cause(stage: Stage) -> None:
    compacted = unique("compacted")
    Topics(stage.config).create(compacted, 3, config={"cleanup.policy": "compact"})
    stage.deploy(IDENTITY, output_topics=(compacted,))
    stage.produce([(None, b"a compacted topic wants a key")] * 10)
    with pytest.raises(JobFailed, match=r"(?i)without key"):
        stage.run()
    assert {status.state for status in StatusTopic(stage.config).of(stage.job)} == {"failed"}


def test_a_topic_of_small_messages_is_written_in_batches_that_it_takes(stage: Stage) -> None:
    Topics(stage.config).create(small := unique("small"), 3, config={"max.message.bytes": "1000"})
    stage.deploy(IDENTITY, output_topics=(small,))
    stage.produce(keyed(2_000))
    assert stage.run().result["records_out"] == 2_000
    assert by_key((key, value) for key, value, _ in stage.out()) == by_key(keyed(2_000))


@pytest.mark.parametrize("gone", [1, 2], ids=["output", "dead letters"])
def test_a_topic_that_is_gone_is_named_before_a_record_is_read(stage: Stage, gone: int) -> None:
    stage.deploy(IDENTITY)
    stage.produce(keyed(10))
    topic = stage.spec.topics[gone]
    Topics(stage.config).delete([topic])
    with pytest.raises(TopicNotFound, match=topic):
        stage.run()
    assert DeploymentTopic(stage.config).get(stage.spec.name).state == "running"
    assert StatusTopic(stage.config).of(stage.job) == []


def test_a_running_job_ends_at_a_generation_whose_topic_is_gone_and_its_records_wait(stage: Stage) -> None:
    stage.deploy(IDENTITY)
    with pytest.raises(TopicNotFound) as caught, stage.running() as order:  # noqa: PT012
        until(lambda: JobTopic(stage.config).report(stage.job, order.run) is not None)
        out, gone = stage.spec.output_topics[0], unique("gone")
        Topics(stage.config).create(gone, 1)
        stage.deploy(IDENTITY, output_topics=(out, gone))
        Topics(stage.config).delete([gone])
        stage.produce(keyed(50))
        until(
            lambda: (report := JobTopic(stage.config).report(stage.job, order.run)) is not None and report.state.final
        )
    assert caught.value.topic == gone

    stage.deploy(IDENTITY, output_topics=(out,))
    stage.run()
    assert by_key((key, value) for key, value, _ in stage.out()) == by_key(keyed(50))


def test_a_generation_with_another_input_topic_is_not_run_on_this_one(stage: Stage) -> None:
    stage.deploy(IDENTITY)
    stage.produce(keyed(50))
    with pytest.raises(InvalidJob, match="run the job again"), stage.running() as order:  # noqa: PT012
        until(lambda: len(stage.out()) == 50)
        other = unique("other")
        Topics(stage.config).create(other, 1)
        source = stage.spec.input_topic
        stage.deploy(IDENTITY, input_topic=other)
        stage.spec = replace(stage.spec, input_topic=source)
        stage.produce(keyed(50, first=50))
        until(
            lambda: (report := JobTopic(stage.config).report(stage.job, order.run)) is not None and report.state.final
        )
    assert len(stage.out()) == 50


def test_a_newer_run_takes_over_from_the_older_and_no_record_is_lost(stage: Stage) -> None:
    stage.deploy(IDENTITY)
    stage.produce(keyed(200))
    with stage.running():
        until(lambda: len(stage.out()) == 200)
        with stage.running():
            stage.produce(keyed(200, first=200))
            until(lambda: len(stage.out()) >= 400)
    assert by_key((key, value) for key, value, _ in stage.out()) == by_key(keyed(400))
    assert len(list(stage.folder.glob("checkpoints/*/*"))) == 1  # the older one had left it


def test_a_driver_that_was_fenced_ends_at_its_next_batch(stage: Stage) -> None:
    stage.deploy(IDENTITY)
    with pytest.raises(Fenced), stage.running() as order:  # noqa: PT012
        until(lambda: JobTopic(stage.config).report(stage.job, order.run) is not None)
        newest = JobTopic(stage.config).last_batch(stage.job)
        assert newest is not None
        rival = JobDriver(stage.config, stage.job)
        rival.claim(replace(newest, driver="rival"))
        rival.close()
        stage.produce(keyed(10))
        until(
            lambda: (report := JobTopic(stage.config).report(stage.job, order.run)) is not None and report.state.final
        )
    assert stage.out() == []
