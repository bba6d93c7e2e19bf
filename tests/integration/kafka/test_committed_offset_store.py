"""Committed offsets and their metadata on a real Kafka, through the exact store and through that of offsets alone."""

from __future__ import annotations

import logging
import os
import platform
import sys
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from support.frozen_node import frozen
from wasmline.errors import InexactMetadata, TopicNotFound
from wasmline.kafka import KafkaConfig, producer
from wasmline.kafka.committed_offset_store import (
    CommittedOffsetStore,
    LibrdkafkaOffsetStore,
    OffsetsOnlyStore,
    select_offset_store,
    self_test,
)
from wasmline.kafka.librdkafka_ctypes import Entry, Librdkafka, entries_of
from wasmline.local import LocalKafka
from wasmline.testing.kafka import RunningKafka
from wasmline.topic_partitions import CommittedOffset, TopicPartition

STORES = pytest.mark.parametrize("offset_store", [LibrdkafkaOffsetStore(), OffsetsOnlyStore()], ids=["exact", "plain"])
EXACT = LibrdkafkaOffsetStore()

FIXED = (
    "confluent-kafka carries commit metadata exactly now: let OffsetsOnlyStore carry it, remove "
    "LibrdkafkaOffsetStore and wasmline/kafka/librdkafka_ctypes.py, and close "
    "docs/decisions/0005-exact-commit-metadata.md"
)

Consumers = Callable[..., Consumer]
Producers = Callable[..., Producer]


@pytest.fixture
def group() -> str:
    return f"group-{uuid.uuid4()}"


@pytest.fixture
def consumers(kafka: RunningKafka, group: str) -> Iterator[Consumers]:
    """A factory of consumers of the test's group; ``_`` in a setting stands for a dot."""
    opened: list[Consumer] = []

    def open_consumer(**settings: str) -> Consumer:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        fixed = {"group.id": group, "enable.auto.commit": "false", "auto.offset.reset": "earliest"}
        opened.append(Consumer(kafka.config.client(**fixed, **named)))
        return opened[-1]

    yield open_consumer
    for consumer in opened:
        consumer.close()


@pytest.fixture
def transactional(kafka: RunningKafka) -> Producers:
    def open_producer(identity: str | None = None) -> Producer:
        opened = producer(kafka.config, **{"transactional.id": identity or f"id-{uuid.uuid4()}", "linger.ms": "0"})
        opened.init_transactions(30)
        return opened

    return open_producer


def kept(offset_store: CommittedOffsetStore, metadata: str) -> str:
    return metadata if offset_store.keeps_metadata else ""


def error_of(raised: pytest.ExceptionInfo[KafkaException]) -> KafkaError:
    error = raised.value.args[0]
    assert isinstance(error, KafkaError)
    return error


def raw_metadata(consumer: Consumer, partition: TopicPartition) -> bytes:
    """Return what the broker holds, past everything that the doors make of it."""
    library = Librdkafka()
    with library.partitions([Entry(*partition)]) as asked:
        assert library["committed"](library.handle(consumer), asked, 15_000) == 0
        return entries_of(asked)[0].metadata


def join(consumer: Consumer, topic: str) -> None:
    consumer.subscribe([topic])
    while not consumer.assignment():
        consumer.poll(0.1)


@STORES
def test_what_was_committed_is_read_by_another_consumer(
    offset_store: CommittedOffsetStore, kafka: RunningKafka, consumers: Consumers
) -> None:
    first, second = (TopicPartition(kafka.topic(partitions=3), index) for index in (1, 2))
    offset_store.commit(consumers(), {first: CommittedOffset(7, "map"), second: CommittedOffset(1 << 40)})
    assert offset_store.committed(consumers(), [second, first, first]) == {
        first: CommittedOffset(7, kept(offset_store, "map")),
        second: CommittedOffset(1 << 40),
    }


@STORES
def test_partitions_without_a_commit_are_absent(
    offset_store: CommittedOffsetStore, kafka: RunningKafka, consumers: Consumers
) -> None:
    topic = kafka.topic(partitions=2)
    consumer = consumers()
    assert offset_store.committed(consumer, [TopicPartition(topic, 0), TopicPartition(topic, 1)]) == {}
    offset_store.commit(consumer, {TopicPartition(topic, 1): CommittedOffset(0)})
    found = offset_store.committed(consumer, [TopicPartition(topic, 0), TopicPartition(topic, 1)])
    assert found == {TopicPartition(topic, 1): CommittedOffset(0)}


