"""The wall clock, as documents note it, and one that no sleep of the machine stops."""

from __future__ import annotations

import time

UPTIME = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Linux's clock that goes on while the machine is suspended; elsewhere the steady one that there is."""


def uptime() -> float:
    """Return the seconds since some moment, those included in which the machine was suspended."""
    return time.clock_gettime(UPTIME)


def now_ms() -> int:
    """Return the time now in whole milliseconds since the Unix epoch, the unit of every ``…_ms`` moment."""
    return time.time_ns() // 1_000_000
