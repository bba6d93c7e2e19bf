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

from support.streams.transform_job import TransformJob, by_key, keyed, make_transform_job, unique, until
from wasmline.control import ClaimProducer, DeploymentTopic, DriverClaim
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
def transform_job(kafka: RunningKafka, spark: SparkSession, tmp_path: Path) -> TransformJob:
    return make_transform_job(kafka.config, spark, tmp_path)


def outputs(transform_job: TransformJob) -> dict[bytes, list[bytes]]:
    return by_key((key, value) for key, value, _ in transform_job.out())


def times(topic: str, transform_job: TransformJob) -> set[tuple[bytes | None, int]]:
    return {(message.value(), message.timestamp()[1]) for message in read_to_end(transform_job.config, topic)}


def progress(transform_job: TransformJob) -> dict[int, int]:
    return ConsumerGroups(transform_job.config).committed(
        f"wasmline.{transform_job.job}", transform_job.spec.input_topic
    )


def commit(transform_job: TransformJob, offsets: dict[int, CommittedOffset]) -> None:
    settings = {"group.id": f"wasmline.{transform_job.job}", "enable.auto.commit": "false"}
    consumer = Consumer(transform_job.config.client(**settings))
    topic = transform_job.spec.input_topic
    LibrdkafkaOffsetStore().commit(
        consumer, {TopicPartition(topic, partition): each for partition, each in offsets.items()}
    )
    consumer.close()


def checkpoint(transform_job: TransformJob) -> Path:
    [folder] = (transform_job.folder / "checkpoints" / transform_job.job).iterdir()
    return folder


def test_every_record_arrives_once_in_the_order_of_its_key(transform_job: TransformJob) -> None:
    transform_job.deploy(TRAPS_ON_X)
    records = keyed(5_000)
    transform_job.produce([*records, (b"x", b"poison")])

    report = transform_job.run(delivery="exactly_once", max_offsets_per_trigger=2_000)

    assert outputs(transform_job) == by_key(records)
    expected = transform_job.expected_headers()
    assert all(headers == expected[value] for _, value, headers in transform_job.out())
    assert times(transform_job.spec.output_topics[0], transform_job) < times(
        transform_job.spec.input_topic, transform_job
    )  # the poison has one too
    assert [value for value, _ in transform_job.letters()] == [b"poison"]
    assert report.state is JobState.SUCCEEDED
    assert report.result["records_in"] == report.result["records_out"] + 1 == 5_001
    assert len(report.result["batches"]) >= 3
    assert progress(transform_job) == Topics(transform_job.config).end_offsets(transform_job.spec.input_topic)


def test_a_batch_that_is_replayed_repeats_nothing(transform_job: TransformJob) -> None:
    transform_job.deploy(IDENTITY)
    transform_job.produce(keyed(300))
    transform_job.run(delivery="exactly_once")
    for commit in checkpoint(transform_job).glob("commits/*0*"):
        commit.unlink()  # as if the driver had died after the tasks' commits and before Spark's
    transform_job.deploy(TRAPS_ON_K)

    report = transform_job.run(delivery="exactly_once")

    assert all(begin == end for batch in report.result["batches"] for begin, end in batch["offsets"].values())
    assert report.result["records_in"] == 0
    assert outputs(transform_job) == by_key(keyed(300))
    assert transform_job.letters() == []


def test_a_checkpoint_that_is_rolled_back_or_lost_repeats_nothing(transform_job: TransformJob) -> None:
    transform_job.deploy(IDENTITY)
    transform_job.produce(keyed(900))
    assert len(transform_job.run(delivery="exactly_once", max_offsets_per_trigger=300).result["batches"]) >= 3
    for log in ("offsets", "commits"):
        for entry in (checkpoint(transform_job) / log).glob("*[1-9]*"):
            entry.unlink()
    transform_job.produce(keyed(100, first=900))
    transform_job.run(delivery="exactly_once")
    assert outputs(transform_job) == by_key(keyed(1_000))

    shutil.rmtree(transform_job.folder / "checkpoints")
    transform_job.produce(keyed(100, first=1_000))
    assert transform_job.run(delivery="exactly_once").result["records_in"] == 100
    assert outputs(transform_job) == by_key(keyed(1_100))


@pytest.mark.long
def test_progress_that_is_gone_or_moved_stops_the_job_until_it_is_set_right(transform_job: TransformJob) -> None:
    transform_job.deploy(IDENTITY)
    transform_job.produce(keyed(300))
    transform_job.run(delivery="exactly_once")
    ends, group = progress(transform_job), f"wasmline.{transform_job.job}"
    admin = AdminClient(transform_job.config.client())
    admin.delete_consumer_groups([group])[group].result(30)
    transform_job.produce(keyed(200, first=300))
    with pytest.raises(ProgressLost, match="where the job has been before") as caught:
        transform_job.run(delivery="exactly_once")
    assert caught.value.offset is None

    for moved in (-1, 1):
        commit(transform_job, {partition: CommittedOffset(end + moved) for partition, end in ends.items()})
        with pytest.raises(ProgressLost, match="the job got to") as caught:
            transform_job.run(delivery="exactly_once")
        assert caught.value.offset == ends[caught.value.partition] + moved
    assert outputs(transform_job) == by_key(keyed(300))

    commit(transform_job, {partition: CommittedOffset(end) for partition, end in ends.items()})
    transform_job.run(delivery="exactly_once")
    assert outputs(transform_job) == by_key(keyed(500))


