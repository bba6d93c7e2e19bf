"""The control block: the named cells at the start of the shim's memory through which host and shim talk.

One table serves both sides: the generated WebAssembly reads a cell at ``OFFSETS[name]``, and the host packs and
unpacks whole blocks. The host writes INPUT, OUTPUT and BATCH before a batch and SETUP once; the shim keeps STATE for
itself and for the host's reading. After the control block come the strings of args and environment, the logs, then
per batch the input columns and, last because they may grow, the output columns.
"""

from __future__ import annotations

import operator
import struct
from collections.abc import Mapping
from typing import Any

I32 = "I"
I64 = "q"
ALIGN = 64


class Block:
    """Consecutive cells of one kind that are packed and unpacked together."""

    def __init__(self, start: int, kind: str, names: tuple[str, ...]) -> None:
        self._struct = struct.Struct("<" + kind * len(names))
        self._pick = operator.itemgetter(*names)
        size = struct.calcsize("<" + kind)
        self.names = names
        self.start = start
        self.end = start + self._struct.size
        self.offsets = {name: start + index * size for index, name in enumerate(names)}

    def pack(self, memory: Any, values: Mapping[str, int]) -> None:
        """Write every cell; ``values`` names them all."""
        self._struct.pack_into(memory, self.start, *self._pick(values))

    def unpack(self, memory: Any) -> dict[str, int]:
        """Return every cell."""
        return dict(zip(self.names, self._struct.unpack_from(memory, self.start), strict=True))


def binary(prefix: str, *extra: str) -> tuple[str, ...]:
    """Return the cells of an input column of byte strings: Arrow's three buffers, and the bit where validity begins."""
    return tuple(f"{prefix}_{part}" for part in ("offsets", "data", "validity", "bit", *extra))


def writable(prefix: str) -> tuple[str, ...]:
    """Return the cells of an output column of byte strings: its buffers, what they hold and what they could hold."""
    return tuple(f"{prefix}_{part}" for part in ("offsets", "data", "valid", "bytes", "capacity", "nulls"))


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
OUTPUT = Block(
    INPUT.end,
    I32,
    (
        *("rows", "row_capacity", "row_index", "topic_index"),
        *writable("out_key"),
        *writable("out_value"),
        *("out_headers_offsets", "out_headers", "out_headers_capacity"),
        *writable("out_header_key"),
        *writable("out_header_value"),
    ),
)
STATE = Block(
    OUTPUT.end,
    I32,
    (
        "delivered",  # records of this batch that the guest holds or held; bumped once a record is in its memory
        "refused",  # 1 + index of a record that did not fit the guest's buffer, 0 for none
        "row",  # the caller's row that outputs and log lines belong to
        "active",  # 1 from the first batch on
        "progress",  # changes with every record and batch: what the watchdog looks at
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
BLOCKS = (CLOCKS, SETUP, INPUT, OUTPUT, STATE)
OFFSETS: dict[str, int] = {name: offset for block in BLOCKS for name, offset in block.offsets.items()}
STATIC = (STATE.end + ALIGN - 1) // ALIGN * ALIGN
"""Where the strings begin."""

ENDING_EXIT = 1
ENDING_OUTPUT = 2
ENDING_HOST = 3

LOG_HEADER = struct.Struct("<III")
"""What stands before the text of each log line: row, file descriptor, bytes."""

STDERR_HEAD_BYTES = 512
STDERR_TAIL_BYTES = 512
"""How much of a record's stderr is kept for the reason of its failure: a stack dump begins with what happened."""

NO_ROW = 0xFFFFFFFF
"""The row of what a guest logs before its first batch."""


def align(position: int) -> int:
    """Return the next position where a column may begin."""
    return (position + ALIGN - 1) & -ALIGN
