"""A producer with a transactional id, in memory."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping

from wasmline.consumer.backends.memory.cluster import OFFSETS, DecidedTransaction, MemoryCluster
from wasmline.consumer.backends.memory.group import Group, Member
from wasmline.consumer.backends.memory.partition_log import Log, TransactionOutcome
from wasmline.consumer.records import Output
from wasmline.errors import KafkaError, ProducerFenced
from wasmline.topic_partitions import CommittedOffset, TopicPartition


class MemoryTransactionalProducer:
    """Fences every earlier producer of its id on creation, and aborts their open transactions.

    A transaction begins with the first ``write`` or ``send_offsets``, and ends with ``commit`` or ``abort``. All four
    raise ProducerFenced, and KafkaError once the cluster has forgotten the id.
    """

    def __init__(self, cluster: MemoryCluster, transactional_id: str, *, timeout_s: float = 60.0) -> None:
        """``timeout_s``: seconds after which the cluster aborts an open transaction, and fences this producer."""
        self.timeout_s = timeout_s
        self.used_at = time.time()
        """Time of the last begin or end of a transaction, in Unix seconds."""
        self._cluster = cluster
        self._id = transactional_id
        self._is_open = False
        self._logs: dict[TopicPartition, Log] = {}
        self._groups: set[Group] = set()
        """The groups whose offsets it writes."""
        with cluster.atomic():
            cluster.require_available()
            before = cluster.writers.get(transactional_id)
            if isinstance(before, MemoryTransactionalProducer):
                before._end(TransactionOutcome.ABORTED)
            cluster.writers[transactional_id] = self
            if transactional_id not in cluster.producer_ids:
                cluster.producer_ids[transactional_id] = next(cluster.next_producer_ids)
            self.producer_id = cluster.producer_ids[transactional_id]

    def write(self, output: Output) -> tuple[TopicPartition, int]:
        """Write a record and return its partition and offset. Raises TopicNotFound and OutputRefused."""
        with self._cluster.atomic():
            self._begin()
            partition, offset = self._cluster.write(output, self.producer_id)
            self._logs[partition] = self._cluster.log(partition)
            return partition, offset

    def send_offsets(
        self, group: str, offsets: Mapping[TopicPartition, CommittedOffset], member: Member | None = None
    ) -> None:
        """Make offsets of a group part of the transaction; their readers wait for its end. Raises as a commit does."""
        with self._cluster.atomic():
            self._begin()
            target = self._cluster.group(group)
            if member is None:
                # A transaction without a member is accepted beside the group's members.
                target.require_metadata_size(offsets)
            else:
                target.require_may_commit(member, offsets)
            self._groups.add(target)
            target.hold(self.producer_id, offsets, self._cluster.leader_epoch)

    def commit(self) -> None:
        """Make all of it visible."""
        with self._cluster.atomic():
            self._begin()
            self._end(TransactionOutcome.COMMITTED)

    def abort(self) -> None:
        """Make none of it visible."""
        with self._cluster.atomic():
            self._begin()
            self._end(TransactionOutcome.ABORTED)

    def end_empty(self, partitions: Collection[TopicPartition], group: str, *, commit: bool) -> None:
        """Commit or abort a transaction without records over these partitions, the group's offsets among them."""
        with self._cluster.atomic():
            self._begin()
            self._logs |= {each: self._cluster.log(each) for each in partitions if each != OFFSETS}
            if OFFSETS in partitions:
                self._groups.add(self._cluster.group(group))
            self._end(TransactionOutcome.COMMITTED if commit else TransactionOutcome.ABORTED)

    @property
    def is_open(self) -> bool:
        """Whether a transaction has begun and not ended."""
        return self._is_open

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        """What the open transaction writes to."""
        return frozenset([*self._logs, OFFSETS] if self._groups else self._logs)

    def time_out(self) -> None:
        """Abort the open transaction, and fence this producer."""
        with self._cluster.atomic():
            self._end(TransactionOutcome.ABORTED)
            self._cluster.writers[self._id] = None

    def _begin(self) -> None:
        if self._id not in self._cluster.writers:
            raise KafkaError(f"{self._id} is not known any more: the producer's id is not assigned")
        if self._cluster.writers[self._id] is not self:
            raise ProducerFenced(f"another producer has taken over {self._id}")
        if not self._is_open:
            self._is_open = True
            self.used_at = time.time()

    def _end(self, fate: TransactionOutcome) -> None:
        self.used_at = time.time()
        self._is_open = False
        if not (partitions := self.partitions):
            return
        is_committed = fate is TransactionOutcome.COMMITTED
        decided = DecidedTransaction(
            transactional_id=self._id,
            producer_id=self.producer_id,
            is_committed=is_committed,
            partitions=partitions,
        )
        self._cluster.decided.append(decided)
        lost = self._cluster.lost_markers(decided)
        for partition, log in self._logs.items():
            if partition not in lost:
                log.mark(self.producer_id, fate)
        for group in self._groups if OFFSETS not in lost else ():
            group.mark(self.producer_id, commit=is_committed)
        self._logs, self._groups = {}, set()


def time_out(cluster: MemoryCluster) -> None:
    """Abort the transactions that are open for longer than their time-out."""
    for writer in _writers(cluster):
        if writer.is_open and writer.used_at + writer.timeout_s <= time.time():
            writer.time_out()


def expire_ids(cluster: MemoryCluster, idle_s: float) -> None:
    """Forget the transactional ids without a transaction for ``idle_s`` seconds."""
    for name, writer in list(cluster.writers.items()):
        if not isinstance(writer, MemoryTransactionalProducer) or (
            not writer.is_open and writer.used_at + idle_s <= time.time()
        ):
            with cluster.atomic():
                del cluster.writers[name], cluster.producer_ids[name]


def _writers(cluster: MemoryCluster) -> list[MemoryTransactionalProducer]:
    return [each for each in cluster.writers.values() if isinstance(each, MemoryTransactionalProducer)]
