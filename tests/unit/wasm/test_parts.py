"""A batch that is too much for the host at once is served in parts, and a record that is, alone, fails alone."""

from __future__ import annotations

import pickle
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wasmline.errors import GuestTrap, LimitExceeded, RecordTooLarge
from wasmline.record_batches import RECORD_SCHEMA
from wasmline.testing import guests
from wasmline.testing.sandbox import CONTEXT, Sandbox
from wasmline.wasm import CompiledTransform, HostLimits, TransformResult, TransformRuntime

KIB, MIB = 2**10, 2**20


def often(times: int) -> str:
    """Return a snippet: write the record many times."""
    again = "(br_if $again (local.tee $zero (i32.sub (local.get $zero) (i32.const 1))))"
    return f"(local.set $zero (i32.const {times})) (loop $again {guests.WRITE} {again})"


def written(result: TransformResult) -> dict[int, int]:
    """Return how many outputs each row has."""
    return {each["values"]: each["counts"] for each in result.outputs.column("row").value_counts().to_pylist()}


@pytest.mark.parametrize("part_bytes", [1, 100 * KIB, 1 * MIB, 3 * MIB])
@pytest.mark.parametrize("times", [1, 50, 2_000])
def test_rows_are_served_in_parts_all_of_them_once_and_in_order(
    start: Any, records: Any, part_bytes: int, times: int
) -> None:
    batch = records([b"k"] * 40, [b"x" * 1000] * 40)
    instance = start(guests.guest(often(times)), host=HostLimits(part_bytes=part_bytes))
    for _ in range(2):
        parts = list(instance.parts(batch))
        assert sum(part.rows for part in parts) == 40
        first = 0
        for part in parts:
            assert written(part) == dict.fromkeys(range(first, first + part.rows), times)
            first += part.rows
        assert max(part.rows * times * 1000 for part in parts) <= max(part_bytes, times * 1000) + 2 * MIB
    assert instance.transform(batch).outputs.equals(pa.concat_batches([part.outputs for part in parts]))


def test_a_part_is_no_larger_than_asked_for_once_the_guest_is_known(start: Any, records: Any) -> None:
    batch = records([b"k"] * 200, [b"x" * 1000] * 200)
    instance = start(guests.guest(often(200)), host=HostLimits(part_bytes=2 * MIB))
    list(instance.parts(batch))
    guest = instance._guest
    sizes = [part.outputs.nbytes for part in instance.parts(batch)]
    assert max(sizes) <= 2 * MIB
    assert len(sizes) < 2 * 40 * MIB // (2 * MIB)
    assert instance._guest is guest, "no guest is ended once it is given what fits"


def test_a_guest_that_is_stopped_fails_no_record_and_the_next_is_as_fresh(start: Any, records: Any) -> None:
    count = "(global.set $heap (i32.add (global.get $heap) (i32.const 1)))"
    instance = start(guests.guest(count + often(4_000)), host=HostLimits(part_bytes=MIB))
    result = instance.transform(records([b"k"] * 9, [b"x" * 1000] * 9))
    assert result.failures == ()
    assert written(result) == dict.fromkeys(range(9), 4_000)


def test_a_record_that_writes_much_after_others_wrote_nothing_is_served_once(start: Any, records: Any) -> None:
    act = guests.log("k") + guests.when_key("p", often(9_000))
    batch = records([b"p" if row in (10, 11, 30) else b"k" for row in range(40)], [b"x" * 1000] * 40)
    result = start(guests.guest(act), host=HostLimits(part_bytes=MIB)).transform(batch)
    assert (written(result), result.failures) == (dict.fromkeys((10, 11, 30), 9_000), ())
    assert [line.row for line in result.logs].count(10) == 1


KEY_SIZE = f"(i32.load8_u (i32.const {guests.PAYLOAD}))"
WRITES = f"(i32.load8_u (i32.add (i32.const {guests.PAYLOAD + 3}) (i32.eq {KEY_SIZE} (i32.const 2))))"
"""The first byte of the record's value, behind a key that is null or of one byte and a length of two."""
AS_TOLD = f"""(local.set $zero {WRITES}) (block $done (loop $again
  (br_if $done (i32.eqz (local.get $zero)))
  {guests.WRITE}
  (local.set $zero (i32.sub (local.get $zero) (i32.const 1)))
  (br $again)))"""


