"""What a C++ guest can do to itself by way of its libraries costs it one record, like anything else."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from wasmline import errors
from wasmline.build import build, load_project
from wasmline.record_batches import RECORD_SCHEMA
from wasmline.testing.sandbox import Sandbox

PROJECT = Path(__file__).parents[3] / "wasm_modules/guests/heap/cpp"
ENDINGS = {
    "p-take-and-check": (errors.GuestOutOfMemory, "memory_bytes=8388608"),
    "p-take-and-trust": (errors.GuestTrap, "out of bounds memory access"),
    "p-fill-vector": (errors.GuestOutOfMemory, "bad_alloc"),
    "p-take-at-once": (errors.GuestOutOfMemory, "bad_alloc"),
    "p-recurse": (errors.GuestTrap, "out of bounds memory access|call stack exhausted"),
    "p-free-twice": (errors.GuestTrap, "unreachable|out of bounds memory access"),
    "p-sleep": (errors.GuestTimeout, "cpu_ms_per_record=300"),
    "p-files": (errors.GuestTrap, "unreachable"),
    "p-abort": (errors.GuestTrap, "unreachable"),
    "p-exit": (errors.GuestExit, "status 3"),
    "p-wild": (errors.GuestTrap, "out of bounds memory access"),
    "p-call-wild": (errors.GuestTrap, "undefined element"),
    "p-fail": (errors.GuestTrap, "nothing to be done"),
}


@pytest.fixture(scope="module")
def wasm(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    try:
        report = build(load_project(PROJECT), output=tmp_path_factory.mktemp("heap") / "heap.wasm")
    except errors.ToolchainMissing as missing:
        pytest.skip(str(missing))
    return Path(report.path).read_bytes()


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox() as sandbox:
        yield sandbox


@pytest.mark.parametrize("act", ENDINGS)
def test_a_heap_that_is_ruined_costs_one_record(sandbox: Sandbox, wasm: bytes, act: str) -> None:
    keys = [b"k%d" % row for row in range(10)]
    keys[6] = act.encode()
    rows = [
        {"key": key, "value": b"v", "headers": [], "timestamp": 0, "partition": 0, "offset": offset}
        for offset, key in enumerate(keys)
    ]
    batch = pa.RecordBatch.from_pylist(rows, schema=RECORD_SCHEMA)
    kind, words = ENDINGS[act]
    for result in sandbox.transform(wasm, [batch, batch], memory_bytes=8 * 2**20, cpu_ms_per_record=300):
        assert result.outputs.column("row").to_pylist() == [0, 1, 2, 3, 4, 5, 7, 8, 9]
        (failure,) = result.failures
        assert failure.row == 6
        assert type(failure.error) is kind
        assert re.search(words, str(failure.error))