@pytest.mark.long
def test_runs_of_either_delivery_follow_each_other_without_a_gap_or_an_overlap(transform_job: TransformJob) -> None:
    transform_job.deploy(IDENTITY)
    deliveries = ("at_least_once", "exactly_once", "at_least_once", "exactly_once", "exactly_once")
    for number, delivery in enumerate(deliveries):
        transform_job.produce(keyed(100, first=100 * number))
        assert transform_job.run(delivery=delivery).result["records_in"] == 100
    assert outputs(transform_job) == by_key(keyed(500))


@pytest.mark.parametrize("delivery", [pytest.param("at_least_once", marks=pytest.mark.long), "exactly_once"])
def test_a_run_after_the_parallel_mode_goes_on_from_the_groups_progress(
    transform_job: TransformJob, delivery: str
) -> None:
    transform_job.deploy(IDENTITY)
    transform_job.produce(keyed(600))
    transform_job.run(delivery=delivery)
    transform_job.produce(keyed(600, first=600))
    begins, ends = progress(transform_job), Topics(transform_job.config).end_offsets(transform_job.spec.input_topic)
    commit(  # as the parallel mode does, which finished two of the first ten and every one that follows up to the 50th
        transform_job,
        {each: CommittedOffset(at, encode(at, at + 50, [at, *range(at + 3, at + 10)])) for each, at in begins.items()},
    )
    topic = Topics(transform_job.config).describe(transform_job.spec.input_topic)
    claim = DriverClaim(
        run=unique("run"), mode="parallel", checkpoint=f"{transform_job.folder}/{topic.id}-parallel", batch_id=3,
        deployment=DeploymentTopic(transform_job.config).get(transform_job.spec.name), partitions=3,
    )  # fmt: skip
    driver = ClaimProducer(transform_job.config, transform_job.job)
    driver.claim(claim)
    driver.close()

    report = transform_job.run(delivery=delivery)

    done_before = 3 * (51 - 8) if delivery == "exactly_once" else 0
    assert report.result["records_in"] == 600 - done_before
    assert progress(transform_job) == ends


def workers() -> list[psutil.Process]:
    """Return Spark's Python workers, which are children of its daemon."""
    children = [each for each in psutil.Process().children(recursive=True) if each.name().startswith("python")]
    pids = {each.pid for each in children}
    return [each for each in children if each.ppid() in pids]


def test_a_worker_that_is_killed_in_its_transaction_leaves_nothing_behind(transform_job: TransformJob) -> None:
    transform_job.deploy(SLOW)
    records = keyed(36_000)
    transform_job.produce(records)
    target = transform_job.spec.output_topics[0]
    with ThreadPoolExecutor(1) as thread:
        run = thread.submit(transform_job.run, delivery="exactly_once")
        topics = Topics(transform_job.config)
        until(lambda: run.done() or any(topics.written_offsets(target).values()))
        killed = workers()
        assert killed
        for worker in killed:
            worker.send_signal(signal.SIGKILL)
        assert not run.done()
        run.result(120)  # Spark has tried the tasks again
    assert outputs(transform_job) == by_key(records)


@pytest.mark.parametrize("delivery", [pytest.param("at_least_once", marks=pytest.mark.long), "exactly_once"])
def test_an_output_that_its_topic_does_not_take_is_a_dead_letter_and_the_batch_goes_on(
    transform_job: TransformJob, delivery: str
) -> None:
    Topics(transform_job.config).create(tight := unique("tight"), 3, config={"max.message.bytes": "20000"})
    transform_job.deploy(IDENTITY, output_topics=(tight,))
    transform_job.produce([*keyed(10), (b"k", b"x" * 50_000)])
    assert transform_job.run(delivery=delivery).result["dead_letters"] == {"RecordTooLarge": 1}
    assert outputs(transform_job) == by_key(keyed(10))
    assert [value for value, _ in transform_job.letters()] == [b"x" * 50_000]


def test_an_output_whose_time_its_topic_refuses_fails_the_run(transform_job: TransformJob) -> None:
    recent = unique("recent")
    Topics(transform_job.config).create(recent, 1, config={"message.timestamp.before.max.ms": "3600000"})
    transform_job.deploy(IDENTITY, output_topics=(recent,))
    rows = [(b"k", b"old", None, int(time.time() * 1_000) - 7_200_000)]
    produce_all(transform_job.config, transform_job.spec.input_topic, rows)
    with pytest.raises(JobFailed, match=r"(?i)timestamp"):
        transform_job.run(delivery="exactly_once")
    assert transform_job.letters() == []
    assert sum(progress(transform_job).values()) == 0