@pytest.fixture(scope="module")
def obedient(cache_dir: Path) -> CompiledTransform:
    """A guest that writes each record as often as it says, and then traps where its key is p."""
    return TransformRuntime(cache_dir).compile(guests.guest(AS_TOLD + guests.when_key("p", guests.TRAP)))


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(
        st.tuples(st.sampled_from([b"k", b"k", None, None, b"p"]), st.integers(0, 255), st.integers(64, 8000)),
        max_size=30,
    ),
    part_bytes=st.integers(1, 4 * MIB),
    slices=st.lists(st.integers(1, 30), max_size=3),
)
def test_whatever_records_write_each_is_served_as_if_alone(
    obedient: CompiledTransform, rows: list[tuple[bytes | None, int, int]], part_bytes: int, slices: list[int]
) -> None:
    batch = pa.RecordBatch.from_pylist(
        [
            {
                "key": key,
                "value": bytes([writes]) + b"x" * (size - 1),
                "headers": [("h", None)] * (size % 3),
                "timestamp": 0,
                "partition": 0,
                "offset": 0,
            }
            for key, writes, size in rows
        ],
        schema=RECORD_SCHEMA,
    )
    with obedient.instantiate(CONTEXT, host=HostLimits(part_bytes=part_bytes)) as instance:
        for first in (0, *slices):
            parts = list(instance.parts(batch.slice(first)))
            told = rows[first:]
            assert sum(part.rows for part in parts) == len(told)
            counts = {row: count for part in parts for row, count in written(part).items()}
            assert counts == {row: writes for row, (key, writes, _) in enumerate(told) if key != b"p" and writes}
            failures = [failure.row for part in parts for failure in part.failures]
            assert failures == [row for row, (key, _, _) in enumerate(told) if key == b"p"]


def test_records_that_fail_are_in_the_part_of_their_row(start: Any, records: Any) -> None:
    act = guests.when_key("p", often(3_000) + guests.TRAP) + often(1_000)
    batch = records([b"p" if row in (0, 7, 8, 19) else b"k" for row in range(20)], [b"x" * 1000] * 20)
    instance = start(guests.guest(act), host=HostLimits(part_bytes=2 * MIB))
    first, failed = 0, []
    for part in instance.parts(batch):
        rows = set(range(first, first + part.rows))
        assert {failure.row for failure in part.failures} | set(written(part)) == rows
        failed += [(failure.row, failure.offset) for failure in part.failures]
        first += part.rows
    assert (first, failed) == (20, [(0, 0), (7, 7), (8, 8), (19, 19)])


def test_log_lines_of_all_parts_share_the_room_of_one_batch(start: Any, records: Any) -> None:
    instance = start(
        guests.guest(guests.log("x" * 88) + often(100)), host=HostLimits(part_bytes=10 * KIB), log_bytes_per_batch=1000
    )
    parts = list(instance.parts(records([b"k"] * 30, [b"x" * 1000] * 30)))
    assert len(parts) > 5
    assert sum(len(part.logs) for part in parts) == 10
    assert sum(part.logs_dropped for part in parts) >= 20


def test_parts_that_nobody_asks_for_are_not_served_and_do_no_harm(start: Any, records: Any) -> None:
    instance = start(guests.guest(often(2_000)), host=HostLimits(part_bytes=MIB))
    batch = records([b"k"] * 20, [b"x" * 1000] * 20)
    first = next(instance.parts(batch))
    assert first.rows < 20
    assert instance.transform(records([b"a"])).rows == 1
    parts = instance.parts(batch)
    next(parts)
    instance.close()
    with pytest.raises(Exception, match="the instance is closed"):
        next(parts)


def test_an_empty_batch_is_one_empty_part(start: Any, records: Any) -> None:
    (part,) = start(guests.guest()).parts(records([]))
    assert (part.rows, part.outputs.num_rows) == (0, 0)


SMALL = HostLimits(shim_bytes=8 * MIB, part_bytes=MIB)


@pytest.mark.parametrize("at", [0, 3, 9])
def test_a_record_that_the_host_cannot_hold_fails_alone(start: Any, records: Any, at: int) -> None:
    values = [b"x" * (9 * MIB if row == at else 100) for row in range(10)]
    instance = start(guests.guest(), host=SMALL)
    for _ in range(2):
        result = instance.transform(records([b"k"] * 10, values))
        assert [(failure.row, type(failure.error)) for failure in result.failures] == [(at, RecordTooLarge)]
        assert "at most 8388608 fit" in str(result.failures[0].error)
        assert pickle.loads(pickle.dumps(result.failures[0].error)).offset == at
        assert result.outputs.column("row").to_pylist() == [row for row in range(10) if row != at]


@pytest.mark.parametrize("at", [0, 3, 9])
def test_a_record_whose_outputs_the_host_cannot_hold_fails_alone(start: Any, records: Any, at: int) -> None:
    section = f'(data (i32.const {guests.SCRATCH}) "\\01\\80\\80\\80\\03")'  # a null key, and a value of 3 MiB
    large = f"(drop (call $write_record (i32.const {guests.SCRATCH}) (i32.const {3 * MIB + 6})))"
    wasm = guests.guest(guests.WRITE + guests.when_key("p", large) + guests.WRITE, section=section, pages="60")
    batch = records([b"p" if row == at else b"k" for row in range(10)], [b"x"] * 10)
    instance = start(wasm, host=SMALL)
    for _ in range(2):
        result = instance.transform(batch)
        assert [(failure.row, type(failure.error)) for failure in result.failures] == [(at, RecordTooLarge)]
        assert written(result) == {row: 2 for row in range(10) if row != at}
    assert written(start(wasm).transform(batch))[at] == 3


