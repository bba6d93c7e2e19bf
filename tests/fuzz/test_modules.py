"""Whatever bytes stand for a module, it runs or is refused; the process that was given it lives."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import wasmtime
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from wasmline.errors import InvalidModule, ModuleError, TransformError
from wasmline.record_batches import RECORD_SCHEMA
from wasmline.testing import guests
from wasmline.testing.sandbox import Sandbox
from wasmline.wasm import ResourceLimits, check_abi
from wasmline.wasm.inspection.module_inspection import inspect

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "250"))
CALLS_PER_PROCESS = 2000
"""A process keeps what it compiled on its disk; a fresh one begins with none."""

ZOO = Path(__file__).parents[2] / "wasm_modules/guests/zoo/modules"
SEEDS = [
    guests.guest(),
    guests.guest(
        guests.write_cells(guests.TIMESTAMP) + guests.log("a line") + guests.when_key("p", guests.SPIN), abi=2
    ),
    *(bytes(wasmtime.wat2wasm(path.read_text())) for path in sorted(ZOO.glob("*.wat"))),
]
BATCH = pa.RecordBatch.from_pylist(
    [{"key": b"k", "value": b"v", "headers": [], "timestamp": 0, "partition": 0, "offset": row} for row in range(3)],
    schema=RECORD_SCHEMA,
)
LIMITS = {"cpu_ms_per_record": 20, "memory_bytes": 4 * 2**20, "output_bytes_per_record": 2**20}


def mutant(dice: random.Random) -> bytes:
    """Return a module with some of its bytes changed, dropped, or repeated elsewhere; most often just one."""
    wasm = bytearray(dice.choice(SEEDS))
    for _ in range(dice.choice([1, 1, 1, 1, 2, 4])):
        at = dice.randrange(8, len(wasm))  # behind the preamble
        match dice.choice(["set"] * 12 + ["insert", "drop", "repeat"]):
            case "set":
                wasm[at] = dice.choice([dice.randrange(256), wasm[at] ^ 1 << dice.randrange(8)])
            case "insert":
                wasm[at:at] = dice.randbytes(dice.randrange(1, 8))
            case "drop":
                del wasm[at : at + dice.randrange(1, 16)]
            case "repeat":
                start = dice.randrange(len(wasm))
                wasm[at:at] = wasm[start : start + dice.randrange(1, 64)]
    return bytes(wasm)


# Dice that are even: bytes near the start, which hypothesis prefers, make nearly every module invalid.
MUTANTS = st.randoms(use_true_random=True).map(mutant)


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox() as sandbox:
        yield sandbox


def run_or_refuse(sandbox: Sandbox, wasm: bytes) -> None:
    if sandbox.calls >= CALLS_PER_PROCESS:
        sandbox.close()
    try:
        (result,) = sandbox.transform(wasm, [BATCH], **LIMITS)
    except (ModuleError, TransformError):
        return
    result.outputs.validate(full=True)
    rows: set[Any] = set(result.outputs.column("row").to_pylist())
    assert not rows & {failure.row for failure in result.failures}


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(wasm=MUTANTS)
def test_a_mutated_module_runs_or_is_refused(sandbox: Sandbox, wasm: bytes) -> None:
    run_or_refuse(sandbox, wasm)


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(wasm=MUTANTS)
def test_a_mutated_module_is_looked_at_or_is_no_module(sandbox: Sandbox, wasm: bytes) -> None:
    try:
        found = sandbox.call(inspect, wasm, ResourceLimits(memory_bytes=LIMITS["memory_bytes"]))
    except InvalidModule:
        return
    try:
        sandbox.call(check_abi, wasm)
    except ModuleError:
        assert not found.wasmline.accepted


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(head=st.sampled_from([b"", b"\0asm", b"\0asm\x01\0\0\0"]), tail=st.binary(max_size=500))
def test_bytes_that_are_hardly_a_module_are_refused(sandbox: Sandbox, head: bytes, tail: bytes) -> None:
    with pytest.raises(ModuleError):
        sandbox.transform(head + tail, [BATCH], **LIMITS)
