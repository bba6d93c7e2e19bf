"""Reads the dead letters of a dead-letter topic, and tells which were redriven."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from wasmline.control import DeadLetterSelection, RedriveState, RedriveTopic
from wasmline.dead_letters import Failure, Header, label, parse_failure
from wasmline.kafka import KafkaConfig, Topics, read_range, read_record
from wasmline.topic_partitions import TopicPartition


class StoredDeadLetter(NamedTuple):
    """A dead letter in its topic.

    timestamp: Unix milliseconds. headers: all; None if a name is not UTF-8, which no client of ours can write again.
    range_start: the offset after the record before it.
    """

    topic_partition: TopicPartition
    offset: int
    range_start: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[Header] | None
    failure: Failure

    @property
    def position(self) -> str:
        """Its position in the form of messages: ``orders.dlq-0@42``."""
        return f"{self.topic_partition}@{self.offset}"

    @property
    def size(self) -> int:
        """Bytes of the key, the value and the headers, before it was truncated."""
        names = sum(len(name) + len(value or b"") for name, value in self.headers or ())
        return max(len(self.key or b"") + len(self.value or b"") + names, self.failure.truncated_bytes or 0)

    def matches(self, selection: DeadLetterSelection) -> bool:
        """Return whether a selection has this dead letter."""
        failure = self.failure
        return (
            selection.transform in (None, failure.transform, failure.transform_reference)
            and selection.error in (None, failure.error, label(failure.error or "", failure.reason or ""))
            and (selection.reason_contains is None or selection.reason_contains in (failure.reason or ""))
            and selection.source_topic in (None, failure.source.topic if failure.source else "")
            and selection.partition in (None, self.topic_partition.partition)
            and selection.offset in (None, self.offset)
        )

    def is_redriven(self, state: RedriveState) -> bool:
        """Return whether it was redriven."""
        return state.is_redriven(self.topic_partition.partition, self.offset)


class DeadLetterReader:
    """Reads the dead letters of a topic from its beginning up to the end that it has now. Raises TopicNotFound."""

    def __init__(self, config: KafkaConfig, topic: str) -> None:
        self._config = config
        self._topics = Topics(config)
        self.topic = self._topics.describe(topic)
        self.begins: Mapping[int, int] = self._topics.beginning_offsets(topic)
        self.ends: Mapping[int, int] = self._topics.end_offsets(topic)

    def current_id(self) -> str:
        """Return the id of the topic now: another one than that of ``topic`` if it was created again."""
        return self._topics.describe(self.topic.name).id

    def state(self) -> RedriveState:
        """Return what was redriven by now."""
        return RedriveTopic(self._config).read(self.topic, self.begins)

    def read(self, ends: Mapping[int, int] | None = None) -> Iterator[StoredDeadLetter]:
        """Yield the dead letters below ``ends``, one partition after the other, each in the order of its offsets.

        Raises OffsetOutOfRange if retention removes the next one meanwhile, and BrokerUnavailable.
        """
        for partition, end in sorted((self.ends if ends is None else ends).items()):
            yield from self._read(partition, self.begins.get(partition, 0), end)

    def pending(
        self, selection: DeadLetterSelection, state: RedriveState, ends: Mapping[int, int] | None = None
    ) -> Iterator[StoredDeadLetter]:
        """Yield those of ``read`` that a selection has and that were not redriven by ``state``."""
        for letter in self.read(ends):
            if letter.matches(selection) and not letter.is_redriven(state):
                yield letter

    def read_one(self, partition: int, offset: int) -> StoredDeadLetter:
        """Return one dead letter. Raises RecordNotFound, BrokerUnavailable."""
        message = read_record(self._config, self.topic.name, partition, offset)
        return stored_dead_letter(message, range_start=offset)

    def _read(self, partition: int, begin: int, end: int) -> Iterator[StoredDeadLetter]:
        range_start = begin
        for message in read_range(self._config, self.topic.name, {partition: (begin, end)}):
            yield (letter := stored_dead_letter(message, range_start))
            range_start = letter.offset + 1


def stored_dead_letter(message: Any, range_start: int) -> StoredDeadLetter:
    """Return a message of the client as a dead letter."""
    try:
        headers: list[Header] | None = list(message.headers() or ())
    except (SystemError, UnicodeDecodeError):  # of a name that is not UTF-8
        headers = None
    return StoredDeadLetter(
        TopicPartition(message.topic(), message.partition()),
        message.offset(),
        range_start,
        message.timestamp()[1],
        message.key(),
        message.value(),
        headers,
        parse_failure(headers or ()),
    )
