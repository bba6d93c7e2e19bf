"""The wall clock, as documents note it."""

from __future__ import annotations

import time


def now_ms() -> int:
    """Return the time now in whole milliseconds since the Unix epoch, the unit of every ``…_ms`` moment."""
    return time.time_ns() // 1_000_000
