"""Micro-batches in transactions: whatever happens to a run, each record's outputs are there once, in order."""

import shutil
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]
from pyspark.sql import SparkSession

from support.streams.stream_stage import Stage, by_key, keyed, make_stage, unique, until
from wasmline.control import DeploymentTopic, DriverClaim, JobDriver
from wasmline.errors import DeploymentPaused, GroupInUse, JobFailed, ProgressLost
from wasmline.job_specs import JobState
from wasmline.kafka import ConsumerGroups, Topics, produce_all, producer, read_to_end
from wasmline.kafka.committed_offset_store import LibrdkafkaOffsetStore
from wasmline.offset_maps.codec import encode
from wasmline.testing.guests import TRAP, WRITE, guest, when_key
from wasmline.testing.kafka import RunningKafka
from wasmline.topic_partitions import CommittedOffset, TopicPartition

IDENTITY = guest()
TRAPS_ON_X = guest(when_key("x", TRAP) + WRITE)
TRAPS_ON_K = guest(when_key("k", TRAP) + WRITE)
COUNTER = "(i32.const 200)"
SLOW = guest(
    f"(i32.store {COUNTER} (i32.const 30000))"
    f"(loop $wait (i32.store {COUNTER} (i32.sub (i32.load {COUNTER}) (i32.const 1)))"
    f" (br_if $wait (i32.load {COUNTER})))" + WRITE
)


@pytest.fixture
def stage(kafka: RunningKafka, spark: SparkSession, tmp_path: Path) -> Stage:
    return make_stage(kafka.config, spark, tmp_path)


def outputs(stage: Stage) -> dict[bytes, list[bytes]]:
    return by_key((key, value) for key, value, _ in stage.out())


def times(topic: str, stage: Stage) -> set[tuple[bytes | None, int]]:
    return {(message.value(), message.timestamp()[1]) for message in read_to_end(stage.config, topic)}


def progress(stage: Stage) -> dict[int, int]:
    return ConsumerGroups(stage.config).committed(f"wasmline.{stage.job}", stage.spec.input_topic)


def commit(stage: Stage, offsets: dict[int, CommittedOffset]) -> None:
    settings = {"group.id": f"wasmline.{stage.job}", "enable.auto.commit": "false"}
    consumer = Consumer(stage.config.client(**settings))
    topic = stage.spec.input_topic
    LibrdkafkaOffsetStore().commit(
        consumer, {TopicPartition(topic, partition): each for partition, each in offsets.items()}
    )
    consumer.close()


def checkpoint(stage: Stage) -> Path:
    [folder] = (stage.folder / "checkpoints" / stage.job).iterdir()
    return folder


def test_every_record_arrives_once_in_the_order_of_its_key(stage: Stage) -> None:
    stage.deploy(TRAPS_ON_X)
    records = keyed(5_000)
    stage.produce([*records, (b"x", b"poison")])

    report = stage.run(delivery="exactly_once", max_offsets_per_trigger=2_000)

    assert outputs(stage) == by_key(records)
    assert all(headers == {"h": b"x"} for _, _, headers in stage.out())
    assert times(stage.spec.output_topics[0], stage) < times(stage.spec.input_topic, stage)  # the poison has one too
    assert [value for value, _ in stage.letters()] == [b"poison"]
    assert report.state is JobState.SUCCEEDED
    assert report.result["records_in"] == report.result["records_out"] + 1 == 5_001
    assert len(report.result["batches"]) >= 3
    assert progress(stage) == Topics(stage.config).end_offsets(stage.spec.input_topic)


def test_a_batch_that_is_replayed_repeats_nothing(stage: Stage) -> None:
    stage.deploy(IDENTITY)
    stage.produce(keyed(300))
    stage.run(delivery="exactly_once")
    for commit in checkpoint(stage).glob("commits/*0*"):
        commit.unlink()  # as if the driver had died after the tasks' commits and before Spark's
    stage.deploy(TRAPS_ON_K)

    report = stage.run(delivery="exactly_once")

    assert all(begin == end for batch in report.result["batches"] for begin, end in batch["offsets"].values())
    assert report.result["records_in"] == 0
    assert outputs(stage) == by_key(keyed(300))
    assert stage.letters() == []


def test_a_checkpoint_that_is_rolled_back_or_lost_repeats_nothing(stage: Stage) -> None:
    stage.deploy(IDENTITY)
    stage.produce(keyed(900))
    assert len(stage.run(delivery="exactly_once", max_offsets_per_trigger=300).result["batches"]) >= 3
    for log in ("offsets", "commits"):
        for entry in (checkpoint(stage) / log).glob("*[1-9]*"):
            entry.unlink()
    stage.produce(keyed(100, first=900))
    stage.run(delivery="exactly_once")
    assert outputs(stage) == by_key(keyed(1_000))

    shutil.rmtree(stage.folder / "checkpoints")
    stage.produce(keyed(100, first=1_000))
    assert stage.run(delivery="exactly_once").result["records_in"] == 100
    assert outputs(stage) == by_key(keyed(1_100))


