"""A producer with a transactional id, in memory."""

from __future__ import annotations

from collections.abc import Mapping

from wasmline.consumer.memory.cluster import MemoryCluster
from wasmline.consumer.memory.group import Group, Member
from wasmline.consumer.memory.log import Fate, Transaction
from wasmline.consumer.records import Output
from wasmline.errors import ProducerFenced
from wasmline.records import CommittedOffset, TopicPartition


class MemoryWriter:
    """Making one fences whoever had the id before, and aborts what he left open.

    A transaction begins with the first ``write`` or ``send_offsets``, and ends with ``commit`` or ``abort``. All four
    raise ProducerFenced.
    """

    def __init__(self, cluster: MemoryCluster, transactional_id: str) -> None:
        self._cluster = cluster
        self._id = transactional_id
        self._transaction: Transaction | None = None
        self._offsets: list[tuple[Group, TopicPartition, CommittedOffset]] = []
        with cluster.change():
            cluster.reach()
            before = cluster.writers.get(transactional_id)
            if isinstance(before, MemoryWriter):
                before._end(Fate.ABORTED)
            cluster.writers[transactional_id] = self

    def write(self, output: Output) -> None:
        """Write a record. Raises TopicNotFound and OutputRefused."""
        with self._cluster.change():
            self._cluster.write(output, self._begun())

    def send_offsets(
        self, group: str, offsets: Mapping[TopicPartition, CommittedOffset], member: Member | None = None
    ) -> None:
        """Make offsets of a group part of the transaction; who reads them meanwhile waits. Raises as a commit does."""
        with self._cluster.change():
            self._begun()
            target = self._cluster.group(group)
            target.check(member, offsets)
            for partition, committed in offsets.items():
                self._offsets.append((target, partition, committed))
                target.pending[partition] = target.pending.get(partition, 0) + 1

    def commit(self) -> None:
        """Let readers have all of it."""
        with self._cluster.change():
            self._begun()
            for group, partition, committed in self._offsets:
                group.committed[partition] = committed
            self._end(Fate.COMMITTED)

    def abort(self) -> None:
        """Let readers have none of it."""
        with self._cluster.change():
            self._begun()
            self._end(Fate.ABORTED)

    def _begun(self) -> Transaction:
        if self._cluster.writers[self._id] is not self:
            raise ProducerFenced(f"somebody else has taken over {self._id}")
        if self._transaction is None:
            self._transaction = Transaction()
        return self._transaction

    def _end(self, fate: Fate) -> None:
        if self._transaction is not None:
            self._transaction.end(fate)
            self._transaction = None
        for group, partition, _ in self._offsets:
            group.pending[partition] -= 1
        self._offsets.clear()
