"""The way out: columns in the shim's memory that the guest's writes fill, collected as Arrow record batches."""

from __future__ import annotations

import ctypes

import numpy as np
import pyarrow as pa

from wasmline.errors import RecordTooLarge
from wasmline.records import HEADERS, OUTPUT_SCHEMA
from wasmline.wasm.inbox import Loaded
from wasmline.wasm.layout import OUTPUT, align
from wasmline.wasm.memory import ShimMemory

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

    def __init__(self, memory: ShimMemory) -> None:
        self._memory = memory
        self._loaded = Loaded(end=0, rows=0)
        self._scale = 1

    def open(self, loaded: Loaded) -> None:
        """Offer empty columns for the outputs of the batch that was loaded. Raises RecordTooLarge."""
        self._loaded = loaded
        self._lay_out(0)

    def empty(self) -> pa.RecordBatch | None:
        """Return what the columns hold, as ``collect`` does; then they hold nothing."""
        collected = self.collect()
        self._memory.put(rows=0)
        return collected

    def widen(self, need: int) -> None:
        """Offer larger columns in place of empty ones, with room for a payload of ``need`` bytes.

        Raises RecordTooLarge.
        """
        self._scale = min(self._scale * 2, MAX_SCALE)
        self._lay_out(need)

    def _lay_out(self, need: int) -> None:
        try:
            self._place(self._scale, need)
        except RecordTooLarge:
            self._scale = 1
            self._place(1, need)

    def _place(self, scale: int, need: int) -> None:
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
        for name in ("out_headers", "out_key", "out_value", "out_header_key", "out_header_value"):
            ctypes.c_int32.from_address(self._memory.address + cells[f"{name}_offsets"]).value = 0
        OUTPUT.pack(self._memory.control, cells)

    def collect(self) -> pa.RecordBatch | None:
        """Return a copy of what the columns hold, in OUTPUT_SCHEMA, or None. Header keys may not be UTF-8."""
        cells = OUTPUT.unpack(self._memory.control)
        rows = cells["rows"]
        if not rows:
            return None
        columns = [
            pa.Array.from_buffers(pa.int32(), rows, [None, self._copy(cells["row_index"], 4 * rows)], 0),
            pa.Array.from_buffers(pa.int32(), rows, [None, self._copy(cells["topic_index"], 4 * rows)], 0),
            self._binary(pa.binary(), cells, "out_key", rows),
            self._binary(pa.binary(), cells, "out_value", rows),
            pa.Array.from_buffers(
                HEADERS,
                rows,
                [None, self._copy(cells["out_headers_offsets"], 4 * (rows + 1))],
                0,
                children=[self._headers(cells)],
            ),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=OUTPUT_SCHEMA)

    def _headers(self, cells: dict[str, int]) -> pa.StructArray:
        headers = cells["out_headers"]
        if not headers:
            return _NO_HEADERS
        key = self._binary(pa.string(), cells, "out_header_key", headers)
        value = self._binary(pa.binary(), cells, "out_header_value", headers)
        return pa.StructArray.from_arrays([key, value], fields=list(HEADERS.value_type))

    def _binary(self, kind: pa.DataType, cells: dict[str, int], prefix: str, length: int) -> pa.Array:
        nulls = cells[f"{prefix}_nulls"]
        buffers = [
            self._bitmap(cells[f"{prefix}_valid"], length) if nulls else None,
            self._copy(cells[f"{prefix}_offsets"], 4 * (length + 1)),
            self._copy(cells[f"{prefix}_data"], cells[f"{prefix}_bytes"]),
        ]
        return pa.Array.from_buffers(kind, length, buffers, nulls)

    def _copy(self, position: int, size: int) -> pa.Buffer:
        buffer = pa.allocate_buffer(size)
        ctypes.memmove(buffer.address, self._memory.address + position, size)
        return buffer

    def _bitmap(self, position: int, length: int) -> pa.Buffer:
        marks = np.frombuffer(self._memory.read(position, length), dtype=np.uint8)
        return pa.py_buffer(np.packbits(marks, bitorder="little"))


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
