"""Output columns: columns in the shim's memory that the guest's writes fill, collected as Arrow record batches.

All contents are checked before Arrow uses them: positions and capacities are unchanged, counts lie within them, offsets
increase from 0 to the number of bytes, rows increase within the batch, outputs exist. A guest cannot write there. If
one ever does, its instance ends with SandboxViolation, not the process.
"""

from __future__ import annotations

import ctypes
import operator
from collections.abc import Sequence
from contextlib import suppress
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa

from wasmline.errors import RecordTooLarge
from wasmline.record_batches import HEADERS, OUTPUT_SCHEMA
from wasmline.wasm.columns.control_block import OUTPUT, WRITTEN, align
from wasmline.wasm.columns.input_columns import BatchExtent
from wasmline.wasm.columns.shim_memory import ShimMemory, sandbox_violation_error

SLACK_ROWS = 256
SLACK_BYTES = 64 * 1024
MAX_SCALE = 16
MAX_COLUMN_BYTES = 64 * 2**20
"""Maximum capacity of a column of byte strings, unless a payload is larger."""


class OutputColumns:
    """Lays out the output columns after a batch's input columns, and empties them.

    Outputs are expected to have about the size of the inputs; if a guest writes more, the shim requests a flush, and
    the columns of later batches are larger.
    """

    def __init__(self, memory: ShimMemory, outputs: int) -> None:
        """``outputs``: the number of output topics."""
        self._memory = memory
        self._outputs = outputs
        self._loaded = BatchExtent(end=0, rows=0)
        self._cells: dict[str, int] = {}
        self._capacities: tuple[int, ...] = ()
        self._laid_out = b""
        self._scale = 1

    def open(self, loaded: BatchExtent) -> None:
        """Prepare empty columns for the outputs of the loaded batch. Raises RecordTooLarge."""
        self._loaded = loaded
        self._lay_out(0)

    def empty(self) -> pa.RecordBatch | None:
        """Return the contents of the columns, as ``collect`` does, and clear them."""
        collected = self.collect()
        self._memory.write(WRITTEN.start, _NOTHING)
        return collected

    def widen(self, need: int) -> None:
        """Replace empty columns by larger ones, with capacity for a payload of ``need`` bytes.

        Raises RecordTooLarge.
        """
        self._scale = min(self._scale * 2, MAX_SCALE)
        self._lay_out(need)

    def _lay_out(self, need: int) -> None:
        with suppress(RecordTooLarge):
            self._reserve_columns(self._scale, need)
            return
        self._scale = 1
        self._reserve_columns(1, need)

    def _reserve_columns(self, scale: int, need: int) -> None:
        loaded = self._loaded
        rows = (loaded.rows + SLACK_ROWS) * scale
        headers = max((loaded.headers + SLACK_ROWS) * scale, need // 2)
        sizes = (loaded.key_bytes, loaded.value_bytes, loaded.header_bytes, loaded.header_bytes)
        capacities = [max(min((size + SLACK_BYTES) * scale, MAX_COLUMN_BYTES), need) for size in sizes]
        takes = [4 * rows, 4 * rows, 4 * (rows + 1)]
        for length, capacity in zip((rows, rows, headers, headers), capacities, strict=True):
            takes += (4 * (length + 1), length, capacity)
        *places, end = accumulate(map(align, takes), initial=loaded.end)
        self._memory.reserve(end)
        self._capacities = (rows, headers, *capacities)
        self._cells = dict(zip(OUTPUT.names, (*places, *self._capacities), strict=True))
        for cell in _OFFSETS:
            ctypes.c_int32.from_address(self._memory.address + self._cells[cell]).value = 0
        self._laid_out = OUTPUT.pack(*self._cells.values())
        self._memory.write(OUTPUT.start, self._laid_out)
        self._memory.write(WRITTEN.start, _NOTHING)

    def collect(self) -> pa.RecordBatch | None:
        """Return a copy of the columns in OUTPUT_SCHEMA, or None if empty. Header keys may not be UTF-8."""
        written = self._written()
        rows = written["rows"]
        if not rows:
            return None
        columns = [
            self._rows(rows),
            self._topics(rows),
            self._binary("out_key", rows, written),
            self._binary("out_value", rows, written),
            self._headers(rows, written),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=OUTPUT_SCHEMA)

    def _written(self) -> dict[str, int]:
        if self._memory.read(OUTPUT.start, OUTPUT.size) != self._laid_out:
            raise sandbox_violation_error("a column is not where it was laid out")
        written = WRITTEN.unpack(self._memory.read(WRITTEN.start, WRITTEN.size))
        if any(map(operator.gt, written.values(), self._capacities)):  # Arrow checks the nulls, which follow them
            raise sandbox_violation_error("a count is more than its capacity")
        return written

    def _rows(self, length: int) -> pa.Array:
        buffer = self._copy("row_index", 4 * length)
        (first, last), base = _ends(buffer), self._loaded.row_base
        rows = np.frombuffer(buffer, np.int32)
        if first < base or last >= base + self._loaded.rows or np.count_nonzero(rows[1:] < rows[:-1]):
            raise sandbox_violation_error("the rows of the outputs are not those of the batch, in order")
        return pa.Array.from_buffers(pa.int32(), length, [None, buffer], 0)

    def _topics(self, length: int) -> pa.Array:
        if self._outputs == 1:
            return pa.Array.from_buffers(pa.int32(), length, [None, _zeros(length)], 0)
        buffer = self._copy("topic_index", 4 * length)
        if np.frombuffer(buffer, np.uint32).max() >= self._outputs:
            raise sandbox_violation_error(f"an output is not for any of the {self._outputs} output topics")
        return pa.Array.from_buffers(pa.int32(), length, [None, buffer], 0)

    def _binary(self, column: str, length: int, written: dict[str, int]) -> pa.Array:
        size, nulls = written[f"{column}_bytes"], written[f"{column}_nulls"]
        bitmap = self._bitmap(column, length) if nulls else None
        offsets, data = self._offsets(column, length, size), self._copy(f"{column}_data", size)
        return _checked(column, pa.binary(), length, [bitmap, offsets, data], nulls)

    def _headers(self, rows: int, written: dict[str, int]) -> pa.Array:
        length = written["out_headers"]
        buffers = [None, self._offsets("out_headers", rows, length)]
        if not length:
            return pa.Array.from_buffers(HEADERS, rows, buffers, 0, children=[_NO_HEADERS])
        _checked("out_headers", _LISTS, rows, buffers, 0, children=[pa.nulls(length)])
        key = self._binary("out_header_key", length, written).view(pa.string())
        value = self._binary("out_header_value", length, written)
        headers = pa.StructArray.from_arrays([key, value], fields=list(HEADERS.value_type))
        return pa.Array.from_buffers(HEADERS, rows, buffers, 0, children=[headers])

    def _offsets(self, column: str, length: int, end: int) -> pa.Buffer:
        """Return the offsets of a column after a check of the first and last; ``_checked`` checks the others."""
        if end == 0:
            return _zeros(length + 1)
        buffer = self._copy(f"{column}_offsets", 4 * (length + 1))
        if _ends(buffer) != (0, end):
            raise sandbox_violation_error(f"the offsets of {column} are not from 0 to {end}")
        return buffer

    def _bitmap(self, column: str, length: int) -> pa.Buffer:
        marks = np.frombuffer(self._memory.read(self._cells[f"{column}_valid"], length), dtype=np.uint8)
        return pa.py_buffer(np.packbits(marks, bitorder="little"))

    def _copy(self, place: str, size: int) -> pa.Buffer:
        buffer = pa.allocate_buffer(size)
        ctypes.memmove(buffer.address, self._memory.address + self._cells[place], size)
        return buffer


def _checked(column: str, *layout: Any, children: Sequence[pa.Array] | None = None) -> pa.Array:
    """Return the result of ``pa.Array.from_buffers``, after a check that offsets increase and a count of nulls."""
    try:
        array = pa.Array.from_buffers(*layout, children=children)
        array.validate(full=True)
    except pa.ArrowInvalid as error:
        raise sandbox_violation_error(f"{column}: {error}") from error
    return array


def _ends(buffer: pa.Buffer) -> tuple[int, int]:
    """Return the first and the last of some 32-bit numbers."""
    numbers = memoryview(buffer).cast("i")
    return numbers[0], numbers[-1]


def _zeros(length: int) -> pa.Buffer:
    """Return 32-bit zeros in place of numbers that are known to be zero."""
    return pa.py_buffer(bytes(4 * length))


_OFFSETS = [name for name in OUTPUT.names if name.endswith("_offsets")]
_NOTHING = bytes(WRITTEN.size)

_LISTS = pa.list_(pa.null())
_NO_HEADERS = pa.nulls(0, HEADERS.value_type)


def rows_with_unfit_keys(batch: pa.RecordBatch) -> set[int]:
    """Return the rows that wrote a header key that is null or not UTF-8: Arrow and Kafka both require text."""
    headers = batch.column("headers")
    keys = headers.values.field(0)
    if _is_text(keys):
        return set()
    rows = batch.column("row").to_numpy()
    firsts = np.flatnonzero(np.diff(rows, prepend=-1)).tolist()
    edges = headers.offsets.to_numpy()[[*firsts, len(rows)]].tolist()
    spans = zip(firsts, edges, edges[1:], strict=False)
    return {int(rows[first]) for first, start, end in spans if not _is_text(keys.slice(start, end - start))}


def _is_text(keys: pa.StringArray) -> bool:
    try:
        keys.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True
