from __future__ import annotations

import struct
from typing import Any

import pytest

from wasmline.testing import guests
from wasmline.wasm import LogLine

WALL, MONOTONIC, AGAIN = 512, 520, 528
CLOCKS = guests.read_clock(0, WALL) + guests.read_clock(1, MONOTONIC) + guests.read_clock(3, AGAIN)


def values(result: Any, kind: str) -> list[tuple[int, ...]]:
    return [struct.unpack(kind, value) for value in result.outputs.column("value").to_pylist()]


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_clocks_depend_on_the_records_and_on_nothing_else(start: Any, records: Any, size: int) -> None:
    instance = start(guests.guest(CLOCKS + guests.write_cells(WALL, MONOTONIC, AGAIN)))
    batch = records([b"k"] * 1000, times=[7 * row for row in range(1000)])
    read = [
        line for first in range(0, 1000, size) for line in values(instance.transform(batch.slice(first, size)), "<qqq")
    ]
    assert read == [
        (7_000_000 * row, (row + 1) * 1_000_000 + row * 2000, (row + 1) * 1_000_000 + row * 2000 + 1000)
        for row in range(1000)
    ]


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_by_redpandas_rule_a_reading_moves_the_monotonic_clock_and_nothing_else_does(
    start: Any, records: Any, size: int
) -> None:
    body = CLOCKS + subscription(1, 5_000_000_000, 0) + guests.write_cells(WALL, MONOTONIC, AGAIN)
    instance = start(guests.guest(body), clock="redpanda")
    batch = records([b"k"] * 1000, times=[7 * row for row in range(1000)])
    read = [
        line for first in range(0, 1000, size) for line in values(instance.transform(batch.slice(first, size)), "<qqq")
    ]
    assert read == [(7_000_000 * row, 2_000_000 * row, 2_000_000 * row + 1_000_000) for row in range(1000)]


def test_the_wall_clock_is_zero_before_the_first_record(start: Any, records: Any) -> None:
    instance = start(guests.guest(guests.write_cells(WALL), on_start=guests.read_clock(0, WALL)))
    assert values(instance.transform(records([b"k"])), "<q") == [(0,)]


def test_an_unknown_clock_is_invalid(start: Any, records: Any) -> None:
    call = "(call $clock_time_get (i32.const 4) (i64.const 0) (i32.const 512))"
    assert start(guests.guest(guests.require(call, 28))).transform(records([b"k"])).failures == ()


def test_random_bytes_are_nine(start: Any, records: Any) -> None:
    body = "(drop (call $random_get (i32.const 512) (i32.const 8)))" + guests.write_cells(512)
    assert start(guests.guest(body)).transform(records([b"k"])).outputs.column("value").to_pylist() == [b"\x09" * 8]


def subscription(clock: int, timeout: int, absolute: int) -> str:
    cells = {0: 0x1122334455667788, 8: 0, 16: clock, 24: timeout, 32: 0, 40: absolute}
    stores = "".join(f"(i64.store (i32.const {1024 + at}) (i64.const {value}))" for at, value in cells.items())
    poll = "(call $poll_oneoff (i32.const 1024) (i32.const 1536) (i32.const 1) (i32.const 2000))"
    return stores + guests.require(poll, 0) + guests.require("(i32.load (i32.const 2000))", 1)


@pytest.mark.parametrize(
    ("clock", "timeout", "absolute", "moved"),
    [
        (1, 5_000_000_000, 0, 5_000_000_000),
        (0, 5_000_000_000, 0, 5_000_000_000),
        (1, 9_000_000, 1, 8_000_000),
        (1, 1, 1, 0),
        (0, 50_000_000, 1, 10_000_000),
        (1, -1, 0, 0),
    ],
)
def test_a_sleep_ends_at_once_and_moves_the_monotonic_clock_to_its_deadline(
    start: Any, records: Any, clock: int, timeout: int, absolute: int, moved: int
) -> None:
    body = (
        subscription(clock, timeout, absolute)
        + guests.read_clock(1, MONOTONIC)
        + guests.write_cells(MONOTONIC, 1536, 1544)
    )
    (now, user_data, event) = values(start(guests.guest(body)).transform(records([b"k"], times=[40])), "<qqq")[0]
    assert (now, user_data, event) == (1_000_000 + moved, 0x1122334455667788, 0)


def strings(what: str) -> str:
    """Statements that write the strings of args or environ as one record's value of 240 bytes."""
    return (
        f"(drop (call ${what}_sizes_get (i32.const 500) (i32.const 504)))"
        f"(drop (call ${what}_get (i32.const 600) (i32.const 1024)))"
        + guests.write_cells(500, *range(1024, 1024 + 232, 8))
    )


def decoded(value: bytes) -> tuple[int, list[str]]:
    count, size = struct.unpack("<ii", value[:8])
    return count, value[8 : 8 + size].decode().split("\0")[:-1]


def test_args_are_the_transforms_name_alone(start: Any, records: Any) -> None:
    result = start(guests.guest(strings("args"))).transform(records([b"k"]))
    assert decoded(result.outputs.column("value")[0].as_py()) == (1, ["under-test"])


