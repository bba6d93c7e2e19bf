"""Reads the records of a topic between two offsets, one, all to its end, or as they come, without a consumer group."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from wasmline.errors import BrokerUnavailable, OffsetOutOfRange, RecordNotFound
from wasmline.errors import KafkaError as KafkaFailed
from wasmline.kafka.config import KafkaConfig
from wasmline.kafka.detached_consumer import detached_consumer, is_group_denial, unique_group
from wasmline.kafka.error_mapping import ReportedError, denied_errors, message_error, translate_errors
from wasmline.kafka.topics import Topics

IDLE_TIMEOUT_S = 30.0
"""Seconds without any message after which the cluster counts as unavailable."""

MAX_SILENCE_S = 900.0
"""Seconds of it where the brokers answer and have more: the longest transaction, which may have been aborted."""

END_TIMEOUT_S = 5.0
"""Seconds of a request for the end of a partition."""

OPEN_TRANSACTION_WAIT_S = 5.0
"""Seconds to wait for open transactions to be decided."""

FOLLOW_POLL_S = 0.5

MAX_POLL_RECORDS = 1000
POLL_INTERVAL_S = 0.05
"""Seconds that the client waits to fill a batch."""


def read_range(config: KafkaConfig, topic: str, ranges: Mapping[int, tuple[int, int]]) -> Iterator[Message]:
    """Yield the committed records of ``{partition: (from, to)}``, ``to`` excluded, in order within a partition.

    Offsets without a record (transaction markers, aborted or compacted records) are skipped. Raises OffsetOutOfRange
    where the cluster no longer has the beginning of a range, BrokerUnavailable when nothing comes: see SilenceLimit.
    """
    wanted = {partition: bounds for partition, bounds in ranges.items() if bounds[0] < bounds[1]}
    with translate_errors(config.bootstrap_servers, denied_errors(config.bootstrap_servers, topic=topic)):
        yield from _read(config, topic, wanted, reset="error")


def read_record(config: KafkaConfig, topic: str, partition: int, offset: int) -> Message:
    """Return one committed record. Raises TopicNotFound, RecordNotFound, BrokerUnavailable."""
    topics = Topics(config)
    begins, ends = topics.beginning_offsets(topic), topics.end_offsets(topic)
    if partition not in ends:
        why = f"{topic} has {len(ends)} partitions, and none is number {partition}"
    elif offset < begins[partition]:
        why = f"the partition begins at {begins[partition]}: retention removed the record, or it was deleted"
    elif offset >= topics.written_offsets(topic)[partition]:
        why = f"the partition ends at {ends[partition]}"
    elif offset >= ends[partition]:
        why = "it is behind a transaction that is open: repeat this once that has ended"
    else:
        for message in read_range(config, topic, {partition: (offset, offset + 1)}):
            return message
        why = "it was compacted or aborted, or is the marker of a transaction"
    text = f"there is no record {topic}-{partition}@{offset}: {why}"
    raise RecordNotFound(text, topic=topic, partition=partition, offset=offset)


def read_to_end(config: KafkaConfig, topic: str) -> Iterator[Message]:
    """Yield every committed record that the topic held when this began. Raises TopicNotFound, BrokerUnavailable.

    A transaction is acknowledged before its records can be read, so this waits, at most five seconds, for open
    transactions to be decided.
    """
    topics = Topics(config)
    begins, ends = topics.beginning_offsets(topic), _decided(topics, topic)
    ranges = {partition: (begins[partition], end) for partition, end in ends.items() if begins[partition] < end}
    with translate_errors(config.bootstrap_servers, denied_errors(config.bootstrap_servers, topic=topic)):
        yield from _read(config, topic, ranges, reset="earliest")


def follow(config: KafkaConfig, topic: str, offset: int) -> Iterator[Message]:
    """Yield the committed records of a topic's only partition from ``offset`` on, as they come, without an end.

    Those that retention removes before they are read are passed over. Raises BrokerUnavailable, KafkaError.
    """
    settings = {"auto.offset.reset": "earliest", "fetch.wait.max.ms": "500"}
    with translate_errors(config.bootstrap_servers):
        consumer = detached_consumer(config, unique_group("follower"), settings)
        try:
            consumer.assign([TopicPartition(topic, 0, offset)])
            while True:
                message = consumer.poll(FOLLOW_POLL_S)
                error = message.error() if message is not None else None
                if message is None or is_group_denial(message):
                    continue
                if error is not None and not error.retriable():
                    raise message_error(config.bootstrap_servers, message, error)
                if error is None:
                    yield message
        finally:
            consumer.close()


def _decided(topics: Topics, topic: str) -> dict[int, int]:
    """Return the topic's end offsets for a read_committed reader, once they include all that is written by now."""
    written = topics.written_offsets(topic)
    deadline = time.monotonic() + OPEN_TRANSACTION_WAIT_S
    while True:
        ends = topics.end_offsets(topic)
        if time.monotonic() > deadline or all(ends[partition] >= end for partition, end in written.items()):
            return ends