def test_progress_that_is_gone_or_moved_stops_the_job_until_it_is_set_right(stage: Stage) -> None:
    stage.deploy(IDENTITY)
    stage.produce(keyed(300))
    stage.run(delivery="exactly_once")
    ends, group = progress(stage), f"wasmline.{stage.job}"
    admin = AdminClient(stage.config.client())
    admin.delete_consumer_groups([group])[group].result(30)
    stage.produce(keyed(200, first=300))
    with pytest.raises(ProgressLost, match="where the job has been before") as caught:
        stage.run(delivery="exactly_once")
    assert caught.value.offset is None

    for moved in (-1, 1):
        commit(stage, {partition: CommittedOffset(end + moved) for partition, end in ends.items()})
        with pytest.raises(ProgressLost, match="the job got to") as caught:
            stage.run(delivery="exactly_once")
        assert caught.value.offset == ends[caught.value.partition] + moved
    assert outputs(stage) == by_key(keyed(300))

    commit(stage, {partition: CommittedOffset(end) for partition, end in ends.items()})
    stage.run(delivery="exactly_once")
    assert outputs(stage) == by_key(keyed(500))


def test_runs_of_either_delivery_follow_each_other_without_a_gap_or_an_overlap(stage: Stage) -> None:
    stage.deploy(IDENTITY)
    deliveries = ("at_least_once", "exactly_once", "at_least_once", "exactly_once", "exactly_once")
    for number, delivery in enumerate(deliveries):
        stage.produce(keyed(100, first=100 * number))
        assert stage.run(delivery=delivery).result["records_in"] == 100
    assert outputs(stage) == by_key(keyed(500))


@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])
def test_a_run_after_the_parallel_mode_goes_on_from_the_groups_progress(stage: Stage, delivery: str) -> None:
    stage.deploy(IDENTITY)
    stage.produce(keyed(600))
    stage.run(delivery=delivery)
    stage.produce(keyed(600, first=600))
    begins, ends = progress(stage), Topics(stage.config).end_offsets(stage.spec.input_topic)
    commit(  # as the parallel mode does, which finished two of the first ten and every one that follows up to the 50th
        stage,
        {each: CommittedOffset(at, encode(at, at + 50, [at, *range(at + 3, at + 10)])) for each, at in begins.items()},
    )
    topic = Topics(stage.config).describe(stage.spec.input_topic)
    claim = DriverClaim(
        run=unique("run"), mode="parallel", checkpoint=f"{stage.folder}/{topic.id}-parallel", batch_id=3,
        deployment=DeploymentTopic(stage.config).get(stage.spec.name), partitions=3,
    )  # fmt: skip
    driver = JobDriver(stage.config, stage.job)
    driver.claim(claim)
    driver.close()

    report = stage.run(delivery=delivery)

    done_before = 3 * (51 - 8) if delivery == "exactly_once" else 0
    assert report.result["records_in"] == 600 - done_before
    assert progress(stage) == ends


def workers() -> list[psutil.Process]:
    """Return Spark's Python workers, which are children of its daemon."""
    children = [each for each in psutil.Process().children(recursive=True) if each.name().startswith("python")]
    pids = {each.pid for each in children}
    return [each for each in children if each.ppid() in pids]


def test_a_worker_that_is_killed_in_its_transaction_leaves_nothing_behind(stage: Stage) -> None:
    stage.deploy(SLOW)
    records = keyed(36_000)
    stage.produce(records)
    target = stage.spec.output_topics[0]
    with ThreadPoolExecutor(1) as thread:
        run = thread.submit(stage.run, delivery="exactly_once")
        topics = Topics(stage.config)
        until(lambda: run.done() or any(topics.written_offsets(target).values()))
        killed = workers()
        assert killed
        for worker in killed:
            worker.send_signal(signal.SIGKILL)
        assert not run.done()
        run.result(120)  # Spark has tried the tasks again
    assert outputs(stage) == by_key(records)


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_an_output_that_its_topic_does_not_take_is_a_dead_letter_and_the_batch_goes_on(
    stage: Stage, delivery: str
) -> None:
    Topics(stage.config).create(tight := unique("tight"), 3, config={"max.message.bytes": "20000"})
    stage.deploy(IDENTITY, output_topics=(tight,))
    stage.produce([*keyed(10), (b"k", b"x" * 50_000)])
    assert stage.run(delivery=delivery).result["dead_letters"] == {"RecordTooLarge": 1}
    assert outputs(stage) == by_key(keyed(10))
    assert [value for value, _ in stage.letters()] == [b"x" * 50_000]


def test_an_output_whose_time_its_topic_refuses_fails_the_run(stage: Stage) -> None:
    recent = unique("recent")
    Topics(stage.config).create(recent, 1, config={"message.timestamp.before.max.ms": "3600000"})
    stage.deploy(IDENTITY, output_topics=(recent,))
    rows = [(b"k", b"old", None, int(time.time() * 1_000) - 7_200_000)]
    produce_all(stage.config, stage.spec.input_topic, rows)
    with pytest.raises(JobFailed, match=r"(?i)timestamp"):
        stage.run(delivery="exactly_once")
    assert stage.letters() == []
    assert sum(progress(stage).values()) == 0


