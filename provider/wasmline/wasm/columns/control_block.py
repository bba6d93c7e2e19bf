"""The control block: named cells at the start of the shim's memory, shared by host and shim.

One table defines both sides: the generated WebAssembly reads a cell at ``OFFSETS[name]``, and the host packs and
unpacks whole blocks. The host writes SETUP once, INPUT and OUTPUT before a batch; the shim counts in WRITTEN the
contents of the output columns, and keeps STATE for itself and for the host to read. After the control block come the
strings of args and environment, the logs, then per batch the input columns and, last because they may grow, the output
columns.
"""

from __future__ import annotations

import struct

I32 = "I"
I64 = "q"
ALIGN_BYTES = 64


class Block:
    """Consecutive cells of one kind that are packed and unpacked together."""

    def __init__(self, start: int, kind: str, names: tuple[str, ...]) -> None:
        self._struct = struct.Struct("<" + kind * len(names))
        size = struct.calcsize("<" + kind)
        self.names = names
        self.start = start
        self.size = self._struct.size
        self.end = start + self.size
        self.offsets = {name: start + index * size for index, name in enumerate(names)}

    def pack(self, *values: int) -> bytes:
        """Return the bytes of every cell, in the order of their names."""
        return self._struct.pack(*values)

    def unpack(self, content: bytes) -> dict[str, int]:
        """Return every cell of a block's bytes."""
        return dict(zip(self.names, self._struct.unpack(content), strict=True))


def binary(prefix: str, *extra: str) -> tuple[str, ...]:
    """Return the cells of an input column of byte strings: Arrow's three buffers, and the first validity bit."""
    return tuple(f"{prefix}_{part}" for part in ("offsets", "data", "validity", "bit", *extra))


CLOCKS = Block(0, I64, ("wall_ms", "monotonic_ns", "readings_ns"))
SETUP = Block(
    CLOCKS.end,
    I32,
    (
        *("strings", "topics", "topic_count", "stderr", "log", "output_limit", "redpanda_clock"),
        *("schemas", "schema_count", "subject_count"),  # the first ``subject_count`` schemas have a subject
    ),
)
INPUT = Block(
    SETUP.end,
    I32,
    (
        *("records", "row_base", "timestamps", "record_offsets", "sizes"),
        *binary("key"),
        *binary("value"),
        *("headers_offsets", "headers_validity", "headers_bit"),
        *binary("header_key"),
        *binary("header_value"),
    ),
)
OUTPUT_BYTES = ("out_key", "out_value", "out_header_key", "out_header_value")
"""The output columns of byte strings."""
OUTPUT = Block(
    INPUT.end,
    I32,
    (
        *("row_index", "topic_index", "out_headers_offsets"),
        *(f"{name}_{buffer}" for name in OUTPUT_BYTES for buffer in ("offsets", "valid", "data")),
        *("row_capacity", "out_headers_capacity"),
        *(f"{name}_capacity" for name in OUTPUT_BYTES),
    ),
)
WRITTEN = Block(
    OUTPUT.end,
    I32,
    (
        *("rows", "out_headers"),
        *(f"{name}_bytes" for name in OUTPUT_BYTES),
        *(f"{name}_nulls" for name in OUTPUT_BYTES),
    ),
)
STATE = Block(
    WRITTEN.end,
    I32,
    (
        "delivered",  # records of this batch that the guest holds or held; bumped once a record is in its memory
        "refused",  # 1 + index of a record that did not fit the guest's buffer, 0 for none
        "row",  # the caller's row that outputs and log lines belong to
        "active",  # 1 from the first batch on
        "progress",  # changes with every record and batch; polled by the watchdog
        "max_record",
        "output_bytes",  # written for the current record
        "ending",  # why the shim stopped the guest: one of the ENDING values
        "exit_status",
        "log_bytes",
        "log_capacity",
        "logs_dropped",
        "stderr_bytes",
        "stderr_torn",  # 1 if some of the record's stderr, between its head and its tail, is not kept
    ),
)
BLOCKS = (CLOCKS, SETUP, INPUT, OUTPUT, WRITTEN, STATE)
OFFSETS: dict[str, int] = {name: offset for block in BLOCKS for name, offset in block.offsets.items()}
STATIC = (STATE.end + ALIGN_BYTES - 1) // ALIGN_BYTES * ALIGN_BYTES
"""Position of the strings."""

ENDING_EXIT = 1
ENDING_OUTPUT = 2
ENDING_HOST = 3

LOG_HEADER = struct.Struct("<III")
"""Header of each log line: row, file descriptor, bytes."""

STDERR_HEAD_BYTES = 512
STDERR_TAIL_BYTES = 512
"""Bytes of a record's stderr kept for the reason of its failure: a stack dump begins with the cause."""

NO_ROW = 0xFFFFFFFF
"""The row of log lines before the first batch."""


def align(position: int) -> int:
    """Return the next aligned position for a column."""
    return (position + ALIGN_BYTES - 1) & -ALIGN_BYTES
