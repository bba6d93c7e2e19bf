"""Times in UTC as text, for terminals, and from command lines and forms."""

from __future__ import annotations

from datetime import UTC, datetime


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
