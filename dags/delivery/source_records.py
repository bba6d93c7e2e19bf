"""Delivery records to produce: from the generator, or from a real file of the same format."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from delivery.contract import COLUMNS
from wasmline.errors import SourceInvalid

START_MS = 1_767_225_600_000
"""The timestamp of the first record, 2026-01-01T00:00:00Z; the file itself carries no time."""

STEP_MS = 60_000
"""The time between two records of a file."""


class Source(NamedTuple):
    """A record to produce. The key is the driver's id, never the label: one driver's deliveries stay in order."""

    key: bytes | None
    value: bytes
    timestamp_ms: int


def key_of(line: bytes) -> bytes | None:
    """Return the driver's id of a line, or None where the line has no such column."""
    cells = line.split(b",")
    return (cells[1].strip() or None) if len(cells) > 1 else None


def read_file(path: Path, *, start_ms: int = START_MS, step_ms: int = STEP_MS) -> Iterator[Source]:
    """Yield each line below the header unchanged: no re-encoding, no trimming, only the line ending is removed.

    Raises SourceInvalid if the file cannot be read or its header differs; both before the first record.
    """
    try:
        with path.open("rb") as file:
            _check_header(path, file.readline())
            for number, line in enumerate(line for line in file if line.strip()):
                value = line.rstrip(b"\r\n")
                yield Source(key_of(value), value, start_ms + number * step_ms)
    except OSError as error:
        raise SourceInvalid(f"{path}: cannot be read: {error.strerror}", path=str(path)) from error


def _check_header(path: Path, line: bytes) -> None:
    found = [name.strip() for name in line.decode("utf-8-sig", "replace").split(",")]
    if tuple(found) == COLUMNS:
        return
    missing = [name for name in COLUMNS if name not in found]
    extra = [name for name in found if name not in COLUMNS]
    facts = [f"missing: {', '.join(missing)}"] if missing else []
    facts += [f"not expected: {', '.join(name or '(empty)' for name in extra)}"] if extra else []
    what = "; ".join(facts) or "the columns are there, but repeated or in another order"
    raise SourceInvalid(
        f"{path}: not a delivery file ({what}). The header must be: {','.join(COLUMNS)}", path=str(path)
    )
