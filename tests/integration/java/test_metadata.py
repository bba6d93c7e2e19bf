"""The map of finished records goes from Confluent's library to ours and back, on a real broker, in every encoding."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

import pytest
from confluent_kafka import Consumer

from support.java_peer.java_peer import JavaPeer
from wasmline.kafka import producer
from wasmline.kafka.committed_offset_store import LibrdkafkaOffsetStore
from wasmline.offset_maps import DEFAULT_LIMITS
from wasmline.offset_maps.codec import decode, encode, encode_as
from wasmline.offset_maps.encodings import Encoding
from wasmline.testing.kafka import RunningKafka
from wasmline.topic_partitions import CommittedOffset, TopicPartition

JAVA_NAMES = {
    Encoding.RUN_LENGTH: "RunLength",
    Encoding.BIT_SET: "BitSet",
    Encoding.RUN_LENGTH_V2: "RunLengthV2",
    Encoding.BIT_SET_V2: "BitSetV2",
    Encoding.RUN_LENGTH_COMPRESSED: "RunLengthCompressed",
    Encoding.BIT_SET_COMPRESSED: "BitSetCompressed",
    Encoding.RUN_LENGTH_V2_COMPRESSED: "RunLengthV2Compressed",
    Encoding.BIT_SET_V2_COMPRESSED: "BitSetV2Compressed",
}


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a partition of ``records`` records is: all up to ``highest`` are finished but for ``incompletes``."""

    records: int
    highest: int
    incompletes: Sequence[int]

    @property
    def unfinished(self) -> list[int]:
        return [*self.incompletes, *range(self.highest + 1, self.records)]

    @property
    def base(self) -> int:
        return min(self.unfinished, default=self.records)

    @property
    def decoded(self) -> tuple[int, tuple[int, ...]]:
        return self.highest, tuple(self.incompletes)


def some(count: int, of: int) -> list[int]:
    return sorted(Random(count).sample(range(of), count))


CHOSEN = [
    (Progress(2000, 1999, [3, 7, 100]), Encoding.RUN_LENGTH),
    (Progress(2000, 1990, range(1000, 1990, 2)), Encoding.BIT_SET),
    (Progress(2000, 1999, range(0, 1999, 2)), Encoding.RUN_LENGTH_COMPRESSED),
    (Progress(2000, 1999, some(300, of=1999)), Encoding.BIT_SET_COMPRESSED),
    (Progress(34_000, 33_900, [5]), Encoding.RUN_LENGTH_V2),
    (Progress(500, 99, []), Encoding.RUN_LENGTH),
    (Progress(500, 499, []), None),
]
"""What the library writes of its own accord; None is no metadata."""

SMALL = [
    Progress(500, 499, [0]),
    Progress(500, 499, range(0, 499, 2)),
    Progress(500, 300, [17, 18, 250]),
    Progress(500, 450, some(200, of=450)),
    Progress(500, 99, []),
]
"""None of these is so large in any encoding that Java would stop to take new records."""


