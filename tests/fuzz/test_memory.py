"""A process that serves batch after batch, and one guest after another, does not grow."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from wasmline.record_batches import RECORD_SCHEMA
from wasmline.testing import guests
from wasmline.testing.sandbox import Sandbox, soak
from wasmline.wasm import ResourceLimits

BATCHES = int(os.environ.get("FUZZ_BATCHES", "10000"))
FAILURES = BATCHES // 20
BATCH_GROWTH = 2 * 2**20
"""What a process may grow by in half a run with one guest: 400 bytes per batch in the short one."""
GUEST_GROWTH = 8 * 2**20
"""The same where each batch ends a guest: 32 KiB per guest in the short one, less than a guest's memory.

On a busy machine the thread of an ended guest lives on beside the next one's, with a stack of 2.5 MB that was
recursed through. Steps of up to 5 MB that came and stayed were seen where nothing leaked.
"""

pytestmark = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc, to see a process's memory")


def batch(keys: list[bytes]) -> pa.RecordBatch:
    rows: list[dict[str, Any]] = [
        {"key": key, "value": b"v" * 100, "headers": [{"key": "h", "value": None}], "timestamp": 0, "partition": 0}
        for key in keys
    ]
    return pa.RecordBatch.from_pylist(
        [{**row, "offset": offset} for offset, row in enumerate(rows)], schema=RECORD_SCHEMA
    )


@pytest.mark.parametrize(
    ("act", "keys", "times", "allowed"),
    [
        (guests.log("a line"), [b"k"] * 10, BATCHES, BATCH_GROWTH),
        (guests.log("a line") + guests.TRAP, [b"a", b"p", b"b"], FAILURES, GUEST_GROWTH),
        (guests.NEXT_BATCH, [b"a", b"p", b"b"], FAILURES, GUEST_GROWTH),
        (guests.leave(3), [b"p"], FAILURES, GUEST_GROWTH),
        ("(drop (memory.grow (i32.const 16))) (call $recurse)", [b"p"], FAILURES, GUEST_GROWTH),
    ],
    ids=["batches", "traps", "early batches", "exits", "recursions"],
)
def test_memory_stays_flat(act: str, keys: list[bytes], times: int, allowed: int) -> None:
    wasm = guests.guest(guests.WRITE + guests.when_key("p", act))
    with Sandbox(timeout_s=24 * 3600) as sandbox:
        sizes = sandbox.call(soak, wasm, batch(keys), times, ResourceLimits())
    # The least of each half: a thread's stack or two come and go.
    assert min(sizes[5:]) - min(sizes[:5]) < allowed, f"resident bytes on the way: {sizes}"
