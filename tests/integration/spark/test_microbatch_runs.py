"""Micro-batch runs that follow each other, where something before them was refused, lost, or lives still."""

import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from support.leases.lease_driver import prepare_session
from support.streams.transform_job import TransformJob, by_key, keyed, make_transform_job, until
from wasmline.control import ClaimProducer, DeploymentTopic, JobTopic, StatusTopic
from wasmline.errors import DeploymentPaused, Fenced, GroupInUse, InvalidJob, InvalidKafkaConfig, ProgressLost
from wasmline.job_specs import JobState
from wasmline.kafka import KafkaConfig, Topics, producer, read_to_end
from wasmline.spark.main import make_stream_job
from wasmline.spark.microbatch.query import MicrobatchQuery
from wasmline.spark.timings import StreamTimings
from wasmline.testing.guests import SPIN, WRITE, guest, when_key
from wasmline.testing.kafka import RunningKafka
from wasmline.topic_partitions import TopicPartition
from wasmline.transactional_ids import shared_id

IDENTITY = guest()
SPINS_ON_X = guest(when_key("x", SPIN) + WRITE)


@pytest.fixture
def transform_job(kafka: RunningKafka, spark: SparkSession, tmp_path: Path) -> TransformJob:
    transform_job = make_transform_job(kafka.config, spark, tmp_path, partitions=1)
    transform_job.deploy(IDENTITY)
    return transform_job


def outputs(transform_job: TransformJob) -> dict[bytes, list[bytes]]:
    return by_key((key, value) for key, value, _ in transform_job.out())


def forget(transform_job: TransformJob) -> None:
    """Delete the group, as the cluster does with one that expired."""
    admin, group = AdminClient(transform_job.config.client()), f"wasmline.{transform_job.job}"
    admin.delete_consumer_groups([group])[group].result(30)


def test_a_switch_that_is_refused_changes_nothing_of_where_the_job_goes_on(transform_job: TransformJob) -> None:
    transform_job.produce(keyed(100))
    transform_job.run()
    transform_job.produce(keyed(100, first=100))
    settings = {
        "group.id": f"wasmline.{transform_job.job}",
        "enable.auto.commit": "false",
        "auto.offset.reset": "earliest",
    }
    stranger = Consumer(transform_job.config.client(**settings))
    stranger.subscribe([transform_job.spec.input_topic])
    until(lambda: bool(stranger.consume(200, timeout=0.2)))
    stranger.commit(asynchronous=False)
    before = JobTopic(transform_job.config).last_claim(transform_job.job)
    for mode in ("microbatch", "parallel"):
        with pytest.raises(GroupInUse):
            transform_job.run(mode=mode, delivery="exactly_once")
    assert JobTopic(transform_job.config).last_claim(transform_job.job) == before
    stranger.close()

    assert transform_job.run(delivery="exactly_once").result["records_in"] == 100
    assert outputs(transform_job) == by_key(keyed(200))


def test_progress_that_is_gone_ends_a_run_at_least_once_too(transform_job: TransformJob) -> None:
    transform_job.produce(keyed(100))
    transform_job.run(delivery="exactly_once")
    forget(transform_job)
    before = JobTopic(transform_job.config).last_claim(transform_job.job)
    with pytest.raises(ProgressLost):
        transform_job.run(starting_offsets="latest")
    assert JobTopic(transform_job.config).last_claim(transform_job.job) == before


def test_a_checkpoint_that_is_lost_or_elsewhere_is_no_new_beginning(transform_job: TransformJob) -> None:
    transform_job.run(starting_offsets="latest")
    transform_job.produce(keyed(100))
    transform_job.run(starting_offsets="latest")
    shutil.rmtree(transform_job.folder / "checkpoints")
    forget(transform_job)
    transform_job.produce(keyed(100, first=100))
    assert transform_job.run(starting_offsets="latest").result["records_in"] == 100

    transform_job.folder = transform_job.folder / "elsewhere"
    transform_job.produce(keyed(100, first=200))
    assert transform_job.run(starting_offsets="latest").result["records_in"] == 100
    assert outputs(transform_job) == by_key(keyed(300))
    assert list(transform_job.folder.glob("checkpoints/*/*"))


@pytest.mark.parametrize("delivery", [pytest.param("at_least_once", marks=pytest.mark.long), "exactly_once"])
def test_a_topic_that_is_made_anew_while_a_run_reads_it_ends_the_run(
    transform_job: TransformJob, delivery: str
) -> None:
    """What was done of the old topic says nothing of the new one, however long that is."""
    topics, topic = Topics(transform_job.config), transform_job.spec.input_topic
    transform_job.produce(keyed(10))
    with pytest.raises(InvalidJob, match="recreated"), transform_job.running(delivery=delivery) as order:  # noqa: PT012
        until(lambda: len(transform_job.out()) == 10)
        topics.delete([topic])
        topics.create(topic, 1)
        transform_job.produce(keyed(20, first=10))
        until(
            lambda: (
                (report := JobTopic(transform_job.config).report(transform_job.job, order.run)) is not None
                and report.state.final
            )
        )
    assert len(transform_job.out()) == 10


