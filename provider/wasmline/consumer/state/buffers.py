"""Divides the buffers of a consumer among its partitions. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wasmline.consumer.state.work_manager import PartitionWork

RESUME_FILL_RATIO = 0.5
"""Fill ratio at which a paused partition is read again: each pause costs a fetch."""

IDLE_RESUME_FILL_RATIO = 0.875
"""The same while some worker has no work, or nothing of the partition may run: the records in the buffer wait for
retries or for slow keys."""


READ_RATIO = 0.25
"""The part of a buffer that may be read at once while it is not half full."""


class Buffer:
    """The records of all partitions that are buffered, or their bytes: ``most`` at most.

    Until it is half full, a partition may have any part of it. Then each is paused that has its share. So the records
    of many partitions are not read a few at a time, and a partition whose records do not get done leaves half of the
    buffer to the others.
    """

    def __init__(self, most: int, size_of: Callable[[PartitionWork], int]) -> None:
        self.most = most
        self.size_of = size_of
        self.total = 0
        """What all partitions have."""

    @property
    def is_half_full(self) -> bool:
        return self.total * 2 >= self.most

    def share(self, works: Collection[PartitionWork]) -> int:
        """Return what each partition may have once the buffer is half full; at least 1.

        That is an equal part of what the partitions that have more leave to the others.
        """
        left, parts, share = self.most, len(works), self.most
        for size in sorted(map(self.size_of, works), reverse=True):
            share = left // parts
            if size <= share:
                break
            left, parts = left - size, parts - 1
        return max(1, share)

    def is_full(self, work: PartitionWork, share: int) -> bool:
        """Return whether a partition is to be paused."""
        return self.is_half_full and self.size_of(work) >= share

    def has_drained(self, work: PartitionWork, share: int, ratio: float) -> bool:
        """Return whether a paused partition may be read again: it is down to this part of its share, or all are."""
        return self.size_of(work) <= share * ratio or self.total * 2 <= self.most * ratio

    def room(self, works: Collection[PartitionWork]) -> int:
        """Return what may be read at once, although all of it may be of one partition; 0 or less: nothing."""
        if not self.is_half_full:
            return int(self.most * READ_RATIO)
        return self.share(works) - max((self.size_of(work) for work in works if not work.paused), default=self.most)
