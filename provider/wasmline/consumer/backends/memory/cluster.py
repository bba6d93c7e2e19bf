"""A cluster of topics and groups in memory, with faults for tests."""

from __future__ import annotations

import itertools
import time
import uuid
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from threading import Condition

from wasmline.consumer.backends.memory.group import Group, Member, PendingOffsets
from wasmline.consumer.backends.memory.output_serializer import serialized
from wasmline.consumer.backends.memory.partition_log import Log, Transaction, TransactionOutcome
from wasmline.consumer.backends.memory.partitioner import partition_of
from wasmline.consumer.records import ConsumedRecord, Output
from wasmline.errors import BrokerUnavailable, OutputRefused, TopicNotFound, WasmlineError
from wasmline.offset_maps import DEFAULT_LIMITS
from wasmline.topic_partitions import CommittedOffset, TopicPartition

EVERYTHING = 1 << 62


@dataclass(frozen=True, slots=True)
class Topic:
    """The logs of a topic, and its limit for the bytes of a record's key, value and headers.

    id: new each time a topic is created, also under the name of a deleted one.
    settings: those given, by Kafka's names.
    """

    logs: tuple[Log, ...]
    max_message_bytes: int
    id: uuid.UUID
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class DecidedTransaction:
    """A transaction whose coordinator has decided it; ``partitions`` are to get its markers."""

    transactional_id: str
    producer_id: int
    is_committed: bool
    partitions: frozenset[TopicPartition]


OFFSETS = TopicPartition("__consumer_offsets", 0)
"""Stores the offsets of all groups."""


