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

from support.leases.lease_driver import equip
from support.streams.stream_stage import Stage, by_key, keyed, make_stage, until
from wasmline.control import DeploymentTopic, JobDriver, JobTopic, StatusTopic
from wasmline.errors import DeploymentPaused, Fenced, GroupInUse, InvalidJob, ProgressLost
from wasmline.job_specs import JobState
from wasmline.kafka import Topics, producer, read_to_end
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
def stage(kafka: RunningKafka, spark: SparkSession, tmp_path: Path) -> Stage:
    stage = make_stage(kafka.config, spark, tmp_path, partitions=1)
    stage.deploy(IDENTITY)
    return stage


def outputs(stage: Stage) -> dict[bytes, list[bytes]]:
    return by_key((key, value) for key, value, _ in stage.out())


def forget(stage: Stage) -> None:
    """Delete the group, as the cluster does with one that expired."""
    admin, group = AdminClient(stage.config.client()), f"wasmline.{stage.job}"
    admin.delete_consumer_groups([group])[group].result(30)


def test_a_switch_that_is_refused_changes_nothing_of_where_the_job_goes_on(stage: Stage) -> None:
    stage.produce(keyed(100))
    stage.run()
    stage.produce(keyed(100, first=100))
    settings = {"group.id": f"wasmline.{stage.job}", "enable.auto.commit": "false", "auto.offset.reset": "earliest"}
    stranger = Consumer(stage.config.client(**settings))
    stranger.subscribe([stage.spec.input_topic])
    until(lambda: bool(stranger.consume(200, timeout=0.2)))
    stranger.commit(asynchronous=False)
    before = JobTopic(stage.config).last_batch(stage.job)
    for mode in ("microbatch", "parallel"):
        with pytest.raises(GroupInUse):
            stage.run(mode=mode, delivery="exactly_once")
    assert JobTopic(stage.config).last_batch(stage.job) == before
    stranger.close()

    assert stage.run(delivery="exactly_once").result["records_in"] == 100
    assert outputs(stage) == by_key(keyed(200))


def test_progress_that_is_gone_ends_a_run_at_least_once_too(stage: Stage) -> None:
    stage.produce(keyed(100))
    stage.run(delivery="exactly_once")
    forget(stage)
    before = JobTopic(stage.config).last_batch(stage.job)
    with pytest.raises(ProgressLost):
        stage.run(starting_offsets="latest")
    assert JobTopic(stage.config).last_batch(stage.job) == before


def test_a_checkpoint_that_is_lost_or_elsewhere_is_no_new_beginning(stage: Stage) -> None:
    stage.run(starting_offsets="latest")
    stage.produce(keyed(100))
    stage.run(starting_offsets="latest")
    shutil.rmtree(stage.folder / "checkpoints")
    forget(stage)
    stage.produce(keyed(100, first=100))
    assert stage.run(starting_offsets="latest").result["records_in"] == 100

    stage.folder = stage.folder / "elsewhere"
    stage.produce(keyed(100, first=200))
    assert stage.run(starting_offsets="latest").result["records_in"] == 100
    assert outputs(stage) == by_key(keyed(300))
    assert list(stage.folder.glob("checkpoints/*/*"))


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_a_topic_that_is_made_anew_while_a_run_reads_it_ends_the_run(stage: Stage, delivery: str) -> None:
    """What was done of the old topic says nothing of the new one, however long that is."""
    topics, topic = Topics(stage.config), stage.spec.input_topic
    stage.produce(keyed(10))
    with pytest.raises(InvalidJob, match="recreated"), stage.running(delivery=delivery) as order:  # noqa: PT012
        until(lambda: len(stage.out()) == 10)
        topics.delete([topic])
        topics.create(topic, 1)
        stage.produce(keyed(20, first=10))
        until(
            lambda: (report := JobTopic(stage.config).report(stage.job, order.run)) is not None and report.state.final
        )
    assert len(stage.out()) == 10


def test_a_run_that_is_refused_leaves_the_living_driver_alone(stage: Stage) -> None:
    deployments = DeploymentTopic(stage.config)
    with stage.running(delivery="exactly_once") as order:
        stage.produce(keyed(100))
        until(lambda: len(stage.out()) == 100)
        assert order.stream is not None
        assert stage.spark is not None
        refused = make_stream_job(stage.spark, stage.config, order, replace(order.stream, trigger_interval=None))
        deployments.pause(stage.spec.name, "lunch")
        with pytest.raises(DeploymentPaused):
            refused.run()
        deployments.resume(stage.spec.name)
        JobDriver(stage.config, stage.job).close()  # one that ends before its claim
        stage.produce(keyed(100, first=100))
        until(lambda: len(stage.out()) == 200)
    assert outputs(stage) == by_key(keyed(200))


def test_of_two_drivers_of_a_run_the_newer_one_goes_on_in_a_checkpoint_of_its_own(stage: Stage) -> None:
    order = stage.order(delivery="exactly_once", trigger_interval="200 milliseconds", max_offsets_per_trigger=50)
    assert order.stream is not None
    assert stage.spark is not None
    target = stage.spec.output_topics[0]
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(make_stream_job(stage.spark, stage.config, order, order.stream).run)
        stage.produce(keyed(600))
        until(lambda: first.done() or next(read_to_end(stage.config, target), None) is not None)
        second = threads.submit(make_stream_job(stage.spark, stage.config, order, order.stream).run)
        assert isinstance(first.exception(90), Fenced)
        until(lambda: second.done() or len(stage.out()) >= 600)
        JobTopic(stage.config).stop(stage.job, order.run)
        assert second.result(90).state is JobState.STOPPED
    assert outputs(stage) == by_key(keyed(600))
    assert len(list(stage.folder.glob("checkpoints/*/*"))) == 2