def test_a_run_that_failed_in_one_partition_does_the_rest_only(transform_job: TransformJob) -> None:
    transform_job.deploy(TRAPS_ON_X, dead_letter_topic=None)
    records = [*keyed(300), (b"x", b"poison")]
    transform_job.produce(records)
    with pytest.raises(DeploymentPaused, match="GuestTrap"):
        transform_job.run(delivery="exactly_once")

    transform_job.deploy(IDENTITY)
    transform_job.run(delivery="exactly_once")
    assert outputs(transform_job) == by_key(records)


def test_offsets_that_are_no_records_are_progress_too(transform_job: TransformJob) -> None:
    transform_job.deploy(IDENTITY)
    writer = producer(transform_job.config, **{"transactional.id": unique("feed")})
    writer.init_transactions(30)
    for number in range(4):  # every other transaction is aborted, so that ranges end, begin and consist of nothing
        writer.begin_transaction()
        for key, value in keyed(60, first=60 * number):
            writer.produce(transform_job.spec.input_topic, value, key)
        writer.flush(30)
        (writer.abort_transaction if number % 2 else writer.commit_transaction)(30)
        transform_job.run(delivery="exactly_once")
    assert outputs(transform_job) == by_key([*keyed(60), *keyed(60, first=120)])


@pytest.mark.long
def test_partitions_that_are_added_have_progress_from_their_beginning(transform_job: TransformJob) -> None:
    transform_job.deploy(IDENTITY)
    transform_job.produce(keyed(100))
    transform_job.run(delivery="exactly_once")
    topic = transform_job.spec.input_topic
    admin = AdminClient(transform_job.config.client())
    admin.create_partitions([NewPartitions(topic, 5)])[topic].result(30)
    until(lambda: Topics(transform_job.config).describe(topic).partitions == 5)
    transform_job.produce(keyed(500, first=100))
    transform_job.run(delivery="exactly_once")
    assert sorted(value for _, value, _ in transform_job.out()) == sorted(value for _, value in keyed(600))
    assert progress(transform_job) == Topics(transform_job.config).end_offsets(topic)


@pytest.mark.long
def test_a_topic_made_anew_is_read_from_its_beginning(transform_job: TransformJob) -> None:
    transform_job.deploy(IDENTITY)
    transform_job.produce(keyed(100))
    transform_job.run(delivery="exactly_once")
    Topics(transform_job.config).delete([transform_job.spec.input_topic])
    Topics(transform_job.config).create(transform_job.spec.input_topic, 3)
    transform_job.produce(keyed(130, first=100))

    transform_job.run(delivery="exactly_once")
    assert outputs(transform_job) == by_key(keyed(230))


@pytest.mark.parametrize("to", [pytest.param(5, id="back"), pytest.param(60, id="ahead", marks=pytest.mark.long)])
def test_progress_that_is_moved_between_two_batches_ends_the_run(transform_job: TransformJob, to: int) -> None:
    """Each batch finds what the last one left, or the records between would be left out as if they were done."""
    transform_job.deploy(IDENTITY)
    with (  # noqa: PT012
        pytest.raises(ProgressLost, match=rf"has {to} committed .* got to"),
        transform_job.running(delivery="exactly_once"),
    ):
        transform_job.produce([(b"k", b"%d" % number) for number in range(30)])
        until(lambda: len(transform_job.out()) == 30)
        [moved] = [each for each, at in progress(transform_job).items() if at == 30]
        ConsumerGroups(transform_job.config).commit_offsets(
            f"wasmline.{transform_job.job}", {TopicPartition(transform_job.spec.input_topic, moved): to}
        )
        transform_job.produce([(b"k", b"%d" % number) for number in range(30, 100)])
        until(lambda: not transform_job.spark.streams.active)  # type: ignore[union-attr]


@pytest.fixture
def stranger(transform_job: TransformJob) -> Iterator[Consumer]:
    settings = {
        "group.id": f"wasmline.{transform_job.job}",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": "false",
    }
    consumer = Consumer(transform_job.config.client(**settings))
    consumer.subscribe([transform_job.spec.input_topic])
    yield consumer
    consumer.close()


def test_a_group_that_somebody_else_reads_with_is_refused(transform_job: TransformJob, stranger: Consumer) -> None:
    transform_job.deploy(IDENTITY)
    transform_job.produce(keyed(10))
    until(lambda: stranger.poll(0.1) is not None)
    with pytest.raises(GroupInUse, match=f"wasmline.{transform_job.job}"):
        transform_job.run(delivery="exactly_once")
    assert transform_job.out() == []


@pytest.mark.long
def test_a_newer_run_takes_over_from_the_older_and_repeats_nothing(transform_job: TransformJob) -> None:
    transform_job.deploy(IDENTITY)
    transform_job.produce(keyed(200))
    with transform_job.running(delivery="exactly_once"):
        until(lambda: len(transform_job.out()) == 200)
        with transform_job.running(delivery="exactly_once"):
            transform_job.produce(keyed(200, first=200))
            until(lambda: len(list(read_to_end(transform_job.config, transform_job.spec.output_topics[0]))) >= 400)
    assert outputs(transform_job) == by_key(keyed(400))
