"""Recognises readings of a cluster that come so late that missing heartbeats prove nothing."""

from __future__ import annotations

SLOW_READING_S = 10.0
"""Seconds beyond the interval, from the end of one reading to the end of the next, that count as a gap."""


class ReadingGaps:
    """Tells after which readings silence has to be counted anew.

    A read may wait for a minute and succeed, and a container may be frozen with all that is in it: what sends
    heartbeats was held up by the same, and has had no time since. Times are of a monotonic clock.
    """

    def __init__(self, interval_s: float) -> None:
        """``interval_s``: seconds from the end of one reading to the beginning of the next."""
        self._interval_s = interval_s
        self._last_at: float | None = None

    def is_after_gap(self, now: float) -> bool:
        """Take note of the end of a reading; return whether it is the first one, or was late."""
        last, self._last_at = self._last_at, now
        return last is None or now - last > self._interval_s + SLOW_READING_S

    def reset(self) -> None:
        """Take note of a reading that failed: the next one is after a gap."""
        self._last_at = None
