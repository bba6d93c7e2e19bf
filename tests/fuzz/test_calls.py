"""Whatever a guest asks of the host, in whatever order and with whatever numbers, it is served, refused or stopped."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from wasmline.errors import TransformError
from wasmline.record_batches import RECORD_SCHEMA
from wasmline.testing import guests
from wasmline.testing.sandbox import Sandbox
from wasmline.wasm.abi import FUNCTIONS

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "150"))
CALLS_PER_PROCESS = 2000
"""A process keeps what it compiled on its disk; a fresh one begins with none."""

LIMITS = {"cpu_ms_per_record": 1_000, "memory_bytes": 4 * 2**20, "output_bytes_per_record": 2**20}
KINDS = {name: kind for names in FUNCTIONS.values() for name, kind in names.items() if kind}
END = 3 * 65536
"""The size of the guest's memory."""

NUMBERS = st.one_of(
    st.integers(0, 4),
    st.sampled_from([64, 1024, 4096, 65536, END - 8, END - 1, END, 2**31 - 1, 2**31, 2**32 - 8, 2**32 - 1]),
    st.integers(0, END),
)


@st.composite
def calls(draw: st.DrawFn) -> str:
    """Return a call of a host function, its result written where a later call may take it for something else."""
    name = draw(st.sampled_from(sorted(KINDS)))
    params, _, results = KINDS[name].partition(":")
    numbers = [f"({'i32' if letter == 'i' else 'i64'}.const {draw(NUMBERS)})" for letter in params]
    call = f"(call ${name} {' '.join(numbers)})"
    return f"(i32.store (i32.const {draw(st.integers(0, END - 4))}) {call})" if results else call


PUTS = st.builds(
    "(i64.store (i32.const {}) (i64.const {}))".format,
    st.sampled_from([0, 64, 1024, 4096, 65536, END - 8]),
    st.one_of(st.integers(0, 2**64 - 1), st.sampled_from([0x0000000100000400, 0x0004000000010000, 0x00010101])),
)


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox() as sandbox:
        yield sandbox


def batch(*keys: bytes) -> pa.RecordBatch:
    rows = [
        {"key": key, "value": b"v" * 40, "headers": [], "timestamp": 10**12, "partition": 0, "offset": offset}
        for offset, key in enumerate(keys)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=RECORD_SCHEMA)


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(acts=st.lists(st.one_of(calls(), calls(), PUTS), min_size=1, max_size=12))
def test_no_calls_of_a_guest_touch_what_came_before_them(sandbox: Sandbox, acts: list[str]) -> None:
    if sandbox.calls >= CALLS_PER_PROCESS:
        sandbox.close()
    wasm = guests.guest(guests.WRITE + guests.when_key("p", "\n".join(acts)), abi=2)
    try:
        first, _ = sandbox.transform(wasm, [batch(b"a", b"b", b"p", b"c", b"p"), batch(b"a", b"b")], **LIMITS)
    except TransformError:
        pytest.fail("only a guest that fails at its start may raise")
    first.outputs.validate(full=True)
    written = first.outputs.filter(pa.array([row < 2 for row in first.outputs.column("row").to_pylist()]))
    assert written.select(["row", "key", "value"]).to_pylist() == [
        {"row": 0, "key": b"a", "value": b"v" * 40},
        {"row": 1, "key": b"b", "value": b"v" * 40},
    ]
    assert not {failure.row for failure in first.failures} & {0, 1, *first.outputs.column("row").to_pylist()}
