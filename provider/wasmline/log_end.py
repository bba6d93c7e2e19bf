"""Reads the end of a driver's log, for messages."""

from __future__ import annotations

import os
from pathlib import Path

from wasmline.printable import printable

LOG_END_BYTES = 4_000
"""Bytes of a log that a message quotes: a report is one record, and a result of a task stays small."""


def log_end(path: Path, limit_bytes: int = LOG_END_BYTES) -> str:
    """Return the last whole lines of a log, printable; the end of its last line if that is longer. "" if unreadable."""
    try:
        with path.open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(0, size - limit_bytes))
            end = log.read(limit_bytes)
    except OSError:
        return ""
    if size > limit_bytes:
        end = end.partition(b"\n")[2].strip(b"\n") or end
    return printable(end.decode(errors="replace").strip("\n"), lines=True)
