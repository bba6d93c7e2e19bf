"""Progress that is renewed: as it was, by whoever may, and so that nobody else's work is lost."""

import struct
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from pyspark.sql import SparkSession

from support.leases.lease_harness import EXACTLY_ONCE, NOTHING, Harnesses
from support.streams.transform_job import keyed, make_transform_job, until
from wasmline.errors import BrokerUnavailable, ProducerFenced
from wasmline.job_offsets import offset_renewal
from wasmline.job_offsets.microbatch_transactions import BatchTransactions
from wasmline.kafka import ConsumerGroups, KafkaConfig, read_to_end
from wasmline.kafka.consumer_group_offsets import RENEWAL_CLIENT
from wasmline.local.process import wait_until
from wasmline.offset_maps import codec
from wasmline.spark.timings import StreamTimings
from wasmline.testing.guests import guest
from wasmline.testing.kafka import RunningKafka
from wasmline.topic_partitions import CommittedOffset, TopicPartition

VISITED = struct.Struct(">hh8si")
"""How the value of a consumer group begins in ``__consumer_offsets``: version, protocol type, generation. From
GroupMetadataValue.json of Kafka, as of version 2; the protocol, the leader and the time of its state follow."""

MAP = codec.encode(5, 20, range(5, 20, 2))


def commits(config: KafkaConfig, group: str) -> int:
    """Return how often something was committed for a group."""
    begin = struct.pack(">hh", 1, len(group)) + group.encode()
    return sum((each.key() or b"").startswith(begin) for each in read_to_end(config, "__consumer_offsets"))


@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])
def test_progress_is_committed_as_it_is_at_once_and_then_when_it_is_time(harnesses: Harnesses, delivery: str) -> None:
    harness = harnesses(delivery=delivery)
    sources = [TopicPartition(harness.topic, each) for each in range(3)]
    left = {sources[0]: CommittedOffset(5, MAP), sources[1]: CommittedOffset(7)}
    transactions = BatchTransactions(harness.config, harness.job.group, harness.job.transactional_id, {})
    for source, progress in left.items():
        with transactions.open([source]) as transaction:
            transaction.commit({source: progress})
    before = commits(harness.config, harness.job.group)

    offset_renewal.OffsetRenewer(harness.config, harness.topic, is_renewed=True).renew_if_due(harness.job, range(3))
    assert commits(harness.config, harness.job.group) == before
    keeper = offset_renewal.OffsetRenewer(harness.config, harness.topic)
    keeper.renew_if_due(harness.job, range(3))
    keeper.renew_if_due(harness.job, range(3))

    assert commits(harness.config, harness.job.group) == before + len(left)
    for source in sources:
        with transactions.open([source]) as transaction:
            assert transaction.progress.get(source) == left.get(source)
    transactions.close()


