"""Where garbage is collected rarely, what a consumer is done with is freed without the collector."""

from __future__ import annotations

import gc
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from support.consumers.clusters import Cluster, Kafka, Memory, numbered
from support.consumers.column_handlers import ColumnHandlers
from support.consumers.running_consumer import TIMEOUT_S, Running
from wasmline.consumer import ConsumedRecord, ConsumerHealth, ConsumerOptions, Delivery, Output, RetryPolicy
from wasmline.consumer.columns import ColumnResult, OutputColumns, RecordColumns
from wasmline.consumer.handler_adapters import Handler
from wasmline.consumer.state.calls import Call
from wasmline.consumer.state.column_queue import ColumnBatch
from wasmline.kafka.committed_offset_store import LibrdkafkaOffsetStore

RECORDS = 300
FAILING = 13
"""The offset of the record that always fails."""

REFUSED = 150
"""The offset of the record whose output is too large for its topic."""

LARGE = (Call, ColumnBatch, ColumnResult, ConsumedRecord, Output, OutputColumns, RecordColumns, pa.RecordBatch)
"""Types of the objects that records and outputs are in."""


@pytest.fixture(params=["memory", "kafka"])
def cluster(request: pytest.FixtureRequest) -> Cluster:
    return Memory() if request.param == "memory" else Kafka(request.getfixturevalue("kafka"))


@pytest.fixture
def garbage() -> Iterator[list[object]]:
    """What only the collector would free, once it has run."""
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        yield gc.garbage
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


def kept(garbage: list[object]) -> Counter[str]:
    """Return how many objects of each type in LARGE only the collector freed."""
    gc.collect()
    return Counter(type(each).__name__ for each in garbage if isinstance(each, LARGE))


class Copies:
    """Handlers that copy records to a topic; FAILING fails, and of REFUSED the output is too large."""

    def __init__(self, target: str) -> None:
        self._target = target

    def one(self, record: ConsumedRecord) -> list[Output]:
        if record.offset == FAILING:
            raise ValueError("it always fails")
        value = b"x" * 50_000 if record.offset == REFUSED else record.value
        return [Output(self._target, value, record.key, record.headers, record.timestamp)]

    def many(self, records: Sequence[ConsumedRecord]) -> list[Output]:
        return [output for record in records for output in self.one(record)]

    async def coroutine(self, record: ConsumedRecord) -> list[Output]:
        return self.one(record)


@pytest.mark.parametrize("delivery", list(Delivery))
@pytest.mark.parametrize("kind", ["one", "many", "coroutine", "columns"])
def test_what_is_done_is_in_no_reference_cycle(
    cluster: Cluster, group: str, delivery: Delivery, kind: str, garbage: list[object]
) -> None:
    topic, target, dead = cluster.topic(), cluster.topic(max_message_bytes=10_000), cluster.topic()
    cluster.write(*numbered(topic, RECORDS, keys=7))
    copies = Copies(target)
    handler: Handler = ColumnHandlers(copies.one) if kind == "columns" else getattr(copies, kind)
    options = ConsumerOptions(
        topics=(topic,),
        group_id=group,
        delivery=delivery,
        batch_size=20 if kind in ("many", "columns") else None,
        commit_interval_ms=20,
        max_concurrency=2,
        dead_letter_topic=dead,
        retry=RetryPolicy(max_attempts=2, delay_ms=0),
    )
    with Running(cluster, options, handler) as running:
        running.until(lambda health: [each.settled for each in health.partitions] == [RECORDS])
        assert kept(garbage) == {}
    assert len({record.value for record in cluster.read(target)}) == RECORDS - 2


