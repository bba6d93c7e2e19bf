from __future__ import annotations

import pickle
from typing import Any

import pyarrow as pa
import pytest

from wasmline.errors import (
    GuestExit,
    GuestOutOfMemory,
    GuestTrap,
    InvalidModule,
    TransformError,
)
from wasmline.testing import guests

LIMITS = {"cpu_ms_per_record": 100, "memory_bytes": 4 * 2**20, "output_bytes_per_record": 2**20}


@pytest.mark.parametrize("poisoned", [(0,), (4,), (0, 1, 2, 3, 4), (1, 3)])
def test_poison_at_the_edges_and_in_rows_is_found(start: Any, records: Any, poisoned: tuple[int, ...]) -> None:
    instance = start(guests.guest(guests.WRITE + guests.when_key("p", guests.TRAP)))
    result = instance.transform(records([b"p" if row in poisoned else b"k" for row in range(5)]))
    assert [failure.row for failure in result.failures] == list(poisoned)
    assert result.outputs.column("row").to_pylist() == [row for row in range(5) if row not in poisoned]
    assert instance.transform(records([b"k"])).outputs.num_rows == 1


def test_a_failure_names_the_partition_and_the_offset_of_its_record(start: Any, records: Any) -> None:
    instance = start(guests.guest(guests.when_key("p", guests.TRAP)))
    batch = records([b"p", b"k", b"p", b"k", b"p"], offsets=[7, 8, 2**40, 10, 11])
    batch = batch.set_column(4, batch.schema.field("partition"), pa.array([0, 1, 2, 3, 4], pa.int32()))
    failures = pickle.loads(pickle.dumps(instance.transform(batch.slice(1)).failures))
    assert [(each.row, each.partition, each.offset) for each in failures] == [(1, 2, 2**40), (3, 4, 11)]
    assert [(each.error.partition, each.error.offset) for each in failures] == [(2, 2**40), (4, 11)]


def test_a_failure_of_no_record_names_none(start: Any) -> None:
    with pytest.raises(GuestTrap) as caught:
        start(guests.guest(on_start=guests.TRAP))
    assert (caught.value.partition, caught.value.offset) == (None, None)


def test_a_record_that_fails_after_its_outputs_were_flushed_gives_none(start: Any, records: Any) -> None:
    flood = (
        f"(local.set $zero (i32.const 5000)) (loop $again {guests.WRITE}"
        "(br_if $again (local.tee $zero (i32.sub (local.get $zero) (i32.const 1)))))"
    )
    instance = start(guests.guest(guests.WRITE + guests.when_key("p", flood + guests.TRAP)))
    result = instance.transform(records([b"a", b"p", b"b"], [b"v" * 1000] * 3))
    assert [failure.row for failure in result.failures] == [1]
    assert result.outputs.column("row").to_pylist() == [0, 2]


def test_a_record_too_big_for_the_guests_buffer_is_the_one_that_fails(start: Any, records: Any) -> None:
    fixed = "(call $read_next_record (i32.const 64) (i32.const 72) (i32.const 80) (i32.const 65536) (i32.const 100))"
    check = "(if (i32.eq (local.get $size) (i32.const -2)) (then (unreachable)))"
    read = f"(block (result i32) (local.set $size {fixed}) {check} (local.get $size))"
    instance = start(guests.guest(read=read))
    result = instance.transform(records([b"k"] * 4, [b"1", b"2", b"x" * 200, b"4"]))
    assert [failure.row for failure in result.failures] == [2]
    assert result.outputs.column("row").to_pylist() == [0, 1, 3]


def test_a_guest_that_fails_before_it_reads_still_gets_on(start: Any, records: Any) -> None:
    instance = start(guests.guest(on_batch=guests.TRAP))
    result = instance.transform(records([b"a", b"b", b"c"]))
    assert [failure.row for failure in result.failures] == [0, 1, 2]


def test_the_reason_holds_the_end_of_the_records_own_stderr(start: Any, records: Any) -> None:
    act = guests.log("first words ") + guests.log("last words") + guests.TRAP
    instance = start(guests.guest(guests.log("before") + guests.when_key("p", act)), log_bytes_per_batch=0)
    result = instance.transform(records([b"a", b"p"]))
    assert str(result.failures[0].error).startswith("beforefirst words last words; the guest trapped: unreachable")
    assert result.logs_dropped == 4


@pytest.mark.parametrize("sizes", [[10], [512], [500, 30], [1024], [300] * 3 + [124], [600, 424]])
def test_stderr_up_to_a_kilobyte_is_in_the_reason_as_it_is(start: Any, records: Any, sizes: list[int]) -> None:
    words, act = numbered(sizes)
    result = start(guests.guest(act + guests.TRAP)).transform(records([b"a"]))
    assert str(result.failures[0].error) == f"{words}; the guest trapped: unreachable"


@pytest.mark.parametrize(
    "sizes", [[1025], [1024, 1], [1, 1024], [512, 513], [3000], [200] * 30, [400, 700, 1, 2000, 9]]
)
def test_of_a_longer_stderr_the_head_and_the_tail_are_in_the_reason(start: Any, records: Any, sizes: list[int]) -> None:
    words, act = numbered(sizes)
    instance = start(guests.guest(guests.when_key("p", act + guests.TRAP)))
    for _ in range(2):
        result = instance.transform(records([b"a", b"p"]))
        head, tail = words[:512], words[-512:]
        reason = f"{tail}; the guest trapped: unreachable; it wrote to stderr: {head} [...]"
        assert str(result.failures[0].error) == reason