def _read(config: KafkaConfig, topic: str, ranges: Mapping[int, tuple[int, int]], *, reset: str) -> Iterator[Message]:
    if not ranges:
        return
    settings = {"auto.offset.reset": reset, "enable.partition.eof": "true", "fetch.wait.max.ms": "50"}
    consumer = detached_consumer(config, unique_group("reader"), settings)
    ends = {partition: bounds[1] for partition, bounds in ranges.items()}
    try:
        consumer.assign([TopicPartition(topic, partition, bounds[0]) for partition, bounds in ranges.items()])
        yield from _until(consumer, topic, ends, config)
    finally:
        consumer.close()


class SilenceLimit:
    """Tells an unavailable cluster from one whose next records are aborted or compacted: nobody gets any of these."""

    def __init__(self, consumer: Consumer, topic: str, servers: str) -> None:
        self._consumer = consumer
        self._topic = topic
        self._servers = servers
        self._since = self._asked = time.monotonic()

    def end(self) -> None:
        """Note that something has come, until now."""
        self._since = self._asked = time.monotonic()

    def check(self, ends: Mapping[int, int]) -> None:
        """Raise BrokerUnavailable after IDLE_TIMEOUT_S of silence, or MAX_SILENCE_S where the brokers have the ends."""
        now = time.monotonic()
        if now - self._asked <= IDLE_TIMEOUT_S:
            return
        if now - self._since <= MAX_SILENCE_S and self._has(ends):
            self._asked = time.monotonic()
            return
        text = f"nothing came from {self._topic} on {self._servers} for {now - self._since:.0f} s"
        raise BrokerUnavailable(f"{text}; still to read, up to: {ends}", bootstrap_servers=self._servers)

    def _has(self, ends: Mapping[int, int]) -> bool:
        try:
            return all(
                self._consumer.get_watermark_offsets(TopicPartition(self._topic, partition), END_TIMEOUT_S)[1] >= end
                for partition, end in ends.items()
            )
        except KafkaException:
            return False


def _until(consumer: Consumer, topic: str, ends: dict[int, int], config: KafkaConfig) -> Iterator[Message]:
    """Yield the messages below ``ends``; an end is passed by a record or the end-of-partition event."""
    silence = SilenceLimit(consumer, topic, config.bootstrap_servers)
    while ends:
        messages = consumer.consume(MAX_POLL_RECORDS, timeout=POLL_INTERVAL_S)
        if messages:
            silence.end()
        else:
            silence.check(ends)
        for message in messages:
            if is_group_denial(message):
                continue
            partition, offset = position(config.bootstrap_servers, message)
            if partition not in ends:
                continue
            if message.error() is None and offset < ends[partition]:
                yield message
                offset += 1
            if offset >= ends[partition]:
                del ends[partition]
                consumer.pause([TopicPartition(topic, partition)])


def position(servers: str, message: Message | ReportedError) -> tuple[int, int]:
    """Return the partition and offset of a record or of the end of a partition; raise any other reported error."""
    error, partition, offset = message.error(), message.partition(), message.offset()
    if error is not None and error.code() == KafkaError._AUTO_OFFSET_RESET and partition is not None:
        where = f"{message.topic()}-{partition}"
        text = f"{where} no longer has offset {offset}: retention removed it"
        raise OffsetOutOfRange(text, topic=message.topic(), partition=partition, offset=offset or 0, start=None)
    if error is not None and error.code() != KafkaError._PARTITION_EOF:
        raise message_error(servers, message, error)
    if partition is None or offset is None:
        raise KafkaFailed(f"a message of {message.topic()} has no coordinates")
    return partition, offset
