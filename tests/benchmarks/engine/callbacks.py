"""The rival "callbacks": a host that enters Python once for each call of the ABI, on wasmtime's public API."""

from __future__ import annotations

import ctypes
import struct
import time
from contextlib import suppress
from typing import cast

import pyarrow as pa
import wasmtime

from wasmline.record_batches import OUTPUT_SCHEMA
from wasmline.wasm.engine import new_engine

HEADER = ("<q", "<i", "<i", "<h", "<i", "<q", "<q", "<q", "<h", "<i")


class _Done(Exception):
    pass


class CallbackHost:
    """Runs one batch after another through a guest until there are no more."""

    def __init__(self, wasm: bytes) -> None:
        engine = new_engine()
        self._store = wasmtime.Store(engine)
        self._store.set_epoch_deadline(1)
        self._store.set_wasi(wasmtime.WasiConfig())
        linker = wasmtime.Linker(engine)
        linker.define_wasi()
        i32 = wasmtime.ValType.i32()
        for name, parameters in (("read_batch_header", 10), ("read_next_record", 5), ("write_record", 2)):
            kind = wasmtime.FuncType([i32] * parameters, [i32])
            linker.define_func("redpanda_transform", name, kind, getattr(self, f"_{name}"))
        refuse = wasmtime.FuncType([i32] * 4, [i32])
        linker.define_func("redpanda_transform", "write_record_with_options", refuse, lambda *_: -3)
        for version in (1, 2):
            empty = wasmtime.FuncType([], [])
            linker.define_func("redpanda_transform", f"check_abi_version_{version}", empty, lambda: None)
        exports = linker.instantiate(self._store, wasmtime.Module(engine, wasm)).exports(self._store)
        self._start = cast(wasmtime.Func, exports["_start"])
        self._memory = cast(wasmtime.Memory, exports["memory"])
        self._outputs: list[dict[str, object]] = []

    def run(self, batch: pa.RecordBatch, repetitions: int) -> tuple[pa.RecordBatch, float]:
        """Return the outputs of the batch and the least seconds that it took."""
        self._rows = batch.to_pylist()
        self._left = repetitions
        self._seconds: list[float] = []
        self._began: float | None = None
        with suppress(_Done):
            self._start(self._store)
        return pa.RecordBatch.from_pylist(self._outputs, schema=OUTPUT_SCHEMA), min(self._seconds)

    def _read_batch_header(self, *pointers: int) -> int:
        if self._began is not None:
            self._seconds.append(time.perf_counter() - self._began)
        if not self._left:
            raise _Done
        self._left -= 1
        self._began = time.perf_counter()
        self._next, self._outputs = 0, []
        self._payloads = [_payload(row) for row in self._rows]
        first, last = self._rows[0], self._rows[-1]
        times = [_ms(row) for row in self._rows]
        values = (first["offset"], len(self._rows), 0, 0, last["offset"] - first["offset"], times[0], max(times))
        for pointer, form, value in zip(pointers, HEADER, (*values, -1, -1, -1), strict=True):
            self._write(pointer, struct.pack(form, value))
        return max(map(len, self._payloads))

    def _read_next_record(self, attributes: int, timestamp: int, offset: int, buffer: int, capacity: int) -> int:
        if self._next == len(self._rows):
            return -1
        row, payload = self._rows[self._next], self._payloads[self._next]
        if capacity < len(payload):
            return -2
        self._next += 1
        self._write(attributes, b"\0")
        self._write(timestamp, struct.pack("<q", _ms(row)))
        self._write(offset, struct.pack("<q", row["offset"]))
        self._write(buffer, payload)
        return len(payload)

    def _write_record(self, buffer: int, size: int) -> int:
        base = ctypes.addressof(self._memory.data_ptr(self._store).contents)
        key, value, headers = _parsed(ctypes.string_at(base + buffer, size))
        record: dict[str, object] = {"row": self._next - 1, "output": 0, "key": key, "value": value, "headers": headers}
        self._outputs.append(record)
        return size

    def _write(self, position: int, data: bytes) -> None:
        base = ctypes.addressof(self._memory.data_ptr(self._store).contents)
        ctypes.memmove(base + position, data, len(data))


def _ms(row: dict) -> int:  # type: ignore[type-arg]
    return int(row["timestamp"].timestamp() * 1000)


def _varint(number: int) -> bytes:
    code, out = (number << 1) ^ (number >> 63), bytearray()
    while code >= 0x80:
        out.append(code & 0x7F | 0x80)
        code >>= 7
    out.append(code)
    return bytes(out)


def _bytes(data: bytes | None) -> bytes:
    return _varint(-1) if data is None else _varint(len(data)) + data


def _payload(row: dict) -> bytes:  # type: ignore[type-arg]
    headers = row["headers"] or []
    parts = [_bytes(row["key"]), _bytes(row["value"]), _varint(len(headers))]
    parts += (_bytes(each["key"].encode()) + _bytes(each["value"]) for each in headers)
    return b"".join(parts)


def _parsed(payload: bytes) -> tuple[bytes | None, bytes | None, list[dict[str, object]]]:
    position = 0

    def number() -> int:
        nonlocal position
        code = shift = 0
        while True:
            byte = payload[position]
            position += 1
            code |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return (code >> 1) ^ -(code & 1)

    def data() -> bytes | None:
        nonlocal position
        size = number()
        if size < 0:
            return None
        position += size
        return payload[position - size : position]

    key, value = data(), data()
    headers: list[dict[str, object]] = [{"key": (data() or b"").decode(), "value": data()} for _ in range(number())]
    return key, value, headers