def numbered(sizes: list[int]) -> tuple[str, str]:
    """Return a text without repetition, and a snippet that writes it to stderr in pieces of these sizes."""
    words = "".join(f"{number:04}" for number in range(sum(sizes) // 4 + 1))[: sum(sizes)]
    starts = [sum(sizes[:index]) for index in range(len(sizes))]
    return words, "".join(guests.log(words[at : at + size]) for at, size in zip(starts, sizes, strict=True))


def test_the_reason_is_bounded(start: Any, records: Any) -> None:
    act = guests.log("0123456789" * 30) * 20 + guests.log("the end") + guests.TRAP
    reason = str(start(guests.guest(act)).transform(records([b"a"])).failures[0].error)
    assert "the end; the guest trapped: unreachable" in reason
    assert 1000 < len(reason) < 1200


def test_a_growth_the_guest_survives_is_no_failure(start: Any, records: Any) -> None:
    refused = guests.require("(memory.grow (i32.const 1000))", -1)
    result = start(guests.guest(refused + guests.WRITE), memory_bytes=2**20).transform(records([b"a"]))
    assert (result.outputs.num_rows, result.failures) == (1, ())


def test_the_memory_limit_is_the_guests_alone(start: Any, records: Any) -> None:
    batch = records([b"k%d" % row for row in range(100)], [b"x" * 100_000] * 100)
    result = start(guests.guest(), memory_bytes=2**20).transform(batch)
    assert result.outputs.column("value").equals(batch.column("value"))


def test_guests_with_a_declared_maximum_are_served(start: Any, records: Any) -> None:
    assert start(guests.guest(pages="3 20"), memory_bytes=2**20).transform(records([b"a"])).outputs.num_rows == 1


BAD_STARTS: dict[str, tuple[dict[str, Any], type[TransformError], str]] = {
    "exit in main": (
        {"on_start": guests.log("no config") + guests.leave(71)},
        GuestExit,
        "no config; the guest exited with status 71",
    ),
    "more memory than allowed": ({"pages": "200"}, GuestOutOfMemory, "memory_bytes"),
    "data beyond the memory": ({"section": '(data (i32.const 999999) "x")'}, GuestTrap, "out of bounds"),
}


@pytest.mark.parametrize(("parts", "kind", "words"), BAD_STARTS.values(), ids=BAD_STARTS.keys())
def test_a_failure_before_the_first_record_is_raised(
    start: Any, parts: dict[str, Any], kind: type[TransformError], words: str
) -> None:
    with pytest.raises(kind, match=rf"(?s)under-test failed before its first record: .*{words}"):
        start(guests.guest(guests.WRITE, **parts), **LIMITS)


def test_a_second_memory_is_refused(start: Any) -> None:
    with pytest.raises(InvalidModule, match="cannot be instantiated"):
        start(guests.guest(section="(memory $other 1)"))


def test_slow_records_below_the_limit_are_not_added_up(start: Any, records: Any) -> None:
    count = "(local.tee $zero (i32.sub (local.get $zero) (i32.const 1)))"
    busy = f"(local.set $zero (i32.const 20000000)) (loop $again (br_if $again {count}))"
    result = start(guests.guest(busy + guests.WRITE), cpu_ms_per_record=200).transform(records([b"k"] * 30))
    assert (result.outputs.num_rows, result.failures) == (30, ())


def test_an_interrupt_that_comes_late_does_not_fail_the_next_record(start: Any, records: Any) -> None:
    instance = start(guests.guest())
    assert instance.transform(records([b"a"])).failures == ()
    watch = instance._guest._watch
    watch.killed_at = watch.progress() - 1
    instance._code.engine.increment_epoch()
    result = instance.transform(records([b"b", b"c"]))
    assert (result.outputs.column("row").to_pylist(), result.failures) == ([0, 1], ())


def test_each_record_written_counts_sixteen_bytes_beside_its_payload(start: Any, records: Any) -> None:
    smallest = guests.write_bytes(b"\x01\x01\x00")
    three = start(guests.guest(smallest * 3), output_bytes_per_record=3 * 19)
    assert three.transform(records([b"k", b"k"])).outputs.num_rows == 6
    four = start(guests.guest(smallest * 4), output_bytes_per_record=3 * 19)
    assert [failure.row for failure in four.transform(records([b"k", b"k"])).failures] == [0, 1]


def test_each_header_written_counts_sixteen_bytes_beside_its_payload(start: Any, records: Any) -> None:
    two_headers = guests.write_bytes(bytes([1, 1, 4, *[2, 97, 1] * 2]))
    within = start(guests.guest(two_headers), output_bytes_per_record=9 + 3 * 16)
    assert within.transform(records([b"k", b"k"])).outputs.num_rows == 2
    beyond = start(guests.guest(two_headers), output_bytes_per_record=9 + 3 * 16 - 1)
    assert [failure.row for failure in beyond.transform(records([b"k", b"k"])).failures] == [0, 1]