@STORES
def test_every_length_that_a_broker_takes_is_kept_or_dropped_whole(
    offset_store: CommittedOffsetStore, kafka: RunningKafka, consumers: Consumers
) -> None:
    topic = kafka.topic(partitions=64)
    writer, reader = consumers(), consumers()
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/" * 65
    for start in range(0, 4097, 64):
        lengths = range(start, min(start + 64, 4097))
        written = {
            TopicPartition(topic, length % 64): CommittedOffset(length, alphabet[length % 63 :][:length])
            for length in lengths
        }
        # The exact store writes for both: a plain reader meets maps of others, too.
        EXACT.commit(writer, written)
        assert offset_store.committed(reader, written) == {
            partition: CommittedOffset(each.offset, kept(offset_store, each.metadata))
            for partition, each in written.items()
        }


@STORES
@pytest.mark.parametrize("metadata", ["", "é", "смещение", "漢字", "𝄞 and 😀", "inner\0nul", " ", "\n"])
def test_text_of_any_alphabet_is_kept_or_dropped_whole(
    offset_store: CommittedOffsetStore, metadata: str, kafka: RunningKafka, consumers: Consumers
) -> None:
    partition = TopicPartition(kafka.topic(), 0)
    EXACT.commit(consumers(), {partition: CommittedOffset(3, metadata)})
    assert offset_store.committed(consumers(), [partition]) == {
        partition: CommittedOffset(3, kept(offset_store, metadata))
    }


def test_exact_metadata_has_no_terminator_on_the_broker(kafka: RunningKafka, consumers: Consumers) -> None:
    partition = TopicPartition(kafka.topic(), 0)
    consumer = consumers()
    EXACT.commit(consumer, {partition: CommittedOffset(3, "aé=")})
    assert raw_metadata(consumer, partition) == "aé=".encode()


def test_a_plain_commit_removes_the_map_that_was_there(kafka: RunningKafka, consumers: Consumers) -> None:
    partition = TopicPartition(kafka.topic(), 0)
    consumer = consumers()
    EXACT.commit(consumer, {partition: CommittedOffset(3, "map of 3")})
    OffsetsOnlyStore().commit(consumer, {partition: CommittedOffset(4, "map of 4")})
    assert EXACT.committed(consumer, [partition]) == {partition: CommittedOffset(4)}


def test_one_terminator_of_another_client_is_dropped(kafka: RunningKafka, consumers: Consumers) -> None:
    partition = TopicPartition(kafka.topic(), 0)
    consumer = consumers()
    EXACT.commit(consumer, {partition: CommittedOffset(3, "map\0\0")})
    assert EXACT.committed(consumer, [partition]) == {partition: CommittedOffset(3, "map\0")}


def test_metadata_that_is_too_long_is_refused_and_the_offset_stays(kafka: RunningKafka, consumers: Consumers) -> None:
    partition = TopicPartition(kafka.topic(), 0)
    consumer = consumers()
    EXACT.commit(consumer, {partition: CommittedOffset(3)})
    with pytest.raises(KafkaException, match=rf"{partition.topic} \[0\]") as refused:
        EXACT.commit(consumer, {partition: CommittedOffset(4, "x" * 4097)})
    assert error_of(refused).code() == KafkaError.OFFSET_METADATA_TOO_LARGE
    assert EXACT.committed(consumer, [partition]) == {partition: CommittedOffset(3)}


@STORES
def test_many_partitions_of_several_topics_go_in_one_request(
    offset_store: CommittedOffsetStore, kafka: RunningKafka, consumers: Consumers
) -> None:
    topics = [kafka.topic(partitions=100) for _ in range(2)]
    written = {
        TopicPartition(topic, index): CommittedOffset(index, kept(offset_store, f"{topic}/{index}"))
        for topic in topics
        for index in range(100)
    }
    offset_store.commit(consumers(), written)
    assert offset_store.committed(consumers(), reversed(list(written))) == written


