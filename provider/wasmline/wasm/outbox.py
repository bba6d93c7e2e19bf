"""The way out: columns in the shim's memory that the guest's writes fill, collected as Arrow record batches.

What is read back is checked before Arrow sees it: places and capacities are those that were laid out, counts lie within
them, offsets rise from 0 to the number of bytes, rows rise within the batch, outputs exist. A guest cannot write
there. Should one ever do, its instance ends with SandboxViolation, not the process.
"""

from __future__ import annotations

import ctypes
import operator

import numpy as np
import pyarrow as pa

from wasmline.errors import RecordTooLarge
from wasmline.records import HEADERS, OUTPUT_SCHEMA
from wasmline.wasm.inbox import Loaded
from wasmline.wasm.layout import OUTPUT, align
from wasmline.wasm.memory import ShimMemory, violation

FEW_NUMBERS = 64
"""Up to so many, a list is checked sooner than an array."""

BYTES_COLUMNS = ("out_key", "out_value", "out_header_key", "out_header_value")
"""The columns of byte strings."""

SLACK_ROWS = 256
SLACK_BYTES = 64 * 1024
MAX_SCALE = 16
MAX_COLUMN_BYTES = 64 * 2**20
"""The most that a column of byte strings is made for, unless a payload takes more."""


class Outbox:
    """Lays the output columns out behind a batch's input columns, and empties them.

    Outputs are expected to be about the size of the inputs; a guest that writes more makes the shim ask for a flush,
    and the columns of later batches are made larger.
    """

    def __init__(self, memory: ShimMemory, outputs: int) -> None:
        """``outputs`` is the number of output topics."""
        self._memory = memory
        self._outputs = outputs
        self._loaded = Loaded(end=0, rows=0)
        self._cells: dict[str, int] = {}
        self._scale = 1

    def open(self, loaded: Loaded) -> None:
        """Offer empty columns for the outputs of the batch that was loaded. Raises RecordTooLarge."""
        self._loaded = loaded
        self._lay_out(0)

    def empty(self) -> pa.RecordBatch | None:
        """Return what the columns hold, as ``collect`` does; then they hold nothing."""
        collected = self.collect()
        self._memory.put(**_NOTHING)
        return collected

    def widen(self, need: int) -> None:
        """Offer larger columns in place of empty ones, with room for a payload of ``need`` bytes.

        Raises RecordTooLarge.
        """
        self._scale = min(self._scale * 2, MAX_SCALE)
        self._lay_out(need)

    def _lay_out(self, need: int) -> None:
        try:
            self._reserve_columns(self._scale, need)
        except RecordTooLarge:
            self._scale = 1
            self._reserve_columns(1, need)

    def _reserve_columns(self, scale: int, need: int) -> None:
        loaded = self._loaded
        rows = (loaded.rows + SLACK_ROWS) * scale
        headers = max((loaded.headers + SLACK_ROWS) * scale, need // 2)
        cells = dict.fromkeys(OUTPUT.names, 0)
        position = loaded.end

        def place(cell: str, size: int) -> None:
            nonlocal position
            cells[cell] = position
            position = align(position + size)

        def place_binary(prefix: str, length: int, size: int) -> None:
            cells[f"{prefix}_capacity"] = max(min((size + SLACK_BYTES) * scale, MAX_COLUMN_BYTES), need)
            place(f"{prefix}_offsets", 4 * (length + 1))
            place(f"{prefix}_valid", length)
            place(f"{prefix}_data", cells[f"{prefix}_capacity"])

        cells["row_capacity"], cells["out_headers_capacity"] = rows, headers
        place("row_index", 4 * rows)
        place("topic_index", 4 * rows)
        place("out_headers_offsets", 4 * (rows + 1))
        place_binary("out_key", rows, loaded.key_bytes)
        place_binary("out_value", rows, loaded.value_bytes)
        place_binary("out_header_key", headers, loaded.header_bytes)
        place_binary("out_header_value", headers, loaded.header_bytes)
        self._memory.reserve(position)
        for name in ("out_headers", *BYTES_COLUMNS):
            ctypes.c_int32.from_address(self._memory.address + cells[f"{name}_offsets"]).value = 0
        OUTPUT.pack(self._memory.control, cells)
        self._cells = cells

    def collect(self) -> pa.RecordBatch | None:
        """Return a copy of what the columns hold, in OUTPUT_SCHEMA, or None. Header keys may not be UTF-8."""
        cells = self._read_cells()
        rows = cells["rows"]
        if not rows:
            return None
        columns = [
            self._rows(cells["row_index"], rows),
            self._topics(cells["topic_index"], rows),
            self._binary(pa.binary(), cells, "out_key", rows),
            self._binary(pa.binary(), cells, "out_value", rows),
            pa.Array.from_buffers(
                HEADERS,
                rows,
                [None, self._offsets(cells, "out_headers", rows, cells["out_headers"])],
                0,
                children=[self._headers(cells)],
            ),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=OUTPUT_SCHEMA)

    def _read_cells(self) -> dict[str, int]:
        cells = OUTPUT.unpack(self._memory.control)
        if _positions(cells) != _positions(self._cells):
            raise violation("a column is not where it was laid out")
        if any(map(operator.gt, _counts(cells), _capacities(cells))):
            raise violation("a count is more than its capacity")
        return cells

    def _headers(self, cells: dict[str, int]) -> pa.StructArray:
        headers = cells["out_headers"]
        if not headers:
            return _NO_HEADERS
        key = self._binary(pa.string(), cells, "out_header_key", headers)
        value = self._binary(pa.binary(), cells, "out_header_value", headers)
        return pa.StructArray.from_arrays([key, value], fields=list(HEADERS.value_type))

    def _binary(self, kind: pa.DataType, cells: dict[str, int], prefix: str, length: int) -> pa.Array:
        size, nulls = cells[f"{prefix}_bytes"], cells[f"{prefix}_nulls"]
        buffers = [
            self._bitmap(cells[f"{prefix}_valid"], length, nulls) if nulls else None,
            self._offsets(cells, prefix, length, size),
            self._copy(cells[f"{prefix}_data"], size),
        ]
        return pa.Array.from_buffers(kind, length, buffers, nulls)

    def _offsets(self, cells: dict[str, int], prefix: str, length: int, end: int) -> pa.Buffer:
        if end == 0:
            return _zeros(length + 1)
        buffer = self._copy(cells[f"{prefix}_offsets"], 4 * (length + 1))
        if _rising(buffer) != (0, end):
            raise violation(f"{prefix}_offsets do not rise from 0 to {end}")
        return buffer

    def _rows(self, position: int, length: int) -> pa.Array:
        buffer = self._copy(position, 4 * length)
        first, last = _rising(buffer) or (-1, -1)
        if first < self._loaded.row_base or last >= self._loaded.row_base + self._loaded.rows:
            raise violation("the rows of the outputs are not those of the batch, in order")
        return pa.Array.from_buffers(pa.int32(), length, [None, buffer], 0)

    def _topics(self, position: int, length: int) -> pa.Array:
        if self._outputs == 1:
            return pa.Array.from_buffers(pa.int32(), length, [None, _zeros(length)], 0)
        buffer = self._copy(position, 4 * length)
        if np.frombuffer(buffer, np.uint32).max() >= self._outputs:
            raise violation(f"an output is for none of the {self._outputs} output topics")
        return pa.Array.from_buffers(pa.int32(), length, [None, buffer], 0)

    def _copy(self, position: int, size: int) -> pa.Buffer:
        buffer = pa.allocate_buffer(size)
        ctypes.memmove(buffer.address, self._memory.address + position, size)
        return buffer

    def _bitmap(self, position: int, length: int, nulls: int) -> pa.Buffer:
        marks = np.frombuffer(self._memory.read(position, length), dtype=np.uint8)
        if np.count_nonzero(marks) != length - nulls:
            raise violation(f"{nulls} of {length} values are said to be null")
        return pa.py_buffer(np.packbits(marks, bitorder="little"))


def _zeros(length: int) -> pa.Buffer:
    """Return 32-bit numbers that need not be read, as they can be nothing else."""
    return pa.py_buffer(bytes(4 * length))


def _rising(buffer: pa.Buffer) -> tuple[int, int] | None:
    """Return the first and the last of some 32-bit numbers; None where one is less than that before it."""
    numbers = memoryview(buffer).cast("i")
    if len(numbers) <= FEW_NUMBERS:
        rising = (few := numbers.tolist()) == sorted(few)
    else:
        array = np.frombuffer(buffer, np.int32)
        rising = not (array[1:] < array[:-1]).any()
    return (numbers[0], numbers[-1]) if rising else None


_CAPACITIES = {
    "rows": "row_capacity",
    "out_headers": "out_headers_capacity",
    **{f"{name}_bytes": f"{name}_capacity" for name in BYTES_COLUMNS},
    **{f"{name}_nulls": "out_headers" if "header" in name else "rows" for name in BYTES_COLUMNS},
}
"""What each count of the control block may be at most, by the names of the cells."""

_NOTHING = dict.fromkeys(_CAPACITIES, 0)

_counts, _capacities = operator.itemgetter(*_CAPACITIES), operator.itemgetter(*_CAPACITIES.values())
_positions = operator.itemgetter(*(name for name in OUTPUT.names if name not in _CAPACITIES))

_NO_HEADERS = pa.nulls(0, HEADERS.value_type)


def rows_with_unfit_keys(batch: pa.RecordBatch) -> set[int]:
    """Return the rows that wrote a header whose key is null or not UTF-8: Arrow and Kafka both need text there."""
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