@pytest.mark.parametrize("on_record", [guests.WRITE, often(10)])
def test_the_failure_of_a_record_too_large_keeps_nothing_of_its_batch(start: Any, records: Any, on_record: str) -> None:
    value = b"x" * (9 * MIB if on_record == guests.WRITE else MIB)
    instance = start(guests.guest(on_record), host=SMALL)
    (failure,) = instance.transform(records([b"k"], [value])).failures
    assert isinstance(failure.error, RecordTooLarge)
    assert failure.error.__traceback__ is None  # its frames would keep the batch until a garbage collection
    assert failure.error.__context__ is None


def test_records_that_fit_one_by_one_are_served_one_by_one(start: Any, records: Any) -> None:
    values = [b"x" * 600 * KIB] * 30 + [b"x"] * 3_000 + [b"x" * 600 * KIB] * 30
    result = start(guests.guest(), host=SMALL).transform(records([b"k"] * len(values), values))
    assert (result.failures, result.outputs.num_rows) == ((), len(values))


def test_a_few_large_records_among_many_small_ones_are_not_loaded_at_once(start: Any, records: Any) -> None:
    values = [b"x"] * 3_000 + [b"x" * 10 * MIB] * 14 + [b"x"] * 3_000
    instance = start(guests.guest("(nop)"), memory_bytes=16 * MIB)
    result = instance.transform(records([b"k"] * len(values), values))
    assert (result.rows, result.failures) == (len(values), ())
    assert instance._guest._memory._size < 140 * MIB


def test_columns_shrink_where_the_larger_ones_find_no_room(start: Any, records: Any) -> None:
    batch = records([b"k"] * 100, [b"x" * 1000] * 100)
    instance = start(guests.guest(often(100)), host=SMALL)
    for _ in range(5):  # each flush doubles what the columns are made for, up to sixteen times
        result = instance.transform(batch)
        assert (result.failures, result.outputs.num_rows) == ((), 10_000)


@pytest.mark.parametrize(
    "bad", [{"shim_bytes": 0}, {"shim_bytes": 2**32 + 1}, {"part_bytes": 0}, {"part_bytes": 2**29 + 1}]
)
def test_limits_of_the_host_are_bounded(bad: dict[str, int]) -> None:
    with pytest.raises(LimitExceeded, match=next(iter(bad))):
        HostLimits(**bad)


@contextmanager
def little_memory(more: int) -> Iterator[None]:
    """Let this process take only so many addresses more than it has."""
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (taken + more, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def serve_with_little_memory(wasm: bytes, batch: pa.RecordBatch, folder: Path) -> tuple[str, TransformResult]:
    """Serve a batch in a process that may take no more memory than it has, then without that limit."""
    pa.set_memory_pool(pa.system_memory_pool())  # the others reserve addresses
    with TransformRuntime(folder).compile(wasm).instantiate(CONTEXT) as instance:
        instance.transform(batch.slice(0, 1))
        with little_memory(0), pytest.raises(MemoryError) as failed:
            instance.transform(batch)
        return str(failed.value), instance.transform(batch)


def start_with_little_memory(wasm: bytes, folder: Path) -> str:
    """Start a guest in a process that has no addresses for it, but for the guest's thread."""
    transform = TransformRuntime(folder).compile(wasm)
    with little_memory(2**30), pytest.raises(MemoryError) as failed:
        transform.instantiate(CONTEXT)
    transform.instantiate(CONTEXT).close()
    return str(failed.value)


def test_a_host_without_memory_blames_no_record_and_the_instance_survives(records: Any, tmp_path: Path) -> None:
    batch = records([b"k"] * 4, [b"x", b"x", b"x" * 4 * MIB, b"x"])
    with Sandbox() as sandbox:
        said, after = sandbox.call(serve_with_little_memory, guests.guest(often(12)), batch, tmp_path)
    assert "malloc" in said
    assert (written(after), after.failures) == (dict.fromkeys(range(4), 12), ())


def test_a_host_without_memory_blames_no_module(tmp_path: Path) -> None:
    with Sandbox() as sandbox:
        assert "no room for a guest" in sandbox.call(start_with_little_memory, guests.guest(), tmp_path)


def test_a_host_whose_limits_do_not_hold_its_own_texts_blames_no_module(start: Any) -> None:
    with pytest.raises(RecordTooLarge, match="of the host"):
        start(guests.guest(), host=HostLimits(shim_bytes=2**20), log_bytes_per_batch=2**21)


def test_a_guest_that_fails_whatever_it_is_given_still_gets_on(start: Any, records: Any) -> None:
    instance = start(guests.guest(on_batch=guests.TRAP), host=SMALL)
    result = instance.transform(records([b"k"] * 5, [b"x" * MIB] * 5))
    assert [type(failure.error) for failure in result.failures] == [GuestTrap] * 5