@pytest.mark.parametrize("kind", ["one", "columns"])
def test_a_transaction_whose_offsets_fail_is_in_no_reference_cycle(
    real_cluster: Kafka, group: str, kind: str, garbage: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    send = LibrdkafkaOffsetStore.send_offsets

    def send_late(*given: Any) -> None:
        """Send them once an output was rejected, so that they are rejected, too."""
        time.sleep(0.3)
        send(*given)

    monkeypatch.setattr(LibrdkafkaOffsetStore, "send_offsets", send_late)
    topic, target, dead = real_cluster.topic(), real_cluster.topic(max_message_bytes=10_000), real_cluster.topic()
    real_cluster.write(*numbered(topic, RECORDS, keys=7))
    copies = Copies(target)
    handler: Handler = ColumnHandlers(copies.one) if kind == "columns" else copies.one
    options = ConsumerOptions(
        topics=(topic,),
        group_id=group,
        delivery=Delivery.EXACTLY_ONCE,
        batch_size=20 if kind == "columns" else None,
        commit_interval_ms=20,
        max_concurrency=2,
        dead_letter_topic=dead,
        retry=RetryPolicy(max_attempts=1),
    )
    with Running(real_cluster, options, handler) as running:
        running.until(lambda health: [each.settled for each in health.partitions] == [RECORDS])
        assert kept(garbage) == {}
    assert len(real_cluster.read(dead)) == 2


def test_outputs_that_are_rejected_together_are_in_no_reference_cycle(
    real_cluster: Kafka, group: str, garbage: list[object]
) -> None:
    topic, target = real_cluster.topic(), real_cluster.topic(max_message_bytes=100_000)
    is_limited, first, several = threading.Event(), 10, 50

    def one(record: ConsumedRecord) -> Output:
        if record.offset >= first:
            assert is_limited.wait(TIMEOUT_S)
        return Output(target, b"x" * 300)

    options = ConsumerOptions(
        topics=(topic,),
        group_id=group,
        delivery=Delivery.EXACTLY_ONCE,
        commit_interval_ms=500,
        max_concurrency=2,
    )
    with Running(real_cluster, options, one) as running:
        real_cluster.write(*numbered(topic, first))
        running.until(lambda health: [each.settled for each in health.partitions] == [first])
        real_cluster.limit(target, 4_000)
        real_cluster.write(*numbered(topic, several))
        is_limited.set()
        running.until(lambda health: [each.settled for each in health.partitions] == [first + several])
        assert kept(garbage) == {}
        assert running.consumer.health().counters.failed_commits > 0
    assert len(real_cluster.read(target)) == first + several


def raising(records: Sequence[ConsumedRecord]) -> None:
    """Fail each call that has several records."""
    if len(records) > 1:
        raise MemoryError("too many")


def raising_for_one_key(records: Sequence[ConsumedRecord]) -> None:
    """Fail each call that has several records, and one of the first key."""
    if len(records) > 1 and any(record.key == b"0" for record in records):
        raise MemoryError("too many")


@pytest.mark.parametrize("delivery", list(Delivery))
@pytest.mark.parametrize(
    ("before", "fails", "letters"),
    [
        (raising, lambda record, attempt: False, 10_000),
        (raising_for_one_key, lambda record, attempt: record.offset % 7 in (3, 4), 10_000),
        (None, lambda record, attempt: record.offset % 5 == 2 and attempt == 0, None),
        (None, lambda record, attempt: record.offset == FAILING, 600),
    ],
    ids=["all calls", "one call and records", "records without dead letters", "an output and its dead letter"],
)
def test_what_failed_is_in_no_reference_cycle(
    group: str,
    delivery: Delivery,
    before: Callable[[Sequence[ConsumedRecord]], None] | None,
    fails: Callable[[ConsumedRecord, int], bool],
    letters: int | None,
    garbage: list[object],
) -> None:
    cluster, attempts = Memory(), Counter[int]()
    topic, target = cluster.topic(), cluster.topic(max_message_bytes=10_000)
    dead = None if letters is None else cluster.topic(max_message_bytes=letters)
    cluster.write(*[Output(topic, b"v" * 600, b"%d" % (number % 7), partition=0) for number in range(RECORDS)])

    def one(record: ConsumedRecord) -> list[Output]:
        attempts[record.offset] += 1
        if fails(record, attempts[record.offset] - 1):
            raise ValueError("it fails")
        size = 50_000 if letters == 600 and record.offset == REFUSED else 10
        return [Output(target, b"x" * size, b"%d" % record.offset, timestamp=1)]

    options = ConsumerOptions(
        topics=(topic,),
        group_id=group,
        delivery=delivery,
        batch_size=RECORDS,
        commit_interval_ms=20,
        max_concurrency=2,
        dead_letter_topic=dead,
        retry=RetryPolicy(max_attempts=3, delay_ms=0),
    )
    with Running(cluster, options, ColumnHandlers(one, before)) as running:
        running.until(lambda health: [each.settled for each in health.partitions] == [RECORDS])
        assert kept(garbage) == {}


@pytest.mark.parametrize("delivery", list(Delivery))
@pytest.mark.parametrize("kind", ["many", "columns"])
def test_what_is_in_flight_at_a_rebalance_is_in_no_reference_cycle(
    group: str, delivery: Delivery, kind: str, garbage: list[object]
) -> None:
    cluster, are_held = Memory(), threading.Event()
    topic, target = cluster.topic(2), cluster.topic()
    for partition in range(2):
        cluster.write(*numbered(topic, RECORDS, keys=7, partition=partition))

    def one(record: ConsumedRecord) -> list[Output]:
        if record.offset == FAILING:
            are_held.wait(TIMEOUT_S)
        return [Output(target, record.value, record.key, timestamp=1)]

    def many(records: Sequence[ConsumedRecord]) -> list[Output]:
        return [output for record in records for output in one(record)]

    options = ConsumerOptions(
        topics=(topic,),
        group_id=group,
        delivery=delivery,
        batch_size=20,
        commit_interval_ms=20,
        max_concurrency=2,
        revoke_wait_ms=0,
    )
    handler: Handler = ColumnHandlers(one) if kind == "columns" else many
    with Running(cluster, options, handler) as first:
        first.until(lambda health: sum(each.in_flight for each in health.partitions) > 0)
        with Running(cluster, options, many) as second:
            second.until(lambda health: health.partitions)
            first.until(lambda health: len(health.partitions) == 1)
            are_held.set()
            ended = partial(all_settled, (first, second))
            first.until(ended)
            assert kept(garbage) == {}


def all_settled(members: Sequence[Running], _: ConsumerHealth) -> bool:
    """Return whether all records of the members' partitions are committed."""
    return all(each.settled == RECORDS for member in members for each in member.consumer.health().partitions)
