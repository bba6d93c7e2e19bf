"""Follows the partitions whose buffers are full of records that wait: for a retry, or for slow ones of their key."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import NamedTuple

from wasmline.consumer.state.work_manager import PartitionWork

logger = logging.getLogger(__name__)

STALLED_S = 10.0
"""Seconds without a record that is done after which a full buffer is told of."""


class StalledPartitions:
    """Notes since when nothing of a partition was done while it was paused over a full buffer."""

    def __init__(self) -> None:
        self._full: dict[PartitionWork, _Full] = {}

    def check(self, works: Iterable[PartitionWork], now: float) -> None:
        """Look at the partitions, and warn once of each that has stalled."""
        full: dict[PartitionWork, _Full] = {}
        for work in works:
            if not work.paused:
                continue
            before = self._full.get(work)
            if before is None or before.moment != work.offsets.moment:
                before = _Full(work.offsets.moment, now)
            elif not before.is_told and now - before.since >= STALLED_S:
                before = before._replace(is_told=True)
                logger.warning(
                    "%s-%d: its buffer is full, and none of its %d records was done for %.0f s: they wait for retries "
                    "or for slow records of their keys, and no more are read; buffer_records and buffer_bytes bound it",
                    *work.partition,
                    work.buffered,
                    now - before.since,
                )
            full[work] = before
        self._full = full

    def seconds(self, work: PartitionWork, now: float) -> float:
        """Return for how long a partition has stalled, as of the last check; 0 where it has room, or goes on."""
        known = self._full.get(work)
        return 0.0 if known is None or known.moment != work.offsets.moment else max(0.0, now - known.since)


class _Full(NamedTuple):
    """A partition whose buffer is full."""

    moment: int
    """How often something of it had been done."""

    since: float
    is_told: bool = False