def test_a_run_that_is_refused_leaves_the_living_driver_alone(transform_job: TransformJob) -> None:
    deployments = DeploymentTopic(transform_job.config)
    with transform_job.running(delivery="exactly_once") as order:
        transform_job.produce(keyed(100))
        until(lambda: len(transform_job.out()) == 100)
        assert order.stream is not None
        assert transform_job.spark is not None
        bounded = replace(order.stream, trigger_interval=None)
        refused = make_stream_job(transform_job.spark, transform_job.config, replace(order, stream=bounded), bounded)
        deployments.pause(transform_job.spec.name, "lunch")
        with pytest.raises(DeploymentPaused):
            refused.run()
        deployments.resume(transform_job.spec.name)
        ClaimProducer(transform_job.config, transform_job.job).close()  # one that ends before its claim
        transform_job.produce(keyed(100, first=100))
        until(lambda: len(transform_job.out()) == 200)
    assert outputs(transform_job) == by_key(keyed(200))


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_a_setting_that_sparks_client_does_not_have_is_refused_before_the_takeover(
    transform_job: TransformJob, delivery: str
) -> None:
    order = transform_job.order(delivery=delivery)
    assert order.stream is not None
    assert transform_job.spark is not None
    config = KafkaConfig({**transform_job.config.properties, "enable.ssl.certificate.verification": "false"})
    with pytest.raises(InvalidKafkaConfig, match=r"enable\.ssl\.certificate\.verification"):
        make_stream_job(transform_job.spark, config, order, order.stream).run()
    assert JobTopic(transform_job.config).last_claim(transform_job.job) is None


def test_of_two_drivers_of_a_run_the_newer_one_goes_on_in_a_checkpoint_of_its_own(transform_job: TransformJob) -> None:
    order = transform_job.order(
        delivery="exactly_once", trigger_interval="200 milliseconds", max_offsets_per_trigger=50
    )
    assert order.stream is not None
    assert transform_job.spark is not None
    target = transform_job.spec.output_topics[0]
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(make_stream_job(transform_job.spark, transform_job.config, order, order.stream).run)
        transform_job.produce(keyed(600))
        until(lambda: first.done() or next(read_to_end(transform_job.config, target), None) is not None)
        session = transform_job.spark.newSession()  # one session has one query of a name
        second = threads.submit(make_stream_job(session, transform_job.config, order, order.stream).run)
        assert isinstance(first.exception(90), Fenced)
        until(lambda: second.done() or len(transform_job.out()) >= 600)
        JobTopic(transform_job.config).stop(transform_job.job, order.run)
        assert second.result(90).state is JobState.STOPPED
    assert outputs(transform_job) == by_key(keyed(600))
    assert len(list(transform_job.folder.glob("checkpoints/*/*"))) == 2


