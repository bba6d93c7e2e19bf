"""Times in UTC as text, for terminals, and from command lines and forms."""

from __future__ import annotations

import re
from datetime import UTC, datetime

UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}

AGE = re.compile(rf"([0-9]{{1,9}})({'|'.join(UNITS_MS)})")


def moment(unix_ms: int) -> str:
    """Return a time of a stored document as text in UTC; one that no calendar has, as its number."""
    try:
        return datetime.fromtimestamp(unix_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return f"{unix_ms} ms"


def parse_moment(text: str) -> int:
    """Return a time such as ``2026-11-26T16:00:00Z``, in UTC unless it says otherwise, as Unix milliseconds.

    Raises ValueError.
    """
    parsed = datetime.fromisoformat(text)
    return int((parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp() * 1_000)


def parse_moment_or_age(text: str, now_ms: int) -> int:
    """Return a time, or the one before now by an age such as ``15m``, as Unix milliseconds. Raises ValueError."""
    if found := AGE.fullmatch(text):
        return now_ms - int(found[1]) * UNITS_MS[found[2]]
    try:
        return parse_moment(text)
    except ValueError:
        raise ValueError(f"{text!r} is neither a time such as 2026-11-26T16:00:00Z nor an age such as 15m") from None