@STORES
def test_a_member_commits_and_a_stranger_is_refused_meanwhile(
    offset_store: CommittedOffsetStore, kafka: RunningKafka, consumers: Consumers
) -> None:
    partition = TopicPartition(kafka.topic(), 0)
    member, stranger = consumers(), consumers()
    join(member, partition.topic)
    offset_store.commit(member, {partition: CommittedOffset(5, "member's")})
    with pytest.raises(KafkaException) as refused:
        offset_store.commit(stranger, {partition: CommittedOffset(9, "stranger's")})
    assert error_of(refused).code() == KafkaError.UNKNOWN_MEMBER_ID
    assert offset_store.committed(stranger, [partition]) == {
        partition: CommittedOffset(5, kept(offset_store, "member's"))
    }


@STORES
def test_a_transaction_carries_offsets_and_metadata(
    offset_store: CommittedOffsetStore, kafka: RunningKafka, consumers: Consumers, transactional: Producers
) -> None:
    topic = kafka.topic(partitions=2)
    consumer = consumers(isolation_level="read_committed")
    writer = transactional()
    for offset in (5, 6):
        written = {
            TopicPartition(topic, index): CommittedOffset(offset, kept(offset_store, "€" * 24)) for index in (0, 1)
        }
        writer.begin_transaction()
        writer.produce(topic, b"output")
        offset_store.send_offsets(writer, consumer.consumer_group_metadata(), written)
        writer.commit_transaction(30)
        assert offset_store.committed(consumer, written) == written


@STORES
def test_a_member_s_transaction_carries_offsets_too(
    offset_store: CommittedOffsetStore, kafka: RunningKafka, consumers: Consumers, transactional: Producers
) -> None:
    partition = TopicPartition(kafka.topic(), 0)
    member = consumers(isolation_level="read_committed")
    join(member, partition.topic)
    writer = transactional()
    writer.begin_transaction()
    offset_store.send_offsets(writer, member.consumer_group_metadata(), {partition: CommittedOffset(5, "map")})
    writer.commit_transaction(30)
    assert offset_store.committed(member, [partition]) == {partition: CommittedOffset(5, kept(offset_store, "map"))}


@STORES
@pytest.mark.parametrize("committed", [True, False], ids=["committed", "aborted"])
def test_a_read_committed_consumer_gets_no_older_offset_while_a_transaction_is_open(
    offset_store: CommittedOffsetStore,
    committed: bool,
    kafka: RunningKafka,
    consumers: Consumers,
    transactional: Producers,
) -> None:
    partition = TopicPartition(kafka.topic(), 0)
    stable, hasty = consumers(isolation_level="read_committed"), consumers(isolation_level="read_uncommitted")
    older, newer = CommittedOffset(5, kept(offset_store, "older")), CommittedOffset(9, kept(offset_store, "newer"))
    offset_store.commit(stable, {partition: older})
    writer = transactional()
    writer.begin_transaction()
    offset_store.send_offsets(writer, stable.consumer_group_metadata(), {partition: newer})
    with pytest.raises(KafkaException) as waiting:
        offset_store.committed(stable, [partition], timeout=1)
    assert error_of(waiting).code() == KafkaError._TIMED_OUT
    assert offset_store.committed(hasty, [partition]) == {partition: older}
    if committed:
        writer.commit_transaction(30)
    else:
        writer.abort_transaction(30)
    assert offset_store.committed(stable, [partition]) == {partition: newer if committed else older}


@STORES
def test_a_waiting_read_returns_what_the_transaction_left(
    offset_store: CommittedOffsetStore, kafka: RunningKafka, consumers: Consumers, transactional: Producers
) -> None:
    partition = TopicPartition(kafka.topic(), 0)
    consumer = consumers(isolation_level="read_committed")
    offset_store.commit(consumer, {partition: CommittedOffset(5)})
    writer = transactional()
    writer.begin_transaction()
    offset_store.send_offsets(writer, consumer.consumer_group_metadata(), {partition: CommittedOffset(9)})
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(offset_store.committed, consumer, [partition], 30)
        writer.commit_transaction(30)
        assert reading.result() == {partition: CommittedOffset(9)}


@STORES
def test_a_fenced_producer_learns_that_it_is_fatal(
    offset_store: CommittedOffsetStore, kafka: RunningKafka, consumers: Consumers, transactional: Producers
) -> None:
    partition = TopicPartition(kafka.topic(), 0)
    group = consumers().consumer_group_metadata()
    identity = f"id-{uuid.uuid4()}"
    older = transactional(identity)
    older.begin_transaction()
    transactional(identity)
    with pytest.raises(KafkaException) as raised:
        offset_store.send_offsets(older, group, {partition: CommittedOffset(1)})
    error = error_of(raised)
    assert (error.code(), error.fatal(), error.retriable()) == (KafkaError._FENCED, True, False)


