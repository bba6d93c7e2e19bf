"""What comes out of a transform for one batch of records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from wasmline.errors import TransformError


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFailure:
    """One input row that gave no outputs, and why; the error knows the record's coordinates."""

    row: int
    error: TransformError

    @property
    def partition(self) -> int | None:
        """The record's partition."""
        return self.error.partition

    @property
    def offset(self) -> int | None:
        """The record's offset."""
        return self.error.offset


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """One write of the guest to stdout (INFO) or stderr (WARN), as written; ``row`` is None for one at its start."""

    row: int | None
    level: Literal["INFO", "WARN"]
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformResult:
    """Every input row is accounted for: its outputs are in ``outputs``, all of them, or it is in ``failures``.

    ``outputs`` has OUTPUT_SCHEMA and is in input order; a row that the guest filtered is in neither. ``failures`` is
    in input order. ``logs_dropped`` counts the lines that were over the log limit.
    """

    outputs: pa.RecordBatch
    failures: tuple[RecordFailure, ...] = ()
    logs: tuple[LogLine, ...] = ()
    logs_dropped: int = 0
