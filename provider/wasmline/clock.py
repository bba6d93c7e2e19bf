"""The wall clock of documents, and an uptime clock that includes suspension."""

from __future__ import annotations

import time

UPTIME = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Linux's clock that continues while the machine is suspended; elsewhere the monotonic clock."""


def uptime() -> float:
    """Return the seconds since an arbitrary moment, including time in which the machine was suspended."""
    return time.clock_gettime(UPTIME)


def now_ms() -> int:
    """Return the current time in whole milliseconds since the Unix epoch, the unit of every ``…_ms`` moment."""
    return time.time_ns() // 1_000_000
