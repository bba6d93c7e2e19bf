"""Input columns: copies the columns of a record batch into the shim's memory, one memmove per Arrow buffer."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from wasmline.errors import InvalidBatch, RecordTooLarge
from wasmline.record_batches import HEADERS, RECORD_SCHEMA
from wasmline.wasm.columns.control_block import INPUT, align
from wasmline.wasm.columns.shim_memory import ShimMemory

MAX_LOADED_BYTES = 64 * 2**20
"""Maximum bytes of several records loaded at once."""

_NULLABLE_HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))


def conform(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch with the columns of RECORD_SCHEMA in its physical layout, after casts where possible.

    Raises InvalidBatch for a missing column, a type that cannot be cast, or a null timestamp, partition, offset or
    header key.
    """
    if batch.schema != RECORD_SCHEMA:
        batch = pa.RecordBatch.from_arrays([_cast(batch, field) for field in RECORD_SCHEMA], names=RECORD_SCHEMA.names)
    for name in ("timestamp", "partition", "offset"):
        if batch.column(name).null_count:
            raise InvalidBatch(f"column {name} holds nulls; every record has its coordinates and its time")
    if batch.column("headers").values.field(0).null_count:
        raise InvalidBatch("a header's key is null; a Kafka header has a key")
    return batch


def _cast(batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
    index = batch.schema.get_field_index(field.name)
    if index < 0:
        raise InvalidBatch(f"the batch needs exactly one column {field.name}; it has {', '.join(batch.schema.names)}")
    column = batch.column(index)
    kind = _NULLABLE_HEADERS if field.type == HEADERS else field.type
    if column.type == kind or column.type == field.type:
        return column
    try:
        return column.cast(kind)
    except pa.ArrowException as error:
        raise InvalidBatch(f"column {field.name} is {column.type} and cannot become {field.type}: {error}") from error


@dataclass(slots=True, kw_only=True)
class BatchExtent:
    """Sizes of a loaded batch: the first estimate of the sizes of its outputs."""

    end: int
    rows: int
    row_base: int = 0
    key_bytes: int = 0
    value_bytes: int = 0
    headers: int = 0
    header_bytes: int = 0


class InputColumns:
    """Copies consecutive batches to the same position of a shim's memory."""

    def __init__(self, memory: ShimMemory, start: int) -> None:
        self._memory = memory
        self._start = start
        self._position = start
        self._moves: list[tuple[int, int, int]] = []
        self._cells = dict.fromkeys(INPUT.names, 0)

    def load(self, batch: pa.RecordBatch, row_base: int) -> BatchExtent:
        """Load a conforming, non-empty batch; its row 0 is the caller's row ``row_base``.

        Offsets are not changed: the data's address is shifted instead, modulo 2**32, so that a slice is not
        rewritten. Raises RecordTooLarge, also for several records; then nothing has changed.
        """
        key, value, headers, timestamps, _, offsets = batch.columns
        self._position = self._start
        self._moves.clear()
        self._cells.update(
            records=batch.num_rows,
            row_base=row_base,
            timestamps=self._plain(timestamps, 8),
            record_offsets=self._plain(offsets, 8),
        )
        loaded = BatchExtent(end=0, rows=batch.num_rows, row_base=row_base)
        loaded.key_bytes = self._binary("key", key)
        loaded.value_bytes = self._binary("value", value)
        self._headers(headers, loaded)
        self._cells["sizes"] = self._position
        loaded.end = align(self._position + 4 * batch.num_rows)
        if batch.num_rows > 1 and loaded.end - self._start > MAX_LOADED_BYTES:
            size = loaded.end - self._start
            raise RecordTooLarge(f"{batch.num_rows} records take {size} bytes; at most {MAX_LOADED_BYTES} at once")
        self._memory.reserve(loaded.end)
        address = self._memory.address
        for position, source, size in self._moves:
            ctypes.memmove(address + position, source, size)
        self._memory.write(INPUT.start, INPUT.pack(*self._cells.values()))
        return loaded

    def _place(self, source: int, size: int) -> int:
        position = self._position
        self._moves.append((position, source, size))
        self._position = align(position + size)
        return position

    def _plain(self, column: pa.Array, width: int) -> int:
        return self._place(column.buffers()[1].address + column.offset * width, len(column) * width)

    def _validity(self, prefix: str, column: pa.Array, bitmap: Any) -> None:
        if not column.null_count:
            self._cells[f"{prefix}_validity"] = self._cells[f"{prefix}_bit"] = 0
            return
        first, bit = divmod(column.offset, 8)
        self._cells[f"{prefix}_validity"] = self._place(bitmap.address + first, (bit + len(column) + 7) // 8)
        self._cells[f"{prefix}_bit"] = bit

    def _binary(self, prefix: str, column: pa.Array) -> int:
        bitmap, offsets, data = column.buffers()
        source = offsets.address + 4 * column.offset
        first, last = _ends(source, len(column))
        self._cells[f"{prefix}_offsets"] = self._place(source, 4 * (len(column) + 1))
        position = self._place(data.address + first, last - first) if last > first else 0
        self._cells[f"{prefix}_data"] = (position - first) & 0xFFFFFFFF
        self._validity(prefix, column, bitmap)
        return last - first

    def _headers(self, column: pa.Array, loaded: BatchExtent) -> None:
        source = column.buffers()[1].address + 4 * column.offset
        first, last = _ends(source, len(column))
        if first == last:
            self._cells["headers_offsets"] = 0
            return
        entries = column.values.slice(first, last - first)
        self._cells["headers_offsets"] = self._place(source, 4 * (len(column) + 1))
        self._validity("headers", column, column.buffers()[0])
        loaded.headers = last - first
        loaded.header_bytes = self._binary("header_key", entries.field(0)) + self._binary(
            "header_value", entries.field(1)
        )
        # The lists' offsets count from the start of the entries, of which only a part was copied.
        self._cells["header_key_offsets"] = (self._cells["header_key_offsets"] - 4 * first) & 0xFFFFFFFF
        self._cells["header_value_offsets"] = (self._cells["header_value_offsets"] - 4 * first) & 0xFFFFFFFF
        self._cells["header_value_bit"] = (self._cells["header_value_bit"] - first) & 0xFFFFFFFF


def _ends(offsets: int, length: int) -> tuple[int, int]:
    """Return the first and the last of ``length + 1`` 32-bit offsets at an address."""
    return ctypes.c_int32.from_address(offsets).value, ctypes.c_int32.from_address(offsets + 4 * length).value
