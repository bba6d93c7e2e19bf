"""Tracks partitions whose buffers are full of waiting records: for a retry, or for slow records of their key."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import NamedTuple

from wasmline.consumer.state.partition_work import PartitionWork

logger = logging.getLogger(__name__)

STALLED_S = 10.0
"""Seconds without a completed record after which a full buffer is reported."""


class StalledPartitions:
    """Tracks since when nothing of a partition was done while it was paused over a full buffer."""

    def __init__(self) -> None:
        self._full: dict[PartitionWork, _Full] = {}

    def check(self, works: Iterable[PartitionWork], now: float) -> None:
        """Check the partitions, and warn once of each that has stalled."""
        full: dict[PartitionWork, _Full] = {}
        for work in works:
            if not work.paused:
                continue
            before = self._full.get(work)
            if before is None or before.revision != work.offsets.revision:
                before = _Full(work.offsets.revision, now)
            elif not before.is_reported and now - before.since >= STALLED_S:
                before = before._replace(is_reported=True)
                logger.warning(
                    "%s: its buffer is full, and none of its %d records was done for %.0f s: they wait for retries, "
                    "for slow records of their keys or for outputs of these, and no more are read; buffer_records and "
                    "buffer_bytes limit it",
                    work.partition,
                    work.buffered,
                    now - before.since,
                )
            full[work] = before
        self._full = full

    def seconds(self, work: PartitionWork, now: float) -> float:
        """Return the seconds for which a partition has stalled, at the last check; 0 if it has not."""
        known = self._full.get(work)
        return 0.0 if known is None or known.revision != work.offsets.revision else max(0.0, now - known.since)


class _Full(NamedTuple):
    """A partition whose buffer is full."""

    revision: int
    """The number of completions so far."""

    since: float
    is_reported: bool = False