class MemoryCluster:
    """Topics, groups and transactional ids, for any number of members in any threads.

    Each method takes effect at once, and wakes threads that wait for records or for an assignment.
    ``max_metadata_bytes`` is a broker's ``offset.metadata.max.bytes``.
    """

    def __init__(self, *, max_metadata_bytes: int | None = None) -> None:
        self.changed = Condition()
        """Guards everything here; notified of each change."""
        self.version = 0
        """The number of changes so far."""
        self.is_unavailable = False
        """No broker answers."""
        self.writers: dict[str, object] = {}
        """The current producer of each transactional id."""
        self.producer_ids: dict[str, int] = {}
        """The producer id of each transactional id, which all its producers have."""
        self.next_producer_ids = itertools.count(1)
        self.decided: list[DecidedTransaction] = []
        """The log of the transactions' coordinator."""
        self.leader_epoch = 0
        """That of all partitions; the loss of markers, which takes a partition without a leader, begins another."""
        self._created = 0
        """Topics that were ever created."""
        self._topics: dict[str, Topic] = {}
        self._groups: dict[str, Group] = {}
        self._max_metadata_bytes = (
            DEFAULT_LIMITS.max_metadata_length if max_metadata_bytes is None else max_metadata_bytes
        )
        self._failing: list[tuple[WasmlineError, bool]] = []
        self._losing: list[tuple[str, Collection[TopicPartition]]] = []

    # -- topics ------------------------------------------------------------------------------------------------------

    def create(
        self,
        topic: str,
        partitions: int = 1,
        *,
        max_message_bytes: int = 1_048_588,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """Create a topic; a larger record is rejected."""
        with self.atomic():
            self._created += 1
            logs, identity = tuple(Log() for _ in range(partitions)), uuid.UUID(int=self._created)
            self._topics[topic] = Topic(logs, max_message_bytes, identity, dict(settings or {}))
            for group in self._groups.values():
                group.rebalance(self.partitions)

    def delete(self, topic: str) -> None:
        """Delete a topic, and the groups' committed offsets of it. Raises TopicNotFound."""
        with self.atomic():
            gone = [TopicPartition(topic, number) for number in range(len(self.topic(topic).logs))]
            del self._topics[topic]
            for group in self._groups.values():
                group.forget(gone)
                group.rebalance(self.partitions)

    def create_partitions(self, topic: str, partitions: int) -> None:
        """Add partitions to a topic, so that it has ``partitions``. Raises TopicNotFound."""
        with self.atomic():
            known = self.topic(topic)
            more = tuple(Log() for _ in range(partitions - len(known.logs)))
            self._topics[topic] = replace(known, logs=known.logs + more)
            for group in self._groups.values():
                group.rebalance(self.partitions)

    @property
    def partitions(self) -> list[TopicPartition]:
        """All partitions of all topics."""
        return [TopicPartition(name, each) for name, topic in self._topics.items() for each in range(len(topic.logs))]

    def write(self, output: Output, producer_id: int | None = None) -> tuple[TopicPartition, int]:
        """Write a record and return its partition and offset. Raises TopicNotFound and OutputRefused."""
        with self.atomic():
            output = serialized(output)
            topic = self.topic(output.topic)
            if output.size > topic.max_message_bytes:
                raise OutputRefused(f"{output.topic} rejects an output: it has more than {topic.max_message_bytes} B")
            number = output.partition
            if number is None:
                number = partition_of(output.key, len(topic.logs), sum(log.end for log in topic.logs))
            elif number >= len(topic.logs):
                raise OutputRefused(f"{output.topic} rejects an output: it has no partition {number}")
            partition = TopicPartition(output.topic, number)
            timestamp = time.time_ns() // 1_000_000 if output.timestamp is None else output.timestamp
            return partition, self.log(partition).append(output, timestamp, producer_id, self.leader_epoch)

    def records(self, topic: str, *, committed: bool = True) -> list[ConsumedRecord]:
        """Return the records of a topic by partition, as a read_committed reader gets them, or all."""
        with self.changed:
            return [
                record
                for number, log in enumerate(self.topic(topic).logs)
                for record in self.fetch(TopicPartition(topic, number), log.start, EVERYTHING, committed=committed)[0]
            ]

    def fetch(
        self, partition: TopicPartition, position: int, limit: int, *, committed: bool
    ) -> tuple[list[ConsumedRecord], int]:
        """Return records of a partition from ``position`` on, and the next position."""
        entries, position = self.log(partition).read(position, limit, committed=committed)
        records = [
            ConsumedRecord(*partition, entry.offset, output.key, output.value, output.headers, entry.timestamp)
            for entry in entries
            if (output := entry.output) is not None
        ]
        return records, position

    def compact(self, partition: TopicPartition, offsets: Collection[int]) -> None:
        """Remove these records of a partition."""
        with self.atomic():
            self.log(partition).compact(offsets)

    def delete_records(self, partition: TopicPartition, before: int) -> None:
        """Remove the records of a partition below an offset, as retention does."""
        with self.atomic():
            self.log(partition).delete_records(before)

    def truncate(self, partition: TopicPartition, end: int) -> None:
        """Remove the records of a partition from an offset on; later records reuse their offsets."""
        with self.atomic():
            self.log(partition).truncate(end)

    def log(self, partition: TopicPartition) -> Log:
        """Return the log of a partition. Raises TopicNotFound."""
        logs = self.topic(partition.topic).logs
        if not 0 <= partition.partition < len(logs):
            text = f"{partition.topic} has {len(logs)} partitions, and no partition {partition.partition}"
            raise TopicNotFound(text, topic=partition.topic)
        return logs[partition.partition]

    def open_transactions(self, partition: TopicPartition) -> list[tuple[int, Transaction | PendingOffsets]]:
        """Return what is open on a partition, and its producer ids. Raises TopicNotFound."""
        if partition == OFFSETS:
            return [each for group in self._groups.values() for each in group.open.items()]
        return list(self.log(partition).open.items())

    # -- groups ------------------------------------------------------------------------------------------------------

    def group(self, name: str) -> Group:
        """Return a group, which is created when first named."""
        return self._groups.setdefault(name, Group(self._max_metadata_bytes))

    def committed(self, group: str) -> dict[TopicPartition, CommittedOffset]:
        """Return a group's committed offsets."""
        with self.changed:
            return dict(self.group(group).committed)

    def commit(
        self, group: str, offsets: Mapping[TopicPartition, CommittedOffset], member: Member | None = None
    ) -> None:
        """Commit as a member, or as a tool does while the group is empty. Raises CommitFailed and KafkaError."""
        with self.atomic():
            self.group(group).require_may_commit(member, offsets)
            self.group(group).record(offsets)

    def remove_member(self, group: str, member: Member) -> None:
        """Remove a member: others get its partitions, and it is notified when it polls or commits."""
        with self.atomic():
            self.group(group).leave(member, self.partitions)

    def expire_offsets(self, retention_s: float) -> None:
        """Drop the committed offsets that a broker with a retention of ``retention_s`` seconds drops."""
        with self.atomic():
            for group in self._groups.values():
                group.expire(retention_s)

    # -- faults ------------------------------------------------------------------------------------------------------

    @contextmanager
    def unavailable(self) -> Iterator[None]:
        """Make all brokers unavailable within the block: requests raise BrokerUnavailable, and outputs wait."""
        with self.atomic():
            self.is_unavailable = True
        try:
            yield
        finally:
            with self.atomic():
                self.is_unavailable = False

    def fail_next_commit(self, error: WasmlineError, *, carried_out: bool = False) -> None:
        """Make the next commit, in a transaction or not, fail; ``carried_out``: only its answer is lost."""
        with self.atomic():
            self._failing.append((error, carried_out))

    @contextmanager
    def losing_markers(self, prefix: str, partitions: Collection[TopicPartition]) -> Iterator[None]:
        """Lose the markers on these partitions of one transaction that ends within the block.

        It is the next one of an id with this prefix that writes to one of them. Its coordinator completes it all the
        same, as that of Kafka 4.3 does while a broker restarts (docs/kafka-lost-markers.md).
        """
        losing = prefix, partitions
        with self.atomic():
            self._losing.append(losing)
        try:
            yield
        finally:
            with self.atomic():
                self._losing = [each for each in self._losing if each is not losing]

    def abort_hanging(self, partition: TopicPartition, producer_id: int) -> None:
        """Abort what a producer has open on a partition, as kafka-transactions.sh does."""
        with self.atomic():
            if partition == OFFSETS:
                for group in self._groups.values():
                    group.mark(producer_id, commit=False)
            else:
                self.log(partition).mark(producer_id, TransactionOutcome.ABORTED)

    def lost_markers(self, decided: DecidedTransaction) -> Collection[TopicPartition]:
        """Return the partitions that do not get their marker of a transaction that is decided now."""
        for each in self._losing:
            prefix, partitions = each
            if decided.transactional_id.startswith(prefix) and not decided.partitions.isdisjoint(partitions):
                self._losing.remove(each)
                self.leader_epoch += 1
                return partitions
        return ()

    @contextmanager
    def committing(self) -> Iterator[None]:
        """Make a commit within the block fail if that was requested."""
        error, carried_out = self._failing.pop(0) if self._failing else (None, True)
        if error is not None and not carried_out:
            raise error
        yield
        if error is not None:
            raise error

    def require_available(self) -> None:
        """Raise BrokerUnavailable while no broker answers."""
        if self.is_unavailable:
            raise BrokerUnavailable("no broker of the cluster in memory answers", bootstrap_servers="memory")

    @contextmanager
    def atomic(self) -> Iterator[None]:
        """Hold the lock, and wake waiting threads when the block is done."""
        with self.changed:
            try:
                yield
            finally:
                self.version += 1
                self.changed.notify_all()

    def topic(self, name: str) -> Topic:
        """Return a topic. Raises TopicNotFound."""
        if name not in self._topics:
            raise TopicNotFound(f"there is no topic {name} in this cluster: create it first", topic=name)
        return self._topics[name]

    # Earlier names, until release 0.2.0: docs/renames.md.
    change, cut, expel, extend = atomic, delete_records, remove_member, create_partitions
