"""A partition's part of a batch on a real broker: attempts, zombies and lost progress, without Spark."""

from __future__ import annotations

import gc
import threading
import time
import uuid
import weakref
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, Producer

from support.frozen_node import frozen
from wasmline.errors import BrokerUnavailable, JobError, OutputRefused, ProducerFenced
from wasmline.job_offsets import microbatch_transactions
from wasmline.job_offsets.exactly_once_task import OffsetRange, process_and_commit
from wasmline.job_offsets.microbatch_transactions import BatchTransactions
from wasmline.kafka import KafkaConfig, produce_all, read_to_end
from wasmline.kafka.committed_offset_store import LibrdkafkaOffsetStore
from wasmline.local.process import wait_until
from wasmline.offset_maps.codec import encode
from wasmline.pipeline.transform_runner import PLACED_SCHEMA
from wasmline.testing.kafka import RunningKafka
from wasmline.topic_partitions import CommittedOffset, TopicPartition

SIZE = 100


@dataclass
class Desk:
    """A job's group, its input partition and its output topic; each attempt has clients of its own."""

    config: KafkaConfig
    source: TopicPartition
    target: str
    group: str

    def attempt(self, batches: Iterable[pa.RecordBatch], begin: int = 0, end: int = SIZE) -> int | None:
        with closing(self.transactions()) as transactions:
            part = OffsetRange(source=self.source, begin=begin, end=end)
            committed = process_and_commit([part], lambda _: batches, transactions, self._transform)
            return committed[self.source.partition].before

    def transactions(self) -> BatchTransactions:
        return BatchTransactions(self.config, self.group, self.group, {})

    def commit(self, progress: CommittedOffset) -> None:
        consumer = Consumer(self.config.client(**{"group.id": self.group, "enable.auto.commit": "false"}))
        LibrdkafkaOffsetStore().commit(consumer, {self.source: progress})
        consumer.close()

    def seen(self) -> list[int]:
        return [int(message.value() or b"") for message in read_to_end(self.config, self.target)]

    def _transform(self, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
        rows = [
            {
                "topic": self.target,
                "key": b"k",
                "value": str(offset).encode(),
                "timestamp": 1_700_000_000_000 + offset,
                "partition": self.source.partition,
                "offset": offset,
            }
            for offset in batch.column("offset").to_pylist()
        ]
        return [pa.RecordBatch.from_pylist(rows, schema=PLACED_SCHEMA)]


@pytest.fixture
def desk(kafka: RunningKafka) -> Desk:
    return desk_on(kafka)


def desk_on(kafka: RunningKafka) -> Desk:
    desk = Desk(kafka.config, TopicPartition(kafka.topic(), 0), kafka.topic(), f"test-{uuid.uuid4()}")
    desk.commit(CommittedOffset(0))
    return desk


def records(begin: int = 0, end: int = SIZE, partition: int = 0) -> Iterator[pa.RecordBatch]:
    for first in range(begin, end, 10):
        offsets = pa.array(range(first, min(first + 10, end)), pa.int64())
        partitions = pa.array([partition] * len(offsets), pa.int32())
        yield pa.RecordBatch.from_arrays([partitions, offsets], names=["partition", "offset"])


def test_a_part_is_done_once_however_often_it_is_tried(desk: Desk) -> None:
    for found in (0, SIZE, SIZE):
        assert desk.attempt(records()) == found
    assert desk.seen() == list(range(SIZE))


def test_parts_of_other_bounds_go_on_where_the_last_ended(desk: Desk) -> None:
    desk.attempt(records(0, 40), end=40)
    desk.attempt(records(20, 70), begin=20, end=70)  # a checkpoint that was rolled back plans other ranges
    desk.attempt(records(0, 30), end=30)
    desk.attempt(records(60, 100), begin=60)
    assert desk.seen() == list(range(SIZE))


def test_a_part_that_ends_without_records_is_done_too(desk: Desk) -> None:
    desk.attempt(records(0, 40))
    assert desk.attempt([], begin=100, end=120) == SIZE
    assert desk.attempt(records(120, 130), begin=120, end=130) == 120


@pytest.mark.parametrize("written", [1, 5, 10], ids=["first", "half", "all"])
def test_a_zombie_that_wakes_in_its_open_transaction_commits_nothing(desk: Desk, written: int) -> None:
    asleep, wake = threading.Event(), threading.Event()

    def dozing() -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(records()):
            if number == written:
                asleep.set()
                assert wake.wait(60)
            yield batch
        if written == 10:
            asleep.set()
            assert wake.wait(60)

    with ThreadPoolExecutor(1) as thread:
        zombie = thread.submit(desk.attempt, dozing())
        assert asleep.wait(60)
        assert desk.attempt(records()) == 0
        wake.set()
        with pytest.raises(ProducerFenced, match=r"taken over \S+, or .* transaction\.timeout\.ms"):
            zombie.result(120)
    assert desk.seen() == list(range(SIZE))
    assert desk.attempt(records()) == SIZE


def test_a_zombie_that_wakes_before_the_other_attempt_is_done_commits_nothing(desk: Desk) -> None:
    asleep, wake, ended = threading.Event(), threading.Event(), threading.Event()

    def dozing() -> Iterator[pa.RecordBatch]:
        yield from records(0, 50)
        asleep.set()
        assert wake.wait(60)
        yield from records(50, SIZE)

    def waking() -> Iterator[pa.RecordBatch]:
        yield from records(0, 50)
        wake.set()
        assert ended.wait(60)
        yield from records(50, SIZE)

    with ThreadPoolExecutor(2) as threads:
        zombie = threads.submit(desk.attempt, dozing())
        assert asleep.wait(60)
        other = threads.submit(desk.attempt, waking())
        with pytest.raises(ProducerFenced):
            zombie.result(120)
        ended.set()
        assert other.result(120) == 0
    assert desk.seen() == list(range(SIZE))


def slowly(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        time.sleep(0.05)
        yield batch


def test_attempts_that_race_do_each_part_once_between_them(desk: Desk) -> None:
    together = threading.Barrier(3, timeout=60)

    def racing(_: int) -> int:
        fenced = 0
        for begin in range(0, SIZE, 20):
            together.wait()
            found = None
            while found is None:
                try:
                    found = desk.attempt(slowly(records(begin, begin + 20)), begin, begin + 20)
                except ProducerFenced:
                    fenced += 1
        return fenced

    with ThreadPoolExecutor(3) as threads:
        fenced = sum(threads.map(racing, range(3)))
    assert desk.seen() == list(range(SIZE))
    assert fenced > 0


def test_what_an_attempt_wrote_before_it_failed_is_not_seen(desk: Desk) -> None:
    def failing() -> Iterator[pa.RecordBatch]:
        yield from records(0, 50)
        raise RuntimeError("the guest is broken")

    with pytest.raises(RuntimeError, match="broken"):
        desk.attempt(failing())
    assert desk.seen() == []
    assert desk.attempt(records()) == 0
    assert desk.seen() == list(range(SIZE))


def test_an_attempt_whose_client_never_returns_from_sending_offsets_is_given_up(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As librdkafka's does, where the group's coordinator has left the cluster meanwhile."""
    with monkeypatch.context() as patch:
        patch.setattr(LibrdkafkaOffsetStore, "send_offsets", lambda *_: threading.Event().wait())
        patch.setattr(microbatch_transactions, "OFFSETS_TIMEOUT_S", 0.1)
        with pytest.raises(BrokerUnavailable, match="not answered within"):
            desk.attempt(records())
    assert desk.seen() == []
    assert desk.attempt(records()) == 0
    assert desk.seen() == list(range(SIZE))


def test_an_attempt_whose_client_is_still_sending_offsets_leaves_no_open_transaction_and_no_client(
    stoppable_kafka: RunningKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its client takes no other call meanwhile, and may not return before the transaction's time-out of 15 minutes."""
    desk, send_offsets, thaw = desk_on(stoppable_kafka), LibrdkafkaOffsetStore.send_offsets, ExitStack()
    clients = list[weakref.ref[Producer]]()

    def send_to_frozen(store: LibrdkafkaOffsetStore, client: Producer, *arguments: Any) -> None:
        clients.append(weakref.ref(client))
        thaw.enter_context(frozen(stoppable_kafka.local))
        threading.Timer(2.0, thaw.close).start()
        send_offsets(store, client, *arguments)

    monkeypatch.setattr(LibrdkafkaOffsetStore, "send_offsets", send_to_frozen)
    monkeypatch.setattr(microbatch_transactions, "OFFSETS_TIMEOUT_S", 0.1)
    with pytest.raises(BrokerUnavailable, match="not answered within"):
        desk.attempt(records())
    produce_all(desk.config, desk.target, [(None, b"7", None, None)])
    assert desk.seen() == [7]
    assert wait_until(lambda: gc.collect() is not None and clients[0]() is None, 30)


def test_what_a_key_parallel_consumer_has_done_out_of_order_is_not_done_again(desk: Desk) -> None:
    desk.commit(CommittedOffset(10, encode(10, 60, [10, 20, 30])))
    assert desk.attempt(records(10, 25), begin=10, end=25) == 10
    assert desk.seen() == [10, 20]
    assert desk.attempt(records(25, SIZE), begin=25) == 30
    assert desk.seen() == [10, 20, 30, *range(61, SIZE)]


@pytest.mark.parametrize("found", [None, 30], ids=["deleted", "moved back"])
def test_lost_progress_leaves_a_part_undone(kafka: RunningKafka, desk: Desk, found: int | None) -> None:
    if found is None:
        desk.group = f"test-{uuid.uuid4()}"
    else:
        desk.commit(CommittedOffset(found))
    assert desk.attempt(records(50, SIZE), begin=50) == found
    assert desk.seen() == []


def test_records_of_another_partition_are_refused(desk: Desk) -> None:
    with pytest.raises(JobError, match="each partition's range in one task"):
        desk.attempt([*records(0, 10), *records(10, 20, partition=1)])
    assert desk.seen() == []


def test_an_output_that_its_topic_refuses_is_named_and_nothing_is_written(kafka: RunningKafka, desk: Desk) -> None:
    desk.target = kafka.topic(max_message_bytes="60")
    with pytest.raises(OutputRefused, match="too large"):
        desk.attempt(records())
    assert desk.seen() == []


def test_an_attempt_asks_for_no_record_that_is_done(desk: Desk) -> None:
    """Retention may have removed them: the attempt before may have committed and not said so."""
    asked: list[tuple[int, int]] = []

    def read(left: Sequence[OffsetRange]) -> Iterator[pa.RecordBatch]:
        for part in left:
            asked.append((part.begin, part.end))
            yield from records(part.begin, part.end)

    transactions = BatchTransactions(desk.config, desk.group, desk.group, {})
    with closing(transactions):
        for end in (60, 60, SIZE):
            part = OffsetRange(source=desk.source, begin=0, end=end)
            process_and_commit([part], read, transactions, desk._transform)
    assert asked == [(0, 60), (60, SIZE)]
    assert desk.seen() == list(range(SIZE))
