"""Guests within their limits whose outputs are more than an Arrow column, or the host's memory, holds."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from wasmline.record_batches import RECORD_SCHEMA
from wasmline.testing import guests
from wasmline.testing.sandbox import CONTEXT, Sandbox
from wasmline.wasm import TransformRuntime

LONG = "WASMLINE_LONG" in os.environ
RECORDS = 200 if LONG else 10
TOGETHER = 45 if LONG else 4
VALUE_BYTES = 60_000_000
MAX_RESIDENT_BYTES = 2**30
"""Twice a part and what is on its way, the guest's memory, and the interpreter with its libraries."""


def serve(wasm: bytes, records: int) -> tuple[list[tuple[int, int]], int, tuple[int, int, int]]:
    """Return rows and outputs of each part, the peak of the resident bytes, and rows, outputs and bytes of a whole."""
    rows = [{"timestamp": 0, "partition": 0, "offset": offset} for offset in range(records)]
    batch = pa.RecordBatch.from_pylist(rows, schema=RECORD_SCHEMA)
    with TransformRuntime().compile(wasm).instantiate(CONTEXT) as instance:
        parts = [(part.rows, part.outputs.num_rows) for part in instance.parts(batch)]
        peak = _peak_bytes()
        whole = instance.transform(batch.slice(0, TOGETHER))
        size = pc.sum(pc.binary_length(whole.outputs.column("value")).cast(pa.int64())).as_py()
        return parts, peak, (whole.rows, whole.outputs.num_rows, size)


def _peak_bytes() -> int:
    """Return the most that was resident of this process, without what it inherited from the one that made it."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found
    return int(found[1]) * 1024


def test_outputs_beyond_every_bound_come_in_parts_that_are_bounded() -> None:
    varint = VALUE_BYTES << 1
    head = bytes([1, *(varint >> shift & 127 | 128 for shift in (0, 7, 14)), varint >> 21])
    data = "".join(f"\\{byte:02x}" for byte in head)
    write = f"(drop (call $write_record (i32.const {guests.PAYLOAD}) (i32.const {len(head) + VALUE_BYTES + 1})))"
    read = guests.READ.replace(f"{guests.PAYLOAD}", f"{guests.SCRATCH}").replace("(local.get $room)", "(i32.const 64)")
    wasm = guests.guest(write, pages="920", read=read, section=f'(data (i32.const {guests.PAYLOAD}) "{data}")')
    with Sandbox() as sandbox:
        parts, peak, whole = sandbox.call(serve, wasm, RECORDS)
    assert len(parts) >= RECORDS // 4
    assert sum(rows for rows, _ in parts) == RECORDS
    assert all(rows == outputs for rows, outputs in parts)
    assert peak < MAX_RESIDENT_BYTES
    assert whole == (TOGETHER, TOGETHER, TOGETHER * VALUE_BYTES)