def test_progress_is_renewed_again_while_the_brokers_retention_cannot_be_read(
    harnesses: Harnesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = harnesses()
    source = TopicPartition(harness.topic, 0)
    ConsumerGroups(harness.config).commit_offsets(harness.job.group, {source: 3})
    begun = commits(harness.config, harness.job.group)

    def unanswered(_: ConsumerGroups) -> float:
        raise BrokerUnavailable("no answer", bootstrap_servers=harness.config.bootstrap_servers)

    monkeypatch.setattr(ConsumerGroups, "retention_s", unanswered)
    monkeypatch.setattr(offset_renewal, "RETRY_INTERVAL_S", 0)
    renewer = offset_renewal.OffsetRenewer(harness.config, harness.topic)
    for count in (1, 2, 3):
        renewer.renew_if_due(harness.job, [0])
        assert commits(harness.config, harness.job.group) == begun + count


@pytest.mark.parametrize(
    "later", [BrokerUnavailable("no answer", bootstrap_servers="nowhere:1"), None], ids=["silent", "untold"]
)
def test_progress_whose_retention_was_read_once_is_renewed_by_that_while_it_cannot_be_read(
    harnesses: Harnesses,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    later: BrokerUnavailable | None,
) -> None:
    harness = harnesses()
    answers: list[float | BrokerUnavailable | None] = [400.0, later]
    ConsumerGroups(harness.config).commit_offsets(harness.job.group, {TopicPartition(harness.topic, 0): 3})
    begun = commits(harness.config, harness.job.group)

    def read(_: ConsumerGroups) -> float | None:
        answer = answers.pop(0)
        if isinstance(answer, BrokerUnavailable):
            raise answer
        return answer

    monkeypatch.setattr(ConsumerGroups, "retention_s", read)
    monkeypatch.setattr(offset_renewal, "RETRY_INTERVAL_S", 0)
    renewer = offset_renewal.OffsetRenewer(harness.config, harness.topic)
    renewer.renew_if_due(harness.job, [0])
    renewer._due = 0.0
    for _ in range(3):
        renewer.renew_if_due(harness.job, [0])
    assert commits(harness.config, harness.job.group) == begun + 2
    assert (answers, renewer.interval_s) == ([], 100.0)
    assert [each for each in caplog.messages if "postponed" in each] == []


def test_a_renewal_that_failed_is_repeated_before_progress_that_is_kept_briefly_expires(
    harnesses: Harnesses, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    harness = harnesses()
    monkeypatch.setattr(ConsumerGroups, "retention_s", lambda _: 1.0)
    renewer = offset_renewal.OffsetRenewer(harness.config, harness.topic)
    renewer.renew_if_due(harness.job, [0])

    def fail(*_: object, **__: object) -> None:
        raise BrokerUnavailable("no answer", bootstrap_servers="nowhere:1")

    monkeypatch.setattr(offset_renewal, "renew_offsets", fail)

    def postponed() -> int:
        renewer.renew_if_due(harness.job, [0])
        return sum("postponed" in each for each in caplog.messages)

    assert wait_until(lambda: postponed() >= 2, 10.0)


def test_whoever_works_on_is_fenced_by_the_renewal_of_exactly_once(harnesses: Harnesses) -> None:
    harness = harnesses(**EXACTLY_ONCE)
    source = TopicPartition(harness.topic, 0)
    transactions = BatchTransactions(harness.config, harness.job.group, harness.job.transactional_id, {})
    with transactions.open([source]) as transaction:
        transaction.commit({source: CommittedOffset(3)})

    def overtaken() -> None:
        with transactions.open([source]) as transaction:
            offset_renewal.OffsetRenewer(harness.config, harness.topic).renew_if_due(harness.job, [0])
            transaction.commit({source: CommittedOffset(4)})

    with pytest.raises(ProducerFenced):
        overtaken()
    with transactions.open([source]) as transaction:
        assert transaction.progress == {source: CommittedOffset(3)}
    transactions.close()


def test_leases_and_batches_renew_what_they_find(
    kafka: RunningKafka, spark: SparkSession, harnesses: Harnesses, tmp_path: Path
) -> None:
    harness = harnesses(**EXACTLY_ONCE)
    first = harness.lessor(max_renewal_interval_s=0.5)
    grant = first.next(NOTHING)
    begun = commits(harness.config, harness.job.group)
    time.sleep(0.6)
    assert first.next(grant).progress == grant.progress
    assert commits(harness.config, harness.job.group) == begun + len(grant.progress)

    transform_job = make_transform_job(kafka.config, spark, tmp_path)
    transform_job.timings = StreamTimings(max_renewal_interval_s=0.5)
    transform_job.deploy(guest())
    transform_job.produce(keyed(300))
    with transform_job.running(delivery="exactly_once"):
        until(lambda: len(transform_job.out()) == 300)
        group = f"wasmline.{transform_job.job}"
        committed = commits(transform_job.config, group)
        until(lambda: commits(transform_job.config, group) > committed + 6)
        transform_job.produce(keyed(300, first=300))
        until(lambda: len(transform_job.out()) == 600)
    assert sum(ConsumerGroups(transform_job.config).committed(group, transform_job.spec.input_topic).values()) == 600


@pytest.mark.parametrize("delivery", ["at_least_once", pytest.param("exactly_once", marks=pytest.mark.long)])
def test_a_run_that_finds_nothing_to_do_renews_the_progress_of_every_partition(
    spark: SparkSession, kafka: RunningKafka, tmp_path: Path, harnesses: Harnesses, delivery: str
) -> None:
    """A job may run for a minute a day, and a partition be idle for a week."""
    harness = harnesses(delivery=delivery)
    for _ in range(3):
        before = commits(harness.config, harness.job.group)
        harness.lessor().next(NOTHING)
        assert commits(harness.config, harness.job.group) >= before + 3
    if delivery == "exactly_once":
        transform_job = make_transform_job(kafka.config, spark, tmp_path)
        transform_job.deploy(guest())
        transform_job.run(delivery=delivery)
        before = commits(transform_job.config, f"wasmline.{transform_job.job}")
        transform_job.run(delivery=delivery)
        assert commits(transform_job.config, f"wasmline.{transform_job.job}") == before + 3


def emptied_ms(config: KafkaConfig, group: str) -> int:
    """Return since when a group has had no members, from which the expiry of all its offsets is counted."""
    key = struct.pack(">hh", 2, len(group)) + group.encode()
    *_, value = (each.value() or b"" for each in read_to_end(config, "__consumer_offsets") if each.key() == key)
    version, length, kind, _ = VISITED.unpack_from(value)
    assert (version, length, kind) == (3, 8, b"consumer")
    at = VISITED.size
    for _ in ("protocol", "leader"):
        [length] = struct.unpack_from(">h", value, at)
        at += 2 + max(0, length)
    [found] = struct.unpack_from(">q", value, at)
    return int(found)


@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])
def test_a_group_that_was_visited_is_joined_so_that_its_progress_does_not_expire(
    harnesses: Harnesses, caplog: pytest.LogCaptureFixture, delivery: str
) -> None:
    harness = harnesses(delivery=delivery)
    groups, source = ConsumerGroups(harness.config), TopicPartition(harness.topic, 0)
    groups.commit_offsets(harness.job.group, {source: 7})
    offset_renewal.renew_offsets(harness.config, harness.job, harness.topic, range(3))
    assert not caplog.messages

    visitor = Consumer(harness.config.client(**{"group.id": harness.job.group, "enable.auto.commit": "false"}))
    visitor.subscribe([harness.topic])
    until(lambda: visitor.poll(0.1) is None and bool(visitor.assignment()))
    visitor.close()
    left = emptied_ms(harness.config, harness.job.group)
    offset_renewal.renew_offsets(harness.config, harness.job, harness.topic, range(3))
    assert emptied_ms(harness.config, harness.job.group) > left
    assert "give it a group of its own" in caplog.text
    assert groups.committed(harness.job.group, harness.topic) == {0: 7}


def test_a_group_that_is_joined_for_its_renewal_is_in_nobodys_way(harnesses: Harnesses) -> None:
    harness = harnesses(**EXACTLY_ONCE)
    groups, source = ConsumerGroups(harness.config), TopicPartition(harness.topic, 0)
    transactions = BatchTransactions(harness.config, harness.job.group, harness.job.transactional_id, {})
    settings = {"group.id": harness.job.group, "client.id": RENEWAL_CLIENT, "enable.auto.commit": "false"}
    with transactions.open([source]) as transaction:
        joined = Consumer(harness.config.client(**settings))
        joined.subscribe([harness.topic])
        until(lambda: joined.poll(0.1) is None and bool(joined.assignment()))
        groups.require_no_members(harness.job.group)
        transaction.commit({source: CommittedOffset(4)})
        joined.close()
    transactions.close()
    assert groups.committed(harness.job.group, harness.topic) == {0: 4}
