"""Reads the coordinators' decisions about transactions from the topic ``__transaction_state``.

The topic is compacted: it has the newest record of each transactional id, and earlier ones only until their segment is
cleaned. Reading it needs the permission to read that topic. The formats are those of TransactionLogKey.json and
TransactionLogValue.json in Kafka's module transaction-coordinator.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

from wasmline.kafka.config import KafkaConfig
from wasmline.kafka.protocol_types import MalformedMessage, Reader
from wasmline.kafka.topic_reader import read_range
from wasmline.kafka.topics import Topics
from wasmline.topic_partitions import TopicPartition

TRANSACTION_STATE = "__transaction_state"
CONSUMER_OFFSETS = "__consumer_offsets"

KEY_VERSION = 0
VALUE_VERSIONS = (0, 1)


class Decision(StrEnum):
    """The outcome of a transaction."""

    COMMIT = "commit"
    ABORT = "abort"


PREPARED = {2: Decision.COMMIT, 3: Decision.ABORT}
"""The statuses after a decision, before its markers are written: PrepareCommit, PrepareAbort."""


class Decided(NamedTuple):
    """A transaction whose coordinator has decided it."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    decision: Decision
    partitions: frozenset[TopicPartition]


def decisions(config: KafkaConfig, transactional_id: str) -> list[Decided]:
    """Return the recorded decisions about an id's transactions, the earliest first.

    Raises MalformedMessage for a record of another format, TopicNotFound where brokers store this elsewhere,
    NotAuthorized, BrokerUnavailable.
    """
    topics = Topics(config)
    mine = internal_partition(transactional_id, topics.describe(TRANSACTION_STATE).partitions)
    bounds = topics.beginning_offsets(TRANSACTION_STATE)[mine], topics.written_offsets(TRANSACTION_STATE)[mine]
    records = read_range(config, TRANSACTION_STATE, {mine: bounds})
    return list(decided(transactional_id, ((each.key(), each.value()) for each in records)))


def decided(
    transactional_id: str, records: Iterable[tuple[bytes | str | None, bytes | str | None]]
) -> Iterable[Decided]:
    """Yield the decisions about one id among the keys and values of a log. Raises MalformedMessage."""
    for key, value in records:
        if not isinstance(key, bytes) or not isinstance(value, bytes) or _transactional_id(key) != transactional_id:
            continue
        if (found := _decided(transactional_id, Reader(value))) is not None:
            yield found


def internal_partition(name: str, partitions: int) -> int:
    """Return the partition of an id in ``__transaction_state``, or of a group in ``__consumer_offsets``.

    It follows from Java's String.hashCode of the name; the least int counts as 0.
    """
    hashed = 0
    encoded = name.encode("utf-16-be")
    for place in range(0, len(encoded), 2):
        hashed = (31 * hashed + int.from_bytes(encoded[place : place + 2], "big")) & 0xFFFFFFFF
    signed = hashed - (1 << 32) if hashed >> 31 else hashed
    return 0 if signed == -(1 << 31) else abs(signed) % partitions


def _transactional_id(key: bytes) -> str:
    reader = Reader(key)
    if (version := reader.int16()) != KEY_VERSION:
        raise MalformedMessage(f"a key of version {version} in {TRANSACTION_STATE}")
    name = reader.string()
    reader.end()
    return name


def _decided(transactional_id: str, value: Reader) -> Decided | None:
    version = value.int16()
    if version not in VALUE_VERSIONS:
        raise MalformedMessage(f"a value of version {version} in {TRANSACTION_STATE}")
    producer_id, epoch = value.int64(), value.int16()
    value.int32()  # the time-out
    decision = PREPARED.get(value.int8())
    if decision is None:
        return None
    partitions = _partitions(value) if version == 0 else _flexible_partitions(value)
    value.int64(), value.int64()  # the times of its last change and of its begin
    if version:
        value.tagged_fields()
    value.end()
    return Decided(transactional_id, producer_id, epoch, decision, frozenset(partitions))


def _partitions(value: Reader) -> set[TopicPartition]:
    topics = value.array(lambda: (value.string(), value.array(value.int32)))
    return {TopicPartition(topic, each) for topic, numbers in topics for each in numbers}


def _flexible_partitions(value: Reader) -> set[TopicPartition]:
    found: set[TopicPartition] = set()

    def topic() -> None:
        name = value.compact_string()
        found.update(TopicPartition(name, each) for each in value.compact_array(value.int32))
        value.tagged_fields()

    value.compact_array(topic)
    return found