class Topic:
    """A topic with one partition for each of some Progresses, and a group's commits there through our offset store."""

    def __init__(self, kafka: RunningKafka, plan: Sequence[Progress]) -> None:
        self.plan = plan
        self.name = kafka.topic(partitions=len(plan))
        self._config = kafka.config
        client = producer(kafka.config)
        for number, each in enumerate(plan):
            for _ in range(each.records):
                client.produce(self.name, b"value", partition=number)
        assert client.flush(60) == 0

    def left_by_java(self, peer: JavaPeer, encoding: Encoding | None = None) -> dict[int, CommittedOffset]:
        """Let Java finish as much as the plan says, in a new group, and return what we read of its commits."""
        group = str(uuid.uuid4())
        unfinished = [(number, offset) for number, each in enumerate(self.plan) for offset in each.unfinished]
        finished = sum(each.records for each in self.plan) - len(unfinished)
        name = JAVA_NAMES[encoding] if encoding else None
        with peer.consumer(self.name, group, unfinished=unfinished, encoding=name) as java:
            assert java.wait(finished) == finished
        consumer = self._consumer(group)
        try:
            partitions = [TopicPartition(self.name, number) for number in range(len(self.plan))]
            committed = LibrdkafkaOffsetStore().committed(consumer, partitions)
        finally:
            consumer.close()
        return {partition.partition: each for partition, each in committed.items()}

    def resumed_by_java(self, peer: JavaPeer, commits: Mapping[int, CommittedOffset]) -> dict[int, list[int]]:
        """Commit in a new group, and return by partition the offsets that Java is handed then."""
        group = str(uuid.uuid4())
        consumer = self._consumer(group)
        try:
            offsets = {TopicPartition(self.name, number): each for number, each in commits.items()}
            LibrdkafkaOffsetStore().commit(consumer, offsets)
        finally:
            consumer.close()
        with peer.consumer(self.name, group) as java:
            java.wait(sum(len(each.unfinished) for each in self.plan), timeout_s=30)
            handed = java.close(drain=True).handed
        return {
            number: sorted(offset for partition, offset in handed if partition == number)
            for number in range(len(self.plan))
        }

    @property
    def unfinished(self) -> dict[int, list[int]]:
        return {number: each.unfinished for number, each in enumerate(self.plan)}

    def _consumer(self, group: str) -> Consumer:
        return Consumer(self._config.client(**{"group.id": group, "enable.auto.commit": "false"}))


def encoding_of(metadata: str) -> Encoding | None:
    if not metadata:
        return None
    return next(each for each in Encoding if each.magic == base64.b64decode(metadata)[0])


@pytest.fixture(scope="module")
def chosen(kafka: RunningKafka) -> Topic:
    return Topic(kafka, [progress for progress, _ in CHOSEN])


@pytest.fixture(scope="module")
def small(kafka: RunningKafka) -> Topic:
    return Topic(kafka, SMALL)


def test_we_read_exactly_what_java_left(java_peer: JavaPeer, chosen: Topic) -> None:
    committed = chosen.left_by_java(java_peer)
    for number, (progress, encoding) in enumerate(CHOSEN):
        text = committed[number].metadata
        assert encoding_of(text) is encoding
        assert committed[number].offset == progress.base
        assert decode(text, progress.base) == progress.decoded
        if encoding is None or not encoding.compressed:
            assert encode(progress.base, progress.highest, progress.unfinished) == text


def test_java_resumes_exactly_where_we_stopped(java_peer: JavaPeer, chosen: Topic) -> None:
    commits = {
        number: CommittedOffset(each.base, encode(each.base, each.highest, each.incompletes))
        for number, each in enumerate(chosen.plan)
    }
    assert max(len(each.metadata) for each in commits.values()) <= DEFAULT_LIMITS.max_metadata_length
    assert chosen.resumed_by_java(java_peer, commits) == chosen.unfinished


@pytest.mark.parametrize("encoding", Encoding)
def test_we_read_each_encoding_that_java_writes(java_peer: JavaPeer, small: Topic, encoding: Encoding) -> None:
    committed = small.left_by_java(java_peer, encoding)
    for number, progress in enumerate(small.plan):
        text = committed[number].metadata
        assert encoding_of(text) is encoding
        assert committed[number].offset == progress.base
        assert decode(text, progress.base) == progress.decoded


def test_java_resumes_from_each_encoding_that_we_write(kafka: RunningKafka, java_peer: JavaPeer) -> None:
    topic = Topic(kafka, SMALL * len(Encoding))
    encodings = [encoding for encoding in Encoding for _ in SMALL]
    commits = {
        number: CommittedOffset(each.base, encode_as(encoding, each.base, each.highest, each.incompletes))
        for number, (each, encoding) in enumerate(zip(topic.plan, encodings, strict=True))
    }
    assert max(len(each.metadata) for each in commits.values()) <= DEFAULT_LIMITS.back_pressure_length
    assert topic.resumed_by_java(java_peer, commits) == topic.unfinished
