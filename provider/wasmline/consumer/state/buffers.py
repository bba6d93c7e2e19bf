"""Divides the buffers of a consumer among its partitions. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wasmline.consumer.state.partition_work import PartitionWork

RESUME_FILL_RATIO = 0.5
"""Fill ratio at which a paused partition is read again: each pause costs a fetch."""

IDLE_RESUME_FILL_RATIO = 0.875
"""The same while some worker has no work, or nothing of the partition may run: the records in the buffer wait for
retries or for slow keys."""


MAX_READ_RATIO = 0.25
"""Largest part of a buffer that one poll may add while it is less than half full."""

MIN_SHARE_RATIO = 0.125
"""Part of an equal share that each partition has, however much others have: all of them together overfill a buffer by
that part of it."""


class Buffer:
    """What is buffered of all partitions, in records or in bytes, and how much of it each may have.

    Until it is half full, a partition may have any part of the ``capacity``. Then each is paused that has its fair
    share. So the records of many partitions are not read a few at a time, and a partition whose records do not get done
    leaves a part to the others.
    """

    def __init__(self, capacity: int, size_of: Callable[[PartitionWork], int]) -> None:
        self.capacity = capacity
        self.size_of = size_of
        self.total = 0
        """What all partitions have."""

    @property
    def is_half_full(self) -> bool:
        return self.total * 2 >= self.capacity

    def fair_share(self, works: Collection[PartitionWork]) -> int:
        """Return what each partition may have once the buffer is half full: the max-min fair share, at least 1.

        Partitions above it keep what they have; what they leave is divided equally among the others.
        """
        left, parts, share = self.capacity, len(works), self.capacity
        least = int(self.capacity * MIN_SHARE_RATIO) // max(1, parts)
        for size in sorted(map(self.size_of, works), reverse=True):
            share = left // parts
            if size <= share:
                break
            left, parts = left - size, parts - 1
        return max(1, least, share)

    def is_full(self, work: PartitionWork, share: int) -> bool:
        """Return whether a partition is to be paused."""
        return self.is_half_full and self.size_of(work) >= share

    def has_drained(self, work: PartitionWork, share: int, ratio: float) -> bool:
        """Return whether a paused partition may be read again: ``ratio`` of its share, or of the half, is left."""
        return self.size_of(work) <= share * ratio or self.total * 2 <= self.capacity * ratio

    def poll_limit(self, works: Collection[PartitionWork]) -> int:
        """Return what one poll may add, even if all of it is of one partition; 0 or less: nothing."""
        if not self.is_half_full:
            return int(self.capacity * MAX_READ_RATIO)
        fullest = max((self.size_of(work) for work in works if not work.paused), default=self.capacity)
        return self.fair_share(works) - fullest
