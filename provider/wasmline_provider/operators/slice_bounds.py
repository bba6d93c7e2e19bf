"""Reads the bounds of a slice as templates and other tasks give them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from wasmline.errors import InvalidTrainSpec

EARLIEST_MS = 946_684_800_000
"""The year 2000. A lower number is one of seconds."""

TIME = "a date and time with a UTC offset such as 2026-01-01T00:00+00:00, or Unix milliseconds, from the year 2000"


def slice_since(value: Any) -> str | int:
    """Return where a slice begins, a time as Unix milliseconds. Raises InvalidTrainSpec."""
    if value in ("previous", "beginning"):
        return str(value)
    return _moment("since", value, f"previous, beginning, {TIME}")


def slice_until(value: Any) -> str | int | dict[str, Any]:
    """Return where a slice ends, a time as Unix milliseconds. Raises InvalidTrainSpec."""
    if value == "now":
        return "now"
    if isinstance(value, Mapping):
        return {str(partition): offset for partition, offset in value.items()}
    return _moment("until", value, f"now, the end offset of each partition, {TIME}")


def _moment(name: str, value: Any, known: str) -> int:
    try:
        moment = _unix_ms(value)
    except (TypeError, ValueError, OverflowError):
        moment = 0
    if moment < EARLIEST_MS:
        raise InvalidTrainSpec(f"{name} is {str(value)[:80]!r}; it may be {known}", field="slice")
    return moment


def _unix_ms(value: Any) -> int:
    """Return a time; digits are Unix milliseconds, and no date such as 20260101."""
    try:
        return int(value)
    except (TypeError, ValueError):
        moment = value if isinstance(value, datetime) else datetime.fromisoformat(value)
    if moment.tzinfo is None:
        raise ValueError("it has no UTC offset")
    return int(moment.timestamp() * 1000)
