"""The rival "native": the same transform source and the same codec, compiled for this machine."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from wasmline.build.toolchains.cpp import sdk_include
from wasmline.record_batches import HEADERS, OUTPUT_SCHEMA

FLAGS = ("-O3", "-std=c++23", "-fno-exceptions", "-shared", "-fPIC", "-s", "-Dmain=transform_main")
QUIET = ("-Wno-unknown-attributes", "-Wno-ignored-attributes")  # what marks WebAssembly's imports means nothing here


class _Binary(ctypes.Structure):
    _fields_ = (("offsets", ctypes.c_void_p), ("data", ctypes.c_void_p), ("validity", ctypes.c_void_p))


class _Batch(ctypes.Structure):
    _fields_ = (
        ("records", ctypes.c_int32),
        ("timestamps", ctypes.c_void_p),
        ("record_offsets", ctypes.c_void_p),
        ("key", _Binary),
        ("value", _Binary),
        ("header_offsets", ctypes.c_void_p),
        ("header_key", _Binary),
        ("header_value", _Binary),
    )


class NativeTransform:
    """A transform as a shared library."""

    def __init__(self, sources: Path, folder: Path) -> None:
        library = folder / f"{sources.name}.so"
        code = [*sorted(sources.glob("src/*.cc")), Path(__file__).parent / "native" / "host.cc"]
        command = [sys.executable, "-m", "ziglang", "c++", *FLAGS, *QUIET, f"-I{sdk_include()}"]
        subprocess.run([*command, *map(str, code), "-o", str(library)], check=True)
        self._library = ctypes.CDLL(str(library))
        self._library.run.restype = ctypes.c_void_p
        self._library.rows.restype = ctypes.c_size_t
        for name in ("column", "source_rows", "header_offsets"):
            getattr(self._library, name).restype = ctypes.c_void_p

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the outputs in OUTPUT_SCHEMA. The batch starts at its buffers' starts and has no null."""
        key, value, headers, timestamps, _, offsets = batch.columns
        entries = headers.values if headers.null_count < len(headers) else None
        filled = _Batch(
            records=batch.num_rows,
            timestamps=timestamps.buffers()[1].address,
            record_offsets=offsets.buffers()[1].address,
            key=_binary(key),
            value=_binary(value),
            header_offsets=headers.buffers()[1].address if entries is not None else None,
            header_key=_binary(entries.field(0)) if entries is not None else _Binary(),
            header_value=_binary(entries.field(1)) if entries is not None else _Binary(),
        )
        outputs = ctypes.c_void_p(self._library.run(ctypes.byref(filled)))
        rows = self._library.rows(outputs)
        keys, values = (self._column(outputs, index, rows, pa.binary()) for index in (0, 1))
        columns = [
            pa.Array.from_buffers(pa.int32(), rows, [None, self._copy(self._library.source_rows, outputs)]),
            pa.array(np.zeros(rows, np.int32)),
            keys,
            values,
            self._headers(outputs, rows),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=OUTPUT_SCHEMA)

    def _headers(self, outputs: ctypes.c_void_p, rows: int) -> pa.Array:
        offsets = self._copy(self._library.header_offsets, outputs)
        count = int(np.frombuffer(offsets, np.int32)[-1])
        children = [self._column(outputs, 2, count, pa.string()), self._column(outputs, 3, count, pa.binary())]
        entries = pa.StructArray.from_arrays(children, fields=list(HEADERS.value_type))
        return pa.Array.from_buffers(HEADERS, rows, [None, offsets], children=[entries])

    def _column(self, outputs: ctypes.c_void_p, index: int, length: int, kind: pa.DataType) -> pa.Array:
        offsets, data = (self._copy(self._library.column, outputs, index, part) for part in (0, 1))
        return pa.Array.from_buffers(kind, length, [None, offsets, data])

    @staticmethod
    def _copy(function: Any, *arguments: Any) -> pa.Buffer:
        size = ctypes.c_size_t()
        address = function(*arguments, ctypes.byref(size))
        buffer = pa.allocate_buffer(size.value)
        if size.value:
            ctypes.memmove(buffer.address, address, size.value)
        return buffer


def _binary(column: pa.Array) -> _Binary:
    _, offsets, data = column.buffers()
    return _Binary(offsets=offsets.address, data=data.address if data else None, validity=None)
