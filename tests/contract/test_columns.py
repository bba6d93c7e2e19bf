"""Records that are read and written as columns: the same promises as of records, and either continues the other."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from support.consumers.clusters import Cluster, Kafka, Memory, numbered
from support.consumers.column_handlers import ColumnHandlers
from support.consumers.running_consumer import Running, ended
from wasmline.consumer import ConsumedRecord, ConsumerOptions, Output, RetryPolicy
from wasmline.consumer.columns import by_partition
from wasmline.errors import HandlerBroken, OffsetOutOfRange, RecordGivenUp
from wasmline.kafka import compiled_columns
from wasmline.offset_maps import decode
from wasmline.topic_partitions import CommittedOffset, TopicPartition

WAYS = ("compiled", "messages")
"""How a real client's records become columns: by compiled code, or through messages in Python."""

RECORDS = 60
ODD = 13
"""The offset of the record that is different."""

DELIVERIES = pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])


@pytest.fixture(params=["memory", *WAYS])
def cluster(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    return Memory() if request.param == "memory" else _real(request, monkeypatch)


@pytest.fixture(params=WAYS)
def real_cluster(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Kafka:
    return _real(request, monkeypatch)


def _real(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Kafka:
    if request.param == "messages":
        monkeypatch.setattr(compiled_columns, "compiled_columns", lambda: None)
    else:
        assert compiled_columns.compiled_columns() is not None
    return Kafka(request.getfixturevalue("kafka"))


def options(topic: str, group: str, delivery: str, **others: Any) -> ConsumerOptions:
    fields: dict[str, Any] = {"commit_interval_ms": 50, "batch_size": 1_000, "max_concurrency": 2, **others}
    return ConsumerOptions(topics=(topic,), group_id=group, delivery=delivery, **fields)  # type: ignore[arg-type]


def done(cluster: Cluster, group: str, topic: str, partition: int = 0) -> set[int]:
    """Return the offsets that the group has committed as done."""
    left = cluster.committed(group, topic).get(TopicPartition(topic, partition))
    if left is None:
        return set()
    highest, incompletes = decode(left.metadata, left.offset)
    return set(range(max(left.offset, highest + 1))) - set(incompletes)


def written(cluster: Cluster, topic: str) -> list[int]:
    """Return the offsets of the inputs whose outputs a read_committed reader sees."""
    return sorted(int(record.key or b"") for record in cluster.read(topic))


def with_one_large(target: str) -> ColumnHandlers:
    """Return handlers of which one output has 50,000 bytes."""
    return ColumnHandlers(
        lambda record: [
            Output(target, b"x" * 50_000 if record.offset == ODD else b"", b"%d" % record.offset, timestamp=1)
        ]
    )


def to(target: str) -> Callable[[ConsumedRecord], list[Output]]:
    return lambda record: [Output(target, record.value, b"%d" % record.offset, record.headers, record.timestamp)]


@DELIVERIES
def test_all_records_are_done_once_in_calls_of_many(cluster: Cluster, group: str, delivery: str) -> None:
    topic, target = cluster.topic(), cluster.topic()
    cluster.write(*numbered(topic, RECORDS, keys=7))
    handlers = ColumnHandlers(to(target))
    with Running(cluster, options(topic, group, delivery), handlers) as running:
        running.until(lambda _: done(cluster, group, topic) == set(range(RECORDS)))
        health = running.consumer.health()
    assert written(cluster, target) == list(range(RECORDS))
    assert (sum(handlers.sizes), handlers.singles) == (RECORDS, [])
    assert health.counters.records == RECORDS
    [partition] = health.partitions
    assert (partition.counts.records, partition.counts.outputs) == (RECORDS, RECORDS)
    assert (partition.incompletes, partition.buffered_bytes, partition.in_flight, partition.queued) == (0, 0, 0, 0)


@DELIVERIES
@pytest.mark.parametrize("letters", [True, False], ids=["dead letters", "no dead letters"])
def test_an_output_that_is_too_large_takes_no_other_with_it(
    cluster: Cluster, group: str, delivery: str, letters: bool
) -> None:
    topic, target, dead = cluster.topic(), cluster.topic(max_message_bytes=10_000), cluster.topic()
    cluster.write(*numbered(topic, RECORDS, keys=7))

    asked = options(topic, group, delivery, dead_letter_topic=dead if letters else None)
    if not letters:
        failed = ended(cluster, asked, with_one_large(target))
        assert isinstance(failed.failure, RecordGivenUp)
        assert failed.failure.offset == ODD
        assert ODD not in done(cluster, group, topic)
        assert set(written(cluster, target)) >= done(cluster, group, topic)
        return
    with Running(cluster, asked, with_one_large(target)) as running:
        running.until(lambda _: done(cluster, group, topic) == set(range(RECORDS)))
    assert [record.value for record in cluster.read(dead)] == [b"%d" % ODD]
    others = [number for number in range(RECORDS) if number != ODD]
    found = written(cluster, target)
    assert found == others if delivery == "exactly_once" else set(found) == set(others)


@DELIVERIES
def test_an_output_that_the_client_itself_refuses_is_a_dead_letter(
    real_cluster: Kafka, group: str, delivery: str
) -> None:
    topic, target, dead = real_cluster.topic(), real_cluster.topic(), real_cluster.topic()
    real_cluster.write(*numbered(topic, RECORDS, keys=7))

    asked = options(
        topic,
        group,
        delivery,
        dead_letter_topic=dead,
        batch_size=10,
        max_concurrency=1,
        commit_interval_ms=500,  # some calls in one transaction
        kafka={"message.max.bytes": "20000"},
    )
    with Running(real_cluster, asked, with_one_large(target)) as running:
        running.until(lambda _: done(real_cluster, group, topic) == set(range(RECORDS)))
    assert [record.value for record in real_cluster.read(dead)] == [b"%d" % ODD]
    found, others = written(real_cluster, target), [number for number in range(RECORDS) if number != ODD]
    assert found == others if delivery == "exactly_once" else set(found) == set(others)


@DELIVERIES
@pytest.mark.parametrize("letters", [True, False], ids=["dead letters", "no dead letters"])
def test_a_record_that_fails_is_a_dead_letter_or_ends_the_consumer(
    cluster: Cluster, group: str, delivery: str, letters: bool
) -> None:
    topic, target, dead = cluster.topic(), cluster.topic(), cluster.topic()
    cluster.write(*numbered(topic, RECORDS, keys=7))

    def one(record: ConsumedRecord) -> list[Output]:
        if record.offset == ODD:
            raise ValueError("odd")
        return [Output(target, b"", b"%d" % record.offset, timestamp=1)]

    asked = options(
        topic, group, delivery, dead_letter_topic=dead if letters else None, retry=RetryPolicy(max_attempts=1)
    )
    if not letters:
        failed = ended(cluster, asked, ColumnHandlers(one))
        assert isinstance(failed.failure, RecordGivenUp)
        assert (failed.failure.offset, ODD in done(cluster, group, topic)) == (ODD, False)
        assert written(cluster, target) == sorted(done(cluster, group, topic))
        return
    with Running(cluster, asked, ColumnHandlers(one)) as running:
        running.until(lambda _: done(cluster, group, topic) == set(range(RECORDS)))
        health = running.consumer.health()
    [letter] = cluster.read(dead)
    assert (letter.value, dict(letter.headers)["wasmline.error"]) == (b"%d" % ODD, b"ValueError")
    assert written(cluster, target) == [number for number in range(RECORDS) if number != ODD]
    assert (health.counters.records, health.counters.failures, health.counters.given_up) == (RECORDS - 1, 1, 1)
    assert health.partitions[0].counts.dead_letters == {"ValueError": 1}


@DELIVERIES
def test_the_records_of_a_call_that_fails_as_a_whole_run_one_by_one_and_then_those_behind_them(
    cluster: Cluster, group: str, delivery: str
) -> None:
    topic, target, dead = cluster.topic(), cluster.topic(), cluster.topic()
    cluster.write(*numbered(topic, RECORDS, keys=7))

    def refuse(records: Sequence[ConsumedRecord]) -> None:
        if any(record.offset == ODD for record in records):
            raise MemoryError("too much")

    handlers = ColumnHandlers(to(target), refuse)
    retry = RetryPolicy(max_attempts=2, delay_ms=10)
    with Running(
        cluster, options(topic, group, delivery, dead_letter_topic=dead, retry=retry, max_concurrency=1), handlers
    ) as running:
        running.until(lambda _: done(cluster, group, topic) == set(range(RECORDS)))
        cluster.write(*numbered(topic, RECORDS, keys=7))
        running.until(lambda _: done(cluster, group, topic) == set(range(2 * RECORDS)))
    assert [record.value for record in cluster.read(dead)] == [b"%d" % ODD]
    assert written(cluster, target) == [number for number in range(2 * RECORDS) if number != ODD]
    assert handlers.singles.count(ODD) == 2
    assert sum(handlers.sizes) >= 2 * RECORDS - len(set(handlers.singles))


def test_a_broken_handler_ends_the_consumer_and_loses_nothing(cluster: Cluster, group: str) -> None:
    topic, target = cluster.topic(), cluster.topic()
    cluster.write(*numbered(topic, RECORDS, keys=7))

    def refuse(_: Sequence[ConsumedRecord]) -> None:
        raise HandlerBroken("of no use")

    failed = ended(cluster, options(topic, group, "exactly_once"), ColumnHandlers(to(target), refuse))
    assert isinstance(failed.failure, HandlerBroken)
    assert (done(cluster, group, topic), cluster.read(target)) == (set(), [])


@DELIVERIES
def test_what_waits_for_a_retry_under_a_policy_of_ones_own_is_read_as_records(
    cluster: Cluster, group: str, delivery: str
) -> None:
    class Never:
        def after(self, attempt: int, error: Exception) -> float | None:
            return None

    topic, target = cluster.topic(), cluster.topic()
    cluster.write(*numbered(topic, RECORDS, keys=7))
    handlers = ColumnHandlers(to(target))
    with Running(cluster, options(topic, group, delivery, retry=Never()), handlers) as running:
        running.until(lambda _: done(cluster, group, topic) == set(range(RECORDS)))
    assert (handlers.sizes, sorted(handlers.singles)) == ([], list(range(RECORDS)))


@DELIVERIES
def test_two_guests_share_a_partition_and_each_key_stays_in_order(cluster: Cluster, group: str, delivery: str) -> None:
    topic, target = cluster.topic(), cluster.topic()
    records = 3_000  # several batches: one thread may make both calls of a batch
    cluster.write(*numbered(topic, records, keys=7))
    threads: dict[bytes | None, list[tuple[int, str]]] = {}

    def one(record: ConsumedRecord) -> list[Output]:
        threads.setdefault(record.key, []).append((record.offset, threading.current_thread().name))
        return [Output(target, b"%d" % record.offset, record.key, timestamp=1)]

    def pause(_: Sequence[ConsumedRecord]) -> None:
        time.sleep(random.random() / 50)

    with Running(cluster, options(topic, group, delivery), ColumnHandlers(one, pause)) as running:
        running.until(lambda _: done(cluster, group, topic) == set(range(records)))
    for seen in threads.values():
        assert [offset for offset, _ in seen] == sorted(offset for offset, _ in seen)
    assert len({name for seen in threads.values() for _, name in seen}) == 2
    found = [int(record.value or b"") for record in cluster.read(target)]
    assert found == list(range(records))


@DELIVERIES
def test_members_of_either_kind_continue_each_other(cluster: Cluster, group: str, delivery: str) -> None:
    topic, target, partitions = cluster.topic(3), cluster.topic(), 3
    written_so_far = 0

    def one(record: ConsumedRecord) -> list[Output]:
        time.sleep(0.001)
        return [Output(target, b"%d-%d" % (record.partition, record.offset), record.key, timestamp=1)]

    def batch(records: Sequence[ConsumedRecord]) -> list[Output]:
        return [output for record in records for output in one(record)]

    def produce() -> None:
        nonlocal written_so_far
        cluster.write(
            *(
                Output(topic, b"", b"%d" % (number % 11), partition=number % partitions)
                for number in range(written_so_far, written_so_far + 300)
            )
        )
        written_so_far += 300

    def all_done() -> bool:
        return all(
            len(done(cluster, group, topic, partition)) == written_so_far // partitions
            for partition in range(partitions)
        )

    asked = options(topic, group, delivery, revoke_wait_ms=2_000)
    produce()
    with Running(cluster, asked, ColumnHandlers(one)) as first:
        first.until(lambda health: health.counters.records > 20)
        produce()
        with Running(cluster, replace(asked, batch_size=5), batch) as second:
            second.until(lambda health: health.partitions)
            first.stop(drain=False)
            produce()
            with Running(cluster, asked, ColumnHandlers(one)) as third:
                third.until(lambda health: health.partitions)
                second.stop(drain=False)
                third.until(lambda _: all_done())
    found = [record.value or b"" for record in cluster.read(target)]
    expected = {b"%d-%d" % (p, o) for p in range(partitions) for o in range(written_so_far // partitions)}
    assert set(found) == expected
    if delivery == "exactly_once":
        assert len(found) == len(expected)
        by_key: dict[tuple[bytes | None, bytes], list[int]] = {}
        for record in cluster.read(target):
            partition, _, offset = (record.value or b"").partition(b"-")
            by_key.setdefault((record.key, partition), []).append(int(offset))
        assert all(offsets == sorted(offsets) for offsets in by_key.values())


def test_records_of_every_shape_come_through(cluster: Cluster, group: str) -> None:
    topic, target = cluster.topic(), cluster.topic()
    shapes = [
        Output(topic, None, None),
        Output(topic, b"", b""),
        Output(topic, b"value", None, [("a", None), ("a", b""), ("é", b"\x00\xff")], 1),
        Output(topic, None, b"key", [], 2**40),
        Output(topic, b"x" * 200_000, b"k" * 1_000),
    ]
    cluster.write(*shapes)

    def one(record: ConsumedRecord) -> list[Output]:
        return [Output(target, record.value, record.key, record.headers, record.timestamp)]

    with Running(cluster, options(topic, group, "at_least_once"), ColumnHandlers(one)) as running:
        running.until(lambda _: done(cluster, group, topic) == set(range(len(shapes))))
    before, after = cluster.read(topic), cluster.read(target)
    assert [each[3:7] for each in after] == [each[3:7] for each in before]


def test_header_names_that_are_no_text_are_read_as_columns_as_they_are_as_records(
    real_cluster: Kafka, group: str
) -> None:
    topic, target = real_cluster.topic(), real_cluster.topic()
    real_cluster.write_headers(topic, [(b"\xff\xfe", b"1"), (b"plain", b"2")])
    with Running(real_cluster, options(topic, group, "at_least_once"), ColumnHandlers(to(target))) as running:
        running.until(lambda _: done(real_cluster, group, topic) == {0})
    [record] = real_cluster.read(target)
    assert record.headers == [("\ufffd\ufffd", b"1"), ("plain", b"2")]


def test_records_become_columns_by_partition_in_their_order() -> None:
    records = [ConsumedRecord("t", number % 2, number, None, b"%d" % number) for number in range(5)]
    found = by_partition(records)
    assert {each.partition.partition: each.offsets.tolist() for each in found} == {0: [0, 2, 4], 1: [1, 3]}
    assert sorted((record for each in found for record in each.records()), key=lambda each: each.offset) == records


@DELIVERIES
@pytest.mark.parametrize("strategy", ["cooperative-sticky", "range"])
def test_a_log_that_was_cut_is_read_from_its_beginning_where_loss_is_allowed(
    cluster: Cluster, group: str, delivery: str, strategy: str
) -> None:
    topic, target = cluster.topic(), cluster.topic()
    partition = TopicPartition(topic, 0)
    cluster.write(*numbered(topic, RECORDS, keys=7))
    cluster.cut(partition, 40)
    cluster.commit(group, {partition: CommittedOffset(10)})
    failed = ended(cluster, options(topic, group, delivery), ColumnHandlers(to(target)))
    assert isinstance(failed.failure, OffsetOutOfRange)
    settings = {"partition.assignment.strategy": strategy}
    asked = options(topic, group, delivery, fail_on_data_loss=False, kafka=settings)
    with Running(cluster, asked, ColumnHandlers(to(target))) as running:
        running.until(lambda _: done(cluster, group, topic) == set(range(RECORDS)))
    assert written(cluster, target) == list(range(40, RECORDS))


@pytest.mark.parametrize("strategy", ["cooperative-sticky", "range"])
def test_partitions_go_on_whose_neighbour_was_cut_while_they_were_read(
    cluster: Cluster, group: str, gate: threading.Event, strategy: str
) -> None:
    topic, target = cluster.topic(2), cluster.topic()
    cluster.write(*numbered(topic, RECORDS, keys=7), *numbered(topic, RECORDS, keys=7, partition=1))

    def one(record: ConsumedRecord) -> list[Output]:
        gate.wait()
        return to(target)(record)

    def is_done(end: int) -> bool:
        return all(done(cluster, group, topic, each) == set(range(end)) for each in (0, 1))

    settings = {"partition.assignment.strategy": strategy}
    asked = options(
        topic, group, "at_least_once", buffer_records=20, batch_size=5, fail_on_data_loss=False, kafka=settings
    )
    with Running(cluster, asked, ColumnHandlers(one)) as running:
        running.until(lambda health: all(each.paused for each in health.partitions) and len(health.partitions) == 2)
        cluster.cut(TopicPartition(topic, 0), 50)
        gate.set()
        running.until(lambda _: is_done(RECORDS))
        cluster.write(*numbered(topic, RECORDS, keys=7), *numbered(topic, RECORDS, keys=7, partition=1))
        running.until(lambda _: is_done(2 * RECORDS))