def test_a_run_that_failed_in_one_partition_does_the_rest_only(stage: Stage) -> None:
    stage.deploy(TRAPS_ON_X, dead_letter_topic=None)
    records = [*keyed(300), (b"x", b"poison")]
    stage.produce(records)
    with pytest.raises(DeploymentPaused, match="GuestTrap"):
        stage.run(delivery="exactly_once")

    stage.deploy(IDENTITY)
    stage.run(delivery="exactly_once")
    assert outputs(stage) == by_key(records)


def test_offsets_that_are_no_records_are_progress_too(stage: Stage) -> None:
    stage.deploy(IDENTITY)
    writer = producer(stage.config, **{"transactional.id": unique("feed")})
    writer.init_transactions(30)
    for number in range(4):  # every other transaction is aborted, so that ranges end, begin and consist of nothing
        writer.begin_transaction()
        for key, value in keyed(60, first=60 * number):
            writer.produce(stage.spec.input_topic, value, key)
        writer.flush(30)
        (writer.abort_transaction if number % 2 else writer.commit_transaction)(30)
        stage.run(delivery="exactly_once")
    assert outputs(stage) == by_key([*keyed(60), *keyed(60, first=120)])


def test_partitions_that_are_added_have_progress_from_their_beginning(stage: Stage) -> None:
    stage.deploy(IDENTITY)
    stage.produce(keyed(100))
    stage.run(delivery="exactly_once")
    topic = stage.spec.input_topic
    admin = AdminClient(stage.config.client())
    admin.create_partitions([NewPartitions(topic, 5)])[topic].result(30)
    until(lambda: Topics(stage.config).describe(topic).partitions == 5)
    stage.produce(keyed(500, first=100))
    stage.run(delivery="exactly_once")
    assert sorted(value for _, value, _ in stage.out()) == sorted(value for _, value in keyed(600))
    assert progress(stage) == Topics(stage.config).end_offsets(topic)


def test_a_topic_made_anew_is_read_from_its_beginning(stage: Stage) -> None:
    stage.deploy(IDENTITY)
    stage.produce(keyed(100))
    stage.run(delivery="exactly_once")
    Topics(stage.config).delete([stage.spec.input_topic])
    Topics(stage.config).create(stage.spec.input_topic, 3)
    stage.produce(keyed(130, first=100))

    stage.run(delivery="exactly_once")
    assert outputs(stage) == by_key(keyed(230))


@pytest.mark.parametrize("to", [5, 60], ids=["back", "ahead"])
def test_progress_that_is_moved_between_two_batches_ends_the_run(stage: Stage, to: int) -> None:
    """Each batch finds what the last one left, or the records between would be left out as if they were done."""
    stage.deploy(IDENTITY)
    with pytest.raises(ProgressLost, match=rf"has {to} committed .* got to"), stage.running(delivery="exactly_once"):  # noqa: PT012
        stage.produce([(b"k", b"%d" % number) for number in range(30)])
        until(lambda: len(stage.out()) == 30)
        [moved] = [each for each, at in progress(stage).items() if at == 30]
        ConsumerGroups(stage.config).commit_offsets(
            f"wasmline.{stage.job}", {TopicPartition(stage.spec.input_topic, moved): to}
        )
        stage.produce([(b"k", b"%d" % number) for number in range(30, 100)])
        until(lambda: not stage.spark.streams.active)  # type: ignore[union-attr]


@pytest.fixture
def stranger(stage: Stage) -> Iterator[Consumer]:
    settings = {"group.id": f"wasmline.{stage.job}", "auto.offset.reset": "earliest", "enable.auto.commit": "false"}
    consumer = Consumer(stage.config.client(**settings))
    consumer.subscribe([stage.spec.input_topic])
    yield consumer
    consumer.close()


def test_a_group_that_somebody_else_reads_with_is_refused(stage: Stage, stranger: Consumer) -> None:
    stage.deploy(IDENTITY)
    stage.produce(keyed(10))
    until(lambda: stranger.poll(0.1) is not None)
    with pytest.raises(GroupInUse, match=f"wasmline.{stage.job}"):
        stage.run(delivery="exactly_once")
    assert stage.out() == []


def test_a_newer_run_takes_over_from_the_older_and_repeats_nothing(stage: Stage) -> None:
    stage.deploy(IDENTITY)
    stage.produce(keyed(200))
    with stage.running(delivery="exactly_once"):
        until(lambda: len(stage.out()) == 200)
        with stage.running(delivery="exactly_once"):
            stage.produce(keyed(200, first=200))
            until(lambda: len(list(read_to_end(stage.config, stage.spec.output_topics[0]))) >= 400)
    assert outputs(stage) == by_key(keyed(400))
