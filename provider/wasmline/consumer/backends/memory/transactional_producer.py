"""A producer with a transactional id, in memory."""

from __future__ import annotations

import time
from collections.abc import Mapping

from wasmline.consumer.backends.memory.cluster import MemoryCluster
from wasmline.consumer.backends.memory.group import Group, Member
from wasmline.consumer.backends.memory.partition_log import Transaction, TransactionOutcome
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
        self._transaction: Transaction | None = None
        self._offsets: list[tuple[Group, TopicPartition, CommittedOffset]] = []
        with cluster.atomic():
            cluster.require_available()
            before = cluster.writers.get(transactional_id)
            if isinstance(before, MemoryTransactionalProducer):
                before._end(TransactionOutcome.ABORTED)
            cluster.writers[transactional_id] = self

    def write(self, output: Output) -> tuple[TopicPartition, int]:
        """Write a record and return its partition and offset. Raises TopicNotFound and OutputRefused."""
        with self._cluster.atomic():
            return self._cluster.write(output, self._open_transaction())

    def send_offsets(
        self, group: str, offsets: Mapping[TopicPartition, CommittedOffset], member: Member | None = None
    ) -> None:
        """Make offsets of a group part of the transaction; their readers wait for its end. Raises as a commit does."""
        with self._cluster.atomic():
            self._open_transaction()
            target = self._cluster.group(group)
            if member is None:
                # A transaction without a member is accepted beside the group's members.
                target.require_metadata_size(offsets)
            else:
                target.require_may_commit(member, offsets)
            for partition, committed in offsets.items():
                self._offsets.append((target, partition, committed))
                target.pending[partition] = target.pending.get(partition, 0) + 1

    def commit(self) -> None:
        """Make all of it visible."""
        with self._cluster.atomic():
            self._open_transaction()
            for group, partition, committed in self._offsets:
                group.record({partition: committed})
            self._end(TransactionOutcome.COMMITTED)

    def abort(self) -> None:
        """Make none of it visible."""
        with self._cluster.atomic():
            self._open_transaction()
            self._end(TransactionOutcome.ABORTED)

    @property
    def is_open(self) -> bool:
        """Whether a transaction has begun and not ended."""
        return self._transaction is not None

    def time_out(self) -> None:
        """Abort the open transaction, and fence this producer."""
        with self._cluster.atomic():
            self._end(TransactionOutcome.ABORTED)
            self._cluster.writers[self._id] = None

    def _open_transaction(self) -> Transaction:
        if self._id not in self._cluster.writers:
            raise KafkaError(f"{self._id} is not known any more: the producer's id is not assigned")
        if self._cluster.writers[self._id] is not self:
            raise ProducerFenced(f"another producer has taken over {self._id}")
        if self._transaction is None:
            self._transaction = Transaction()
            self.used_at = time.time()
        return self._transaction

    def _end(self, fate: TransactionOutcome) -> None:
        self.used_at = time.time()
        if self._transaction is not None:
            self._transaction.end(fate)
            self._transaction = None
        for group, partition, _ in self._offsets:
            group.pending[partition] -= 1
        self._offsets.clear()


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
                del cluster.writers[name]


def _writers(cluster: MemoryCluster) -> list[MemoryTransactionalProducer]:
    return [each for each in cluster.writers.values() if isinstance(each, MemoryTransactionalProducer)]