def test_a_driver_that_fell_silent_is_fenced_and_its_checkpoint_left_alone(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = stage.order(trigger_interval="200 milliseconds")
    assert order.stream is not None
    assert stage.spark is not None
    silent = make_stream_job(stage.spark, stage.config, order, order.stream)
    monkeypatch.setattr(silent, "_stop_wanted", lambda: False)  # it does not hear of the next order
    with ThreadPoolExecutor(1) as thread:
        first = thread.submit(silent.run)
        stage.produce(keyed(100))
        until(lambda: first.done() or len(stage.out()) == 100)
        second = stage.order()
        assert second.stream is not None
        stage.produce(keyed(100, first=100))
        impatient = StreamTimings(heartbeat_timeout_s=0.0)
        make_stream_job(stage.spark, stage.config, second, second.stream, impatient).run()
        stage.produce(keyed(1, first=200))
        assert isinstance(first.exception(90), Fenced)
    claimed = JobTopic(stage.config).last_batch(stage.job)
    assert claimed is not None
    assert claimed.run == second.run
    assert claimed.ended
    assert {value for _, value, _ in stage.out()} >= {value for _, value in keyed(200)}
    assert len(list(stage.folder.glob("checkpoints/*/*"))) == 2


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_partitions_that_are_added_while_a_run_starts_are_part_of_it(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, delivery: str
) -> None:
    """Spark refuses starting offsets that lack a partition."""
    order, topic, topics = stage.order(delivery=delivery), stage.spec.input_topic, Topics(stage.config)
    assert order.stream is not None
    assert stage.spark is not None
    job = make_stream_job(stage.spark, stage.config, order, order.stream)
    admin, start = AdminClient(stage.config.client()), MicrobatchQuery.start

    def start_late(query: MicrobatchQuery) -> StreamingQuery:
        if topics.describe(topic).partitions == 1:
            admin.create_partitions([NewPartitions(topic, 3)])[topic].result(30)
            until(lambda: topics.describe(topic).partitions == 3)
            stage.produce(keyed(100, first=100))
        return start(query)

    monkeypatch.setattr(MicrobatchQuery, "start", start_late)
    stage.produce(keyed(100))
    assert job.run().result["records_in"] == 200
    assert sorted(value for _, value, _ in stage.out()) == sorted(value for _, value in keyed(200))


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


@pytest.mark.parametrize(("mode", "delivery"), [("microbatch", "exactly_once"), ("parallel", "at_least_once")])
def test_a_first_run_that_was_killed_in_its_first_commit_does_not_block_the_next(
    stage: Stage, mode: str, delivery: str
) -> None:
    """Its transaction would be open for a quarter of an hour, and nobody could read the group's progress."""
    stage.timings = StreamTimings(open_transaction_wait_s=1.0, stable_read_timeout_s=5.0)
    assert stage.spark is not None
    equip(stage.spark, stage.config)
    order, topic = stage.order(), stage.spec.input_topic
    name = shared_id(order.transactional_id, TopicPartition(topic, 0))
    command = [sys.executable, "-c", DIES, stage.config.bootstrap_servers, order.group, name, topic]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == b"sent\n"
        first.kill()
    stage.produce(keyed(30))
    assert stage.run(mode=mode, delivery=delivery).result["records_in"] == 30
    assert outputs(stage) == by_key(keyed(30))


@pytest.fixture
def half_done(kafka: RunningKafka, spark: SparkSession, tmp_path: Path) -> Stage:
    """Return a job whose first run did 100 records of its first partition and failed on the only one of the other."""
    stage = make_stage(kafka.config, spark, tmp_path, partitions=2)
    stage.deploy(SPINS_ON_X, dead_letter_topic=None, cpu_ms_per_record=500)
    writer = producer(stage.config)
    for number in range(100):
        writer.produce(stage.spec.input_topic, b"%d" % number, b"k", partition=0)
    writer.produce(stage.spec.input_topic, b"poison", b"x", partition=1)
    writer.flush(30)
    with pytest.raises(DeploymentPaused, match="GuestTimeout"):
        stage.run(delivery="exactly_once")
    assert len(stage.out()) == 100
    return stage


def test_of_a_batch_of_two_generations_each_is_reported_with_what_it_did(half_done: Stage) -> None:
    """One had done a partition before it failed on the other; the next one does the rest."""
    stage = half_done
    first = JobTopic(stage.config).report(stage.job, JobTopic(stage.config).order(stage.job).spec.run)
    assert first is not None
    assert first.result["records_in"] == 100
    stage.deploy(IDENTITY)
    second = stage.run(delivery="exactly_once")
    batches = [*first.result["batches"], *second.result["batches"]]
    ranges = [[tuple(each["offsets"][partition]) for partition in "01"] for each in batches]
    assert ranges == [[(0, 100), (0, 0)], [(100, 100), (0, 1)]]
    assert [(each["generation"], each["records_in"]) for each in batches] == [(1, 100), (2, 1)]
    statuses = StatusTopic(stage.config).of(stage.job)
    assert [(each.generation, each.since_offset, each.offset) for each in statuses] == [(2, 100, 100), (2, 0, 1)]


def test_records_that_a_failed_batch_had_done_may_be_removed_before_the_next_run(half_done: Stage) -> None:
    stage = half_done
    place = confluent_kafka.TopicPartition(stage.spec.input_topic, 0, 50)
    admin = AdminClient(stage.config.client())
    for answer in admin.delete_records([place]).values():
        answer.result(30)
    stage.deploy(IDENTITY)
    assert stage.run(delivery="exactly_once").result["records_in"] == 1
    assert len(stage.out()) == 101