def test_a_driver_that_fell_silent_is_fenced_and_its_checkpoint_left_alone(
    transform_job: TransformJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = transform_job.order(trigger_interval="200 milliseconds")
    assert order.stream is not None
    assert transform_job.spark is not None
    silent = make_stream_job(transform_job.spark, transform_job.config, order, order.stream)
    monkeypatch.setattr(silent, "_poll_stop_request", lambda: False)  # it does not hear of the next order
    with ThreadPoolExecutor(1) as thread:
        first = thread.submit(silent.run)
        transform_job.produce(keyed(100))
        until(lambda: first.done() or len(transform_job.out()) == 100)
        second = transform_job.order()
        assert second.stream is not None
        transform_job.produce(keyed(100, first=100))
        impatient = StreamTimings(heartbeat_timeout_s=0.0)
        make_stream_job(transform_job.spark, transform_job.config, second, second.stream, impatient).run()
        transform_job.produce(keyed(1, first=200))
        assert isinstance(first.exception(90), Fenced)
    claimed = JobTopic(transform_job.config).last_claim(transform_job.job)
    assert claimed is not None
    assert claimed.run == second.run
    assert claimed.ended
    assert {value for _, value, _ in transform_job.out()} >= {value for _, value in keyed(200)}
    assert len(list(transform_job.folder.glob("checkpoints/*/*"))) == 2


@pytest.mark.parametrize("delivery", [pytest.param("at_least_once", marks=pytest.mark.long), "exactly_once"])
def test_partitions_that_are_added_while_a_run_starts_are_part_of_it(
    transform_job: TransformJob, monkeypatch: pytest.MonkeyPatch, delivery: str
) -> None:
    """Spark refuses starting offsets that lack a partition."""
    order, topic, topics = (
        transform_job.order(delivery=delivery),
        transform_job.spec.input_topic,
        Topics(transform_job.config),
    )
    assert order.stream is not None
    assert transform_job.spark is not None
    job = make_stream_job(transform_job.spark, transform_job.config, order, order.stream)
    admin, start = AdminClient(transform_job.config.client()), MicrobatchQuery.start

    def start_late(query: MicrobatchQuery) -> StreamingQuery:
        if topics.describe(topic).partitions == 1:
            admin.create_partitions([NewPartitions(topic, 3)])[topic].result(30)
            until(lambda: topics.describe(topic).partitions == 3)
            transform_job.produce(keyed(100, first=100))
        return start(query)

    monkeypatch.setattr(MicrobatchQuery, "start", start_late)
    transform_job.produce(keyed(100))
    assert job.run().result["records_in"] == 200
    assert sorted(value for _, value, _ in transform_job.out()) == sorted(value for _, value in keyed(200))


DIES = """
import sys
from confluent_kafka import Consumer, Producer, TopicPartition
servers, group, name, topic = sys.argv[1:]
settings = {"bootstrap.servers": servers, "transactional.id": name, "transaction.timeout.ms": 900000}
producer, consumer = Producer(settings), Consumer({"bootstrap.servers": servers, "group.id": group})
producer.init_transactions(30)
producer.begin_transaction()
producer.send_offsets_to_transaction([TopicPartition(topic, 0, 0)], consumer.consumer_group_metadata(), 30)
print("sent", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize(
    ("mode", "delivery"),
    [("microbatch", "exactly_once"), pytest.param("parallel", "at_least_once", marks=pytest.mark.long)],
)
def test_a_first_run_that_was_killed_in_its_first_commit_does_not_block_the_next(
    transform_job: TransformJob, mode: str, delivery: str
) -> None:
    """Its transaction would be open for a quarter of an hour, and nobody could read the group's progress."""
    transform_job.timings = StreamTimings(open_transaction_wait_s=1.0, stable_read_timeout_s=5.0)
    assert transform_job.spark is not None
    prepare_session(transform_job.spark, transform_job.config)
    order, topic = transform_job.order(), transform_job.spec.input_topic
    name = shared_id(order.transactional_id, TopicPartition(topic, 0))
    command = [sys.executable, "-c", DIES, transform_job.config.bootstrap_servers, order.group, name, topic]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == b"sent\n"
        first.kill()
    transform_job.produce(keyed(30))
    assert transform_job.run(mode=mode, delivery=delivery).result["records_in"] == 30
    assert outputs(transform_job) == by_key(keyed(30))


@pytest.fixture
def half_done(kafka: RunningKafka, spark: SparkSession, tmp_path: Path) -> TransformJob:
    """Return a job whose first run did 100 records of its first partition and failed on the only one of the other."""
    transform_job = make_transform_job(kafka.config, spark, tmp_path, partitions=2)
    transform_job.deploy(SPINS_ON_X, dead_letter_topic=None, cpu_ms_per_record=500)
    writer = producer(transform_job.config)
    for number in range(100):
        writer.produce(transform_job.spec.input_topic, b"%d" % number, b"k", partition=0)
    writer.produce(transform_job.spec.input_topic, b"poison", b"x", partition=1)
    writer.flush(30)
    with pytest.raises(DeploymentPaused, match="GuestTimeout"):
        transform_job.run(delivery="exactly_once")
    assert len(transform_job.out()) == 100
    return transform_job


def test_of_a_batch_of_two_generations_each_is_reported_with_what_it_did(half_done: TransformJob) -> None:
    """One had done a partition before it failed on the other; the next one does the rest."""
    transform_job = half_done
    first = JobTopic(transform_job.config).report(
        transform_job.job, JobTopic(transform_job.config).order(transform_job.job).spec.run
    )
    assert first is not None
    assert first.result["records_in"] == 100
    transform_job.deploy(IDENTITY)
    second = transform_job.run(delivery="exactly_once")
    batches = [*first.result["batches"], *second.result["batches"]]
    ranges = [[tuple(each["offsets"][partition]) for partition in "01"] for each in batches]
    assert ranges == [[(0, 100), (0, 0)], [(100, 100), (0, 1)]]
    assert [(each["generation"], each["records_in"]) for each in batches] == [(1, 100), (2, 1)]
    statuses = StatusTopic(transform_job.config).of(transform_job.job)
    assert [(each.generation, each.since_offset, each.offset) for each in statuses] == [(2, 100, 100), (2, 0, 1)]
    assert [each.generation_records for each in statuses] == [0, 1]


@pytest.mark.long
def test_records_that_a_failed_batch_had_done_may_be_removed_before_the_next_run(half_done: TransformJob) -> None:
    transform_job = half_done
    place = confluent_kafka.TopicPartition(transform_job.spec.input_topic, 0, 50)
    admin = AdminClient(transform_job.config.client())
    for answer in admin.delete_records([place]).values():
        answer.result(30)
    transform_job.deploy(IDENTITY)
    assert transform_job.run(delivery="exactly_once").result["records_in"] == 1
    assert len(transform_job.out()) == 101