def test_the_environment_is_the_users_and_the_topics(start: Any, records: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("SECRET_OF_THE_HOST", "1")
    instance = start(guests.guest(strings("environ")), outputs=("a", "bé"), env={"UNIT": "km"})
    assert decoded(instance.transform(records([b"k"])).outputs.column("value")[0].as_py()) == (
        4,
        ["UNIT=km", "REDPANDA_INPUT_TOPIC=in", "REDPANDA_OUTPUT_TOPIC_0=a", "REDPANDA_OUTPUT_TOPIC_1=bé"],
    )


@pytest.mark.parametrize(("descriptor", "answer"), [(0, 52), (2, 52), (3, 8), (99, 8)])
def test_there_are_no_preopened_folders(start: Any, records: Any, descriptor: int, answer: int) -> None:
    call = f"(call $fd_prestat_get (i32.const {descriptor}) (i32.const 512))"
    assert start(guests.guest(guests.require(call, answer))).transform(records([b"k"])).failures == ()


def test_files_are_not_supported(start: Any, records: Any) -> None:
    call = "(call $path_unlink_file (i32.const 3) (i32.const 0) (i32.const 0))"
    assert start(guests.guest(guests.require(call, 52))).transform(records([b"k"])).failures == ()


def test_each_write_is_one_log_line_with_its_row_and_level(start: Any, records: Any) -> None:
    instance = start(
        guests.guest(
            guests.when_key("w", guests.log("careful\n")) + guests.when_key("i", guests.log("so it is", descriptor=1)),
            on_start=guests.log("ready"),
        )
    )
    first = instance.transform(records([b"k", b"warn", b"info"]))
    assert first.logs == (
        LogLine(row=None, level="WARN", text="ready"),
        LogLine(row=1, level="WARN", text="careful\n"),
        LogLine(row=2, level="INFO", text="so it is"),
    )
    assert instance.transform(records([b"warn"])).logs == (LogLine(row=0, level="WARN", text="careful\n"),)


def test_lines_over_the_limit_are_dropped_and_counted(start: Any, records: Any) -> None:
    instance = start(guests.guest(guests.log("12345678")), log_bytes_per_batch=100)
    for _ in range(2):
        result = instance.transform(records([b"k"] * 20))
        assert len(result.logs) == 5
        assert result.logs_dropped == 15


def test_the_log_limit_holds_across_a_failure(start: Any, records: Any) -> None:
    instance = start(guests.guest(guests.log("12345678") + guests.when_key("p", guests.TRAP)), log_bytes_per_batch=100)
    result = instance.transform(records([b"k", b"k", b"p", *[b"k"] * 10]))
    assert [line.row for line in result.logs] == [0, 1, 2, 3, 4]
    assert result.logs_dropped == 8


def test_other_descriptors_cannot_be_written(start: Any, records: Any) -> None:
    call = "(call $fd_write (i32.const 3) (i32.const 0) (i32.const 0) (i32.const 512))"
    assert start(guests.guest(guests.require(call, 52))).transform(records([b"k"])).failures == ()


def test_overlapping_vectors_cannot_leave_the_log(start: Any, records: Any) -> None:
    vectors = "".join(f"(i64.store (i32.const {1024 + 8 * index}) (i64.const {131072 << 32}))" for index in range(8))
    write = "(drop (call $fd_write (i32.const 1) (i32.const 1024) (i32.const 8) (i32.const 512)))"
    result = start(guests.guest(vectors + write + guests.WRITE)).transform(records([b"k"] * 3))
    assert (result.logs, result.logs_dropped, result.outputs.num_rows) == ((), 3, 3)


def test_a_count_written_over_a_vector_does_not_change_what_is_logged(start: Any, records: Any) -> None:
    body = (
        "(i32.store (i32.const 1024) (i32.const 65536)) (i32.store (i32.const 1028) (i32.const 0))"
        "(i32.store (i32.const 1032) (i32.const 65536)) (i32.store (i32.const 1036) (i32.const 2))"
        "(drop (call $fd_write (i32.const 1) (i32.const 1024) (i32.const 2) (i32.const 1028)))"
    )
    result = start(guests.guest(body)).transform(records([b"k"]))
    assert [line.text for line in result.logs] == ["\x02k"]


def test_a_wild_pointer_traps(start: Any, records: Any) -> None:
    calls = [
        "(drop (call $random_get (i32.const -8) (i32.const 64)))",
        "(drop (call $environ_get (i32.const -8) (i32.const 0)))",
        "(drop (call $fd_write (i32.const 1) (i32.const -4) (i32.const 1) (i32.const 0)))",
        "(drop (call $clock_time_get (i32.const 0) (i64.const 0) (i32.const -4)))",
    ]
    for call in calls:
        result = start(guests.guest(guests.when_key("p", call) + guests.WRITE)).transform(records([b"k", b"p", b"k"]))
        assert [failure.error.code for failure in result.failures] == ["out of bounds memory access"]
