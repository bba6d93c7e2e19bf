"""The same module and the same records give the same bytes, however the records are cut into batches."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from wasmline.record_batches import RECORD_SCHEMA
from wasmline.testing import guests
from wasmline.wasm import TransformInstance
from wasmline.wasm.transform_context import Clock

RECORDS = 2000
SIZES = (1, 7, 1000)
WALL, MONOTONIC, RANDOM, OFFSET = 512, 520, 528, guests.OFFSET

# A guest that lets everything it can learn into its outputs: the record, its coordinates, both clocks, randomness, how
# often it was called, its environment; that fails on some records, filters some and writes others twice.
COUNT = "(i64.store (i32.const 600) (i64.add (i64.load (i32.const 600)) (i64.const 1)))"
LEARN = (
    COUNT
    + guests.read_clock(0, WALL)
    + guests.read_clock(1, MONOTONIC)
    + f"(drop (call $random_get (i32.const {RANDOM}) (i32.const 8)))"
    + "(drop (call $environ_get (i32.const 700) (i32.const 1024)))"
)
TELL = guests.write_cells(WALL, MONOTONIC, RANDOM, OFFSET, guests.TIMESTAMP, 600, 1024, 1032)
CURIOUS = guests.guest(
    LEARN
    + guests.when_key("t", guests.TRAP)
    + guests.when_key("x", guests.leave(3))
    + guests.when_key("l", guests.log("heard"))
    + guests.when_key("s", guests.SPIN)
    + guests.when_key("w", guests.WRITE)
    + TELL
    + guests.WRITE
    + guests.when_key("u", guests.write_to(guests.topic("two"))),
    abi=2,
    on_start="(drop (call $environ_sizes_get (i32.const 704) (i32.const 708)))" + guests.log("hello"),
)


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    """Records of every shape: null and empty keys and values, headers, some that make the guest fail."""
    dice = random.Random(4)
    keys = [None, b"", b"k", b"k" * 300, b"l", b"u", b"w"]
    values = [None, b"", b"v" * 15, b"v" * 16, b"v" * 33, b"v" * 300]
    headers = [[], [{"key": "h", "value": None}], [{"key": "", "value": b""}, {"key": "é", "value": b"x" * 40}]]
    records = [
        {
            "key": dice.choice(keys),
            "value": dice.choice(values),
            "headers": dice.choice(headers),
            "timestamp": 1_700_000_000_000 + dice.randrange(10**6),
            "partition": 0,
            "offset": 10 * row + dice.randrange(10),
        }
        for row in range(RECORDS)
    ]
    for row, letter in ((3, b"t"), (700, b"x"), (701, b"t"), (999, b"x"), (1000, b"t"), (1500, b"s")):
        records[row]["key"] = letter
    return records


Everything = tuple[list[dict[str, Any]], list[tuple[int, str, str]], list[tuple[int | None, Any, str]]]


def everything(instance: TransformInstance, rows: list[dict[str, Any]], size: int) -> Everything:
    """Return outputs, failures and logs, with rows counted from the first record of all."""
    outputs: list[dict[str, Any]] = []
    failures, logs = [], []
    for first in range(0, len(rows), size):
        result = instance.transform(pa.RecordBatch.from_pylist(rows[first : first + size], schema=RECORD_SCHEMA))
        outputs += [{**each, "row": each["row"] + first} for each in result.outputs.to_pylist()]
        failures += [(each.row + first, type(each.error).__name__, str(each.error)) for each in result.failures]
        logs += [(None if line.row is None else line.row + first, line.level, line.text) for line in result.logs]
        assert result.logs_dropped == 0
    return outputs, failures, logs


@pytest.mark.parametrize("clock", ["wasmline", "redpanda"])
def test_outputs_failures_and_logs_are_the_same_for_every_batch_size(
    start: Any, rows: list[dict[str, Any]], clock: Clock
) -> None:
    runs = [
        everything(
            start(CURIOUS, outputs=("one", "two"), clock=clock, cpu_ms_per_record=300, log_bytes_per_batch=2**20),
            rows,
            size,
        )
        for size in (*SIZES, 1000)
    ]
    first = runs[0]
    assert len(first[0]) > 2 * RECORDS
    assert [row for row, _, _ in first[1]] == [3, 700, 701, 999, 1000, 1500]
    assert len(first[2]) > 200
    assert all(run == first for run in runs[1:])
