"""Tells a consumer that gets nothing from one that fetches what nobody is given: aborted or compacted records."""

from __future__ import annotations

import json
from typing import Any

REPORT_INTERVAL_MS = 1_000


class FetchProgress:
    """Notes how far a consumer has fetched its partitions, as the client reports it while it is polled."""

    def __init__(self) -> None:
        self._positions: dict[tuple[str, str], int] = {}
        self._has_moved = False

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of a consumer that reports to this."""
        return {"statistics.interval.ms": REPORT_INTERVAL_MS, "stats_cb": self.note}

    def note(self, statistics: str) -> None:
        """Take a report of the client (STATISTICS.md of librdkafka)."""
        positions = {
            (topic, number): partition["next_offset"]
            for topic, each in json.loads(statistics)["topics"].items()
            for number, partition in each["partitions"].items()
        }
        self._has_moved |= positions != self._positions
        self._positions = positions

    def take(self) -> bool:
        """Return whether the client has fetched anything since this was last asked, as far as it has reported."""
        has_moved, self._has_moved = self._has_moved, False
        return has_moved