@STORES
def test_the_offsets_of_a_member_that_left_abort_the_transaction(
    offset_store: CommittedOffsetStore, kafka: RunningKafka, consumers: Consumers, transactional: Producers
) -> None:
    partition = TopicPartition(kafka.topic(), 0)
    member = consumers()
    join(member, partition.topic)
    metadata = member.consumer_group_metadata()
    member.close()
    writer = transactional()
    writer.begin_transaction()
    with pytest.raises(KafkaException) as raised:
        offset_store.send_offsets(writer, metadata, {partition: CommittedOffset(1)})
    error = error_of(raised)
    assert (error.txn_requires_abort(), error.fatal(), error.retriable()) == (True, False, False)
    writer.abort_transaction(30)


@STORES
def test_offsets_outside_a_transaction_are_refused(
    offset_store: CommittedOffsetStore, kafka: RunningKafka, consumers: Consumers, transactional: Producers
) -> None:
    partition = TopicPartition(kafka.topic(), 0)
    with pytest.raises(KafkaException) as raised:
        offset_store.send_offsets(
            transactional(), consumers().consumer_group_metadata(), {partition: CommittedOffset(1)}
        )
    assert error_of(raised).code() == KafkaError._STATE


@STORES
def test_two_threads_share_a_consumer(
    offset_store: CommittedOffsetStore, kafka: RunningKafka, consumers: Consumers
) -> None:
    topic = kafka.topic(partitions=2)
    consumer = consumers()
    together = threading.Barrier(2)

    def go(index: int) -> None:
        partition = TopicPartition(topic, index)
        together.wait()
        for offset in range(200):
            written = {partition: CommittedOffset(offset, kept(offset_store, f"{index}" * (offset % 100)))}
            offset_store.commit(consumer, written)
            assert offset_store.committed(consumer, [partition]) == written

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(go, (0, 1)))


@pytest.mark.skipif(sys.platform != "linux", reason="the memory of a process is read from Linux's /proc")
def test_reads_and_commits_leave_no_memory_behind(kafka: RunningKafka, consumers: Consumers) -> None:
    partition = TopicPartition(kafka.topic(), 0)
    consumer = consumers()
    written = {partition: CommittedOffset(1, "x" * 4096)}

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def go(reads: int, commits: int) -> None:
        for _ in range(commits):
            EXACT.commit(consumer, written)
        for _ in range(reads):
            assert EXACT.committed(consumer, [partition]) == written

    go(2_000, 500)
    before = resident()
    go(*((20_000, 5_000) if "WASMLINE_LONG" in os.environ else (8_000, 2_000)))
    assert resident() - before < 4_000_000, "a tenth of what was read and written"


def test_a_frozen_broker_holds_nobody_up_and_the_consumer_goes_on_afterwards(tmp_path: Path) -> None:
    with LocalKafka(tmp_path / "kafka") as local:
        kafka = RunningKafka(local=local, config=KafkaConfig({"bootstrap.servers": local.bootstrap_servers}))
        partition = TopicPartition(kafka.topic(), 0)
        consumer = Consumer(kafka.config.client(**{"group.id": "group", "enable.auto.commit": "false"}))
        writer = producer(kafka.config, **{"transactional.id": "id", "socket.timeout.ms": "1000"})
        writer.init_transactions(30)
        EXACT.commit(consumer, {partition: CommittedOffset(1, "before")})
        writer.begin_transaction()
        metadata = consumer.consumer_group_metadata()
        with frozen(local):
            with pytest.raises(KafkaException, match="may still be carried out") as commit:
                EXACT.commit(consumer, {partition: CommittedOffset(2, "meanwhile")}, timeout=0.5)
            with pytest.raises(KafkaException, match="no committed offsets within") as read:
                EXACT.committed(consumer, [partition], timeout=0.5)
            with pytest.raises(KafkaException) as send:
                EXACT.send_offsets(writer, metadata, {partition: CommittedOffset(3, "sent")}, timeout=0.5)
        assert {error_of(each).code() for each in (commit, read, send)} == {KafkaError._TIMED_OUT}
        assert error_of(send).retriable()
        EXACT.send_offsets(writer, metadata, {partition: CommittedOffset(3, "sent")})  # the same call again
        writer.abort_transaction(30)
        EXACT.commit(consumer, {partition: CommittedOffset(4, "afterwards")})
        assert EXACT.committed(consumer, [partition]) == {partition: CommittedOffset(4, "afterwards")}
        consumer.close()


