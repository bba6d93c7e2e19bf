"""Guests of every encoding, joined to the shim: they do what they do without, and touch nothing that is not theirs."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import suppress

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.fuzz.module_writer import ModuleWriter
from support.fuzz.separate_guest import SeparateGuest, WatchedGuest, observe
from wasmline.errors import ModuleError, TransformError
from wasmline.record_batches import RECORD_SCHEMA
from wasmline.testing.sandbox import Sandbox
from wasmline.wasm import ResourceLimits
from wasmline.wasm.binary.reader import CODE, sections

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "60"))
CALLS_PER_PROCESS = 2000

BATCHES = [
    pa.RecordBatch.from_pylist(
        [
            {
                "key": b"key %d" % row,
                "value": bytes(range(row)),
                "headers": [("h", b"\x10\x03")] * (row % 3),
                "timestamp": 1_700_000_000_000 + row,
                "partition": 0,
                "offset": first + row,
            }
            for row in range(rows)
        ],
        schema=RECORD_SCHEMA,
    )
    for first, rows in ((0, 5), (5, 1))
]
LIMITS = ResourceLimits(memory_bytes=4 * 2**20, cpu_ms_per_record=2_000, output_bytes_per_record=2**16)
QUICK = ResourceLimits(memory_bytes=4 * 2**20, cpu_ms_per_record=20, output_bytes_per_record=2**16)
SEEDS = st.integers(0, 2**63)
FUZZED = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))


def mutated(wasm: bytes, rng: random.Random) -> bytes:
    """Return a module with a byte or two of its code changed, dropped or repeated.

    Most often to the byte beside: a neighbour's number, or an instruction of the same type, so that many stay valid.
    """
    changed, code = bytearray(wasm), sections(wasm)[CODE]
    start = wasm.index(code)
    for _ in range(rng.choice((1, 1, 1, 2))):
        at = start + rng.randrange(len(code))
        match rng.randrange(12):
            case 0:
                del changed[at]
            case 1:
                changed[at:at] = changed[at : at + rng.randrange(1, 20)]
            case 2 | 3:
                changed[at] = rng.choice((0x10, 0x63, 0x70, 0x7F, 0x80, 0xFD, rng.randrange(256)))
            case _:
                changed[at] = (changed[at] + rng.choice((-1, 1))) % 256
    return bytes(changed)


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox() as sandbox:
        yield sandbox


@FUZZED
@given(seed=SEEDS)
def test_a_guest_does_the_same_joined_and_apart(sandbox: Sandbox, seed: int) -> None:
    if sandbox.calls >= CALLS_PER_PROCESS:
        sandbox.close()
    wasm = ModuleWriter(random.Random(seed)).write()
    joined, apart = (sandbox.call(observe, kind, wasm, BATCHES, LIMITS) for kind in (WatchedGuest, SeparateGuest))
    assert joined == apart
    outputs, failures, _ = joined[0]
    assert outputs or failures


@FUZZED
@given(seed=SEEDS)
def test_a_mutated_guest_is_refused_or_touches_only_what_is_its_own(sandbox: Sandbox, seed: int) -> None:
    if sandbox.calls >= CALLS_PER_PROCESS:
        sandbox.close()
    rng = random.Random(seed)
    wasm = mutated(ModuleWriter(rng).write(), rng)
    with suppress(ModuleError, TransformError):
        sandbox.call(observe, WatchedGuest, wasm, BATCHES, QUICK)
