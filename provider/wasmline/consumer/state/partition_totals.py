"""Sums over all partitions of a consumer, and which of them have something to run. Pure."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from wasmline.consumer.state.buffers import Buffer

if TYPE_CHECKING:
    from wasmline.consumer.state.partition_work import PartitionWork


class PartitionCounts(NamedTuple):
    """What a partition adds to the sums."""

    queued: int = 0
    ready: int = 0
    buffered: int = 0
    bytes: int = 0


class PartitionTotals:
    """What an iteration of the control loop asks of all partitions, at the cost of those that have ``changed`` since.

    Everything here is as of the last ``update``.
    """

    def __init__(self, buffer_records: int, buffer_bytes: int) -> None:
        self.changed: dict[PartitionWork, None] = {}
        """Partitions whose counts are stale: because of their shards, columns, offsets, bytes or records in flight, or
        since they are held or closed. In the order of insertion, as all others here, so that runs are reproducible."""
        self.queued = 0
        """Records that wait."""
        self.ready = 0
        """Shards, and partitions with columns, that may run, including those of held partitions."""
        self.records = Buffer(buffer_records, attrgetter("buffered"))
        self.bytes = Buffer(buffer_bytes, attrgetter("bytes"))
        self.runnable: OrderedDict[PartitionWork, None] = OrderedDict()
        """Partitions with shards that may run, in the order in which they are served."""
        self.runnable_columns: OrderedDict[PartitionWork, None] = OrderedDict()
        """Partitions with columns that may run, in the order in which they are served."""
        self.delayed: dict[PartitionWork, None] = {}
        """Partitions with shards that wait for a retry."""
        self.blocked: dict[PartitionWork, None] = {}
        """Partitions whose offset map has reached its back-pressure length."""
        self._now = float("-inf")

    def update(self, now: float | None = None) -> None:
        """Count what has changed; ``now``: retries that are due may run."""
        if now is not None and now > self._now:
            self._now = now
            self.changed.update((work, None) for work in self.delayed if work.shards.is_due(now))
        for work in self.changed:
            self._count(work)
        self.changed.clear()

    def _count(self, work: PartitionWork) -> None:
        before = work.counted
        if work.closed:
            after = PartitionCounts()
        else:
            after = PartitionCounts(work.queued, work.shards.ready + work.has_ready_columns, work.buffered, work.bytes)
        work.counted = after
        self.queued += after.queued - before.queued
        self.ready += after.ready - before.ready
        self.records.total += after.buffered - before.buffered
        self.bytes.total += after.bytes - before.bytes
        may_run = not work.held
        _keep(self.runnable, work, may_run and (work.shards.ready > 0 or work.shards.is_due(self._now)))
        _keep(self.runnable_columns, work, may_run and work.has_ready_columns)
        _keep(self.delayed, work, not work.closed and work.shards.due is not None)
        _keep(self.blocked, work, not work.closed and work.offsets.blocked)


def in_turn(works: OrderedDict[PartitionWork, None]) -> Iterator[PartitionWork]:
    """Yield each partition once, and serve it last the next time."""
    for _ in range(len(works)):
        work = next(iter(works))
        works.move_to_end(work)
        yield work


def _keep(works: dict[PartitionWork, None], work: PartitionWork, is_member: bool) -> None:
    """Add a partition as the last, unless it is among these already, or remove it."""
    if is_member:
        works.setdefault(work)
    else:
        works.pop(work, None)