def test_the_self_test_leaves_nothing_behind_and_the_group_alone(
    kafka: RunningKafka, group: str, consumers: Consumers
) -> None:
    partition = TopicPartition(kafka.topic(), 0)
    EXACT.commit(consumers(), {partition: CommittedOffset(5, "map")})
    self_test(EXACT, kafka.config, group, partition)
    assert EXACT.committed(consumers(), [partition]) == {partition: CommittedOffset(5, "map")}
    admin = AdminClient(kafka.config.client())
    admin.list_topics(timeout=15)  # a client that knows no broker yet lists no groups
    listed = admin.list_consumer_groups(request_timeout=15).result()
    assert [each.group_id for each in listed.valid if each.group_id.startswith(group)] == [group]


def test_the_self_test_fails_a_door_that_drops_metadata(kafka: RunningKafka, group: str) -> None:
    with pytest.raises(InexactMetadata, match="came back"):
        self_test(OffsetsOnlyStore(), kafka.config, group, TopicPartition(kafka.topic(), 0))


class ForgetfulStore(LibrdkafkaOffsetStore):
    """Its groups lose their commits ``times`` times, as while a process stands still for longer than the retention."""

    def __init__(self, config: KafkaConfig, group: str, times: int) -> None:
        super().__init__()
        self._admin = AdminClient(config.client())
        self._admin.list_topics(timeout=15)  # a client that knows no broker yet lists no groups
        self._group = group
        self._times = times

    def commit(
        self, consumer: Consumer, offsets: Mapping[TopicPartition, CommittedOffset], timeout: float = 15.0
    ) -> None:
        super().commit(consumer, offsets, timeout)
        if self._times:
            self._times -= 1
            groups = [each.group_id for each in self._admin.list_consumer_groups(request_timeout=15).result().valid]
            scratch = [each for each in groups if each.startswith(self._group)]
            for answer in self._admin.delete_consumer_groups(scratch, request_timeout=15).values():
                answer.result()


def test_the_self_test_is_repeated_where_its_commit_has_expired(kafka: RunningKafka, group: str) -> None:
    partition = TopicPartition(kafka.topic(), 0)
    self_test(ForgetfulStore(kafka.config, group, 1), kafka.config, group, partition)
    with pytest.raises(InexactMetadata, match="None came back"):
        self_test(ForgetfulStore(kafka.config, group, 2), kafka.config, group, partition)


def test_the_door_of_this_installation_is_exact(
    kafka: RunningKafka, group: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    assert select_offset_store(kafka.config, group, TopicPartition(kafka.topic(), 0)).keeps_metadata
    assert caplog.text == ""


def test_a_partition_that_is_not_there_says_nothing_about_the_client(kafka: RunningKafka, group: str) -> None:
    with pytest.raises(TopicNotFound, match="no-such-topic"):
        select_offset_store(kafka.config, group, TopicPartition("no-such-topic", 0))


def test_the_client_still_writes_a_terminator(kafka: RunningKafka, consumers: Consumers) -> None:
    partition = TopicPartition(kafka.topic(), 0)
    consumer = consumers()
    offset = confluent_kafka.TopicPartition(*partition, 5, "c29tZSBtYXA=")
    consumer.commit(offsets=[offset], asynchronous=False)
    assert raw_metadata(consumer, partition) == b"c29tZSBtYXA=\0", FIXED
    assert EXACT.committed(consumer, [partition]) == {partition: CommittedOffset(5, "c29tZSBtYXA=")}


@pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="what follows 24 bytes in memory is known of glibc's heap"
)
def test_the_client_still_reads_past_the_end(kafka: RunningKafka, consumers: Consumers) -> None:
    partition = TopicPartition(kafka.topic(), 0)
    consumer = consumers()
    EXACT.commit(consumer, {partition: CommittedOffset(5, "x" * 24)})

    def read() -> str | None:
        try:
            return consumer.committed([confluent_kafka.TopicPartition(*partition)], timeout=15)[0].metadata
        except UnicodeDecodeError:
            return None

    assert {read() for _ in range(20)} != {"x" * 24}, FIXED
