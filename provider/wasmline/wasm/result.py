"""The result of a transform for one batch of records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from wasmline.errors import TransformError


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFailure:
    """One input row without outputs, and the reason; the error has the record's coordinates."""

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
    """One write of the guest to stdout (INFO) or stderr (WARN), unchanged; ``row`` is None for one at its start."""

    row: int | None
    level: Literal["INFO", "WARN"]
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformResult:
    """Accounts for each of ``rows`` input rows: either all its outputs are in ``outputs``, or it is a failure.

    ``outputs`` has OUTPUT_SCHEMA and is in input order; a row that the guest filtered is in neither. ``failures`` is
    in input order. Rows are numbered as in the batch; the result may be a part of it. ``logs_dropped`` counts the
    lines above the log limit.

    Outputs of more than 2 GiB, too large for one Arrow column, are a pa.Table of several chunks.
    """

    rows: int
    outputs: pa.RecordBatch
    failures: tuple[RecordFailure, ...] = ()
    logs: tuple[LogLine, ...] = ()
    logs_dropped: int = 0

    @classmethod
    def joined(cls, parts: Sequence[TransformResult]) -> TransformResult:
        """Return one or more parts of a batch as one result."""
        if len(parts) == 1:
            return parts[0]
        return cls(
            rows=sum(part.rows for part in parts),
            outputs=_joined([part.outputs for part in parts]),
            failures=tuple(failure for part in parts for failure in part.failures),
            logs=tuple(line for part in parts for line in part.logs),
            logs_dropped=sum(part.logs_dropped for part in parts),
        )


def _joined(outputs: Sequence[pa.RecordBatch]) -> pa.RecordBatch | pa.Table:
    try:
        return pa.concat_batches(outputs)
    except pa.ArrowInvalid:  # the offsets of a column exceed 32 bits
        return pa.Table.from_batches(outputs)
