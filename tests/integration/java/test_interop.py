"""A group moves between Confluent's library and our consumer, both whole: each does what the other left, no more."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from random import Random

import pytest

from support.java_peer.java_peer import Coordinates, JavaPeer, Order
from wasmline.consumer import ConsumedRecord, ConsumerOptions, Delivery, Ordering, ParallelConsumer, RetryPolicy
from wasmline.kafka import producer
from wasmline.testing.kafka import RunningKafka

TIMEOUT_S = 60.0
"""Seconds after which something that has to happen counts as missing."""

NEVER = RetryPolicy(delay_ms=3_600_000)

LAST = 999
JAVA_NAMES = (
    "RunLength",
    "BitSet",
    "RunLengthV2",
    "BitSetV2",
    "RunLengthCompressed",
    "BitSetCompressed",
    "RunLengthV2Compressed",
    "BitSetV2Compressed",
)

SHAPES: list[Collection[int]] = [
    [3, 7, 100, LAST],
    [*range(0, 900, 2), LAST],
    [*range(1, 1000, 2)],
    [*Random(1).sample(range(LAST), 300), LAST],
    [*range(250, 600), LAST],
    range(100, 1000),
    range(1000),
    [LAST],
    [],
]
"""What of a partition of a thousand records is left at first. Where something is, the last record is: who has had that
has read the partition to its end."""


class Group:
    """A group on a topic of its own, and what it has still to do.

    ``keys`` are those of each partition's records.
    """

    def __init__(self, kafka: RunningKafka, keys: Sequence[Sequence[bytes]], peer: JavaPeer) -> None:
        self.kafka = kafka
        self.topic = kafka.topic(partitions=len(keys))
        self.name = f"interop-{uuid.uuid4()}"
        self.open = {(number, offset) for number, part in enumerate(keys) for offset in range(len(part))}
        self.keys = keys
        self._peer = peer
        client = producer(kafka.config)
        for number, part in enumerate(keys):
            for key in part:
                client.produce(self.topic, key=key, partition=number)
        assert client.flush(TIMEOUT_S) == 0

    def java(self, leave: Collection[Coordinates], order: Order = "UNORDERED", encoding: str | None = None) -> None:
        """Let the Java library do all but ``leave``."""
        due = self._due(leave)
        with self._peer.consumer(self.topic, self.name, order=order, unfinished=leave, encoding=encoding) as java:
            assert java.wait(len(due.difference(leave)), TIMEOUT_S) == len(due.difference(leave))
            handed = java.close().handed
        assert len(handed) == len(set(handed))
        assert due.difference(leave) <= set(handed) <= due
        self.open -= due.difference(leave)

    def python(self, leave: Collection[Coordinates], delivery: Delivery = Delivery.AT_LEAST_ONCE) -> None:
        """Let our consumer do all but ``leave``."""
        due = self._due(leave)
        with python(self.options(delivery), leave) as ours:
            ours.wait(len(due))
        assert sorted(ours.handed) == sorted(due)
        self.open -= due.difference(leave)

    def options(self, delivery: Delivery = Delivery.AT_LEAST_ONCE) -> ConsumerOptions:
        return ConsumerOptions(
            topics=(self.topic,),
            group_id=self.name,
            ordering=Ordering.KEY,
            retry=NEVER,
            delivery=delivery,
            kafka=self.kafka.config.properties,
        )

    def assert_done(self) -> None:
        assert not self.open
        committed = self._peer.committed(self.topic, self.name)
        assert committed == {number: (len(part), "") for number, part in enumerate(self.keys)}

    def _due(self, leave: Collection[Coordinates]) -> set[Coordinates]:
        """Return what is tried: nothing comes after a record of its key that is left."""
        stuck: set[tuple[int, bytes]] = set()
        due = set()
        for partition, offset in sorted(self.open):
            shard = (partition, self.keys[partition][offset])
            if shard not in stuck:
                due.add((partition, offset))
                if (partition, offset) in leave:
                    stuck.add(shard)
        return due


class Python:
    """Our consumer in a thread. Records in ``leave`` fail, and are not tried again."""

    def __init__(self, options: ConsumerOptions, leave: Collection[Coordinates], seconds: float) -> None:
        self.handed: list[Coordinates] = []
        self.consumer = ParallelConsumer(options)
        self._leave = frozenset(leave)
        self._seconds = seconds
        self._change = threading.Condition()
        self._failure: BaseException | None = None
        self.thread = threading.Thread(target=self._run)

    def wait(self, records: int) -> None:
        """Wait until it was handed that many records."""
        with self._change:
            enough = self._change.wait_for(lambda: self._failure or len(self.handed) >= records, TIMEOUT_S)
        assert self._failure is None
        assert enough, f"{len(self.handed)} of {records} records came"

    def drain(self) -> None:
        """End once everything that was read is done."""
        self.consumer.stop()
        self.thread.join(TIMEOUT_S)

    def _run(self) -> None:
        try:
            self.consumer.run(self._handle)
        except BaseException as error:
            with self._change:
                self._failure = error
                self._change.notify_all()

    def _handle(self, record: ConsumedRecord) -> None:
        with self._change:
            self.handed.append((record.partition, record.offset))
            self._change.notify_all()
        time.sleep(self._seconds)
        if (record.partition, record.offset) in self._leave:
            raise RuntimeError("to be left unfinished")


@contextmanager
def python(options: ConsumerOptions, leave: Collection[Coordinates] = (), seconds: float = 0.0) -> Iterator[Python]:
    ours = Python(options, leave, seconds)
    ours.thread.start()
    try:
        yield ours
    finally:
        ours.consumer.stop(drain=False)
        ours.thread.join(TIMEOUT_S)
    ours.wait(0)


def each_its_own() -> list[list[bytes]]:
    """Keys of the partitions of SHAPES: no record waits for another."""
    return [[b"%d" % offset for offset in range(LAST + 1)] for _ in SHAPES]


def shapes() -> set[Coordinates]:
    return {(number, offset) for number, shape in enumerate(SHAPES) for offset in shape}


def half(records: Collection[Coordinates], seed: int) -> set[Coordinates]:
    """Return some of these records, the last of each partition among them."""
    chosen = set(Random(seed).sample(sorted(records), len(records) // 2))
    return chosen | {(number, LAST) for number, _ in records}


@pytest.mark.parametrize(
    "members",
    [
        ("java", "python"),
        ("python", "java"),
        ("java", "python", "java"),
        ("python", "java", "python"),
        ("java", "transactions", "java"),
        ("transactions", "java", "transactions"),
    ],
    ids="-".join,
)
def test_each_does_what_the_other_left_and_nothing_else(
    kafka: RunningKafka, java_peer: JavaPeer, members: Sequence[str]
) -> None:
    group = Group(kafka, each_its_own(), java_peer)
    for place, member in enumerate(members):
        leave = shapes() if place == 0 else half(group.open, place)
        if place == len(members) - 1:
            leave = set()
        if member == "java":
            group.java(leave)
        else:
            group.python(leave, Delivery.EXACTLY_ONCE if member == "transactions" else Delivery.AT_LEAST_ONCE)
    group.assert_done()


def test_a_key_that_is_stuck_goes_on_where_it_was_stuck(kafka: RunningKafka, java_peer: JavaPeer) -> None:
    """KEY order on both sides: behind a record that fails the others of its key wait, whoever has the group."""
    group = Group(kafka, [[b"%d" % (offset % 10) for offset in range(LAST + 1)]] * 3, java_peer)
    group.java({(0, 500), (0, 503), (1, 7), (1, 8), (1, 11), (2, 999)}, order="KEY")
    group.python({(0, 500), (0, 703), (1, 18)})
    group.java({(0, 750), (1, 98)}, order="KEY")
    group.python(set())
    group.assert_done()


@pytest.mark.long  # test_metadata reads them all
@pytest.mark.parametrize("encoding", JAVA_NAMES)
def test_our_consumer_resumes_from_each_encoding_that_java_writes(
    kafka: RunningKafka, java_peer: JavaPeer, encoding: str
) -> None:
    group = Group(kafka, [[b"%d" % offset for offset in range(LAST + 1)]], java_peer)
    group.java({(0, offset) for offset in SHAPES[3]}, encoding=encoding)
    group.python(set())
    group.assert_done()


def test_a_group_moves_from_java_to_ours_while_it_runs(kafka: RunningKafka, java_peer: JavaPeer) -> None:
    """Both are members at once for a while. Java does not wait for what is in flight: that much may run twice."""
    group = Group(kafka, [[b"%d" % (offset % 50) for offset in range(LAST + 1)]] * 4, java_peer)
    with java_peer.consumer(group.topic, group.name, order="KEY", concurrency=4, work="fixed 10000") as java:
        java.wait(200)
        with python(group.options(), seconds=0.002) as ours:
            ours.wait(200)
            by_java = java.close().handed
            ours.wait(len(group.open) - len(set(by_java)))
            ours.drain()
    assert set(by_java) | set(ours.handed) == group.open
    assert len(ours.handed) == len(set(ours.handed))
    last: dict[tuple[int, bytes], int] = {}
    for partition, offset in ours.handed:
        shard = (partition, group.keys[partition][offset])
        assert last.get(shard, -1) < offset
        last[shard] = offset
    group.open.clear()
    group.assert_done()
