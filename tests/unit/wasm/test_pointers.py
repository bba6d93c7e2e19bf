"""Every host function that is given a pointer, called with a good one and with each that leaves the guest's memory."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from wasmline.errors import GuestExit, GuestTrap
from wasmline.testing import guests
from wasmline.wasm.abi import FUNCTIONS

PAGES = 3
END = PAGES * 65536
GOOD = 1024
NOSYS = 52
KINDS = {name: kind for names in FUNCTIONS.values() for name, kind in names.items()}

# What each argument is: n a number, p8 a pointer to 8 bytes, a8 an array of 8-byte elements whose count comes next,
# u a pointer without a type, at which nobody looks.
UNSUPPORTED = {
    "fd_fdstat_get": "n u",
    "fd_filestat_get": "n u",
    "fd_pread": "n a8 n p4",
    "fd_prestat_dir_name": "n p1 n",
    "fd_pwrite": "n a8 n p4",
    "fd_read": "n a8 p4",
    "fd_readdir": "n a1 n p4",
    "fd_seek": "n n n p8",
    "fd_tell": "n p8",
    "path_create_directory": "n a1",
    "path_filestat_get": "n n a1 u",
    "path_filestat_set_times": "n n a1 n n n",
    "path_link": "n n a1 n a1",
    "path_open": "n n a1 n n n n p4",
    "path_readlink": "n a1 a1 p4",
    "path_remove_directory": "n a1",
    "path_rename": "n a1 n a1",
    "path_symlink": "a1 n a1",
    "path_unlink_file": "n a1",
    "sock_accept": "n n p4",
    "sock_recv": "n a8 n p4 p2",
    "sock_send": "n a8 n p4",
}
ANSWERED = {
    "args_sizes_get": ("p4 p4", 0),
    "clock_res_get": ("n p8", 0),
    "clock_time_get": ("n n p8", 0),
    "environ_sizes_get": ("p4 p4", 0),
    "fd_prestat_get": ("n u", NOSYS),
    "fd_write": ("n a8 p4", NOSYS),
    "random_get": ("a1", 0),
}
TRANSFORM = {
    "read_next_record": ("p1 p8 p8 a1", -1),  # all records were read
    "write_record": ("a1", -2),  # no payload
    "write_record_with_options": ("a1 a1", -2),
}
SCHEMA_REGISTRY = {  # which is not enabled
    "get_schema_definition_len": ("n p4", -1),
    "get_schema_definition": ("n a1", -1),
    "get_subject_schema_len": ("a1 n p4", -1),
    "get_subject_schema": ("a1 n a1", -1),
    "create_subject_schema": ("a1 a1 p4", -1),
}
CASES = {name: (arguments, NOSYS) for name, arguments in UNSUPPORTED.items()} | ANSWERED | TRANSFORM | SCHEMA_REGISTRY


def words(arguments: str) -> list[tuple[str, list[int]]]:
    """Return each argument's kind with the numbers it is when all is well."""
    return [(word, [GOOD, 2] if word[0] == "a" else [0] if word == "n" else [GOOD]) for word in arguments.split()]


def call(name: str, values: list[int]) -> str:
    kinds = KINDS[name].partition(":")[0]
    numbers = " ".join(
        f"({'i64' if kind == 'I' else 'i32'}.const {value})" for kind, value in zip(kinds, values, strict=True)
    )
    return f"(call ${name} {numbers})"


def wild(word: str) -> list[list[int]]:
    """Return the ways in which an argument may leave the memory: by one byte, by far, by a count that wraps around."""
    size = int(word[1:])
    if word[0] == "p":
        return [[END - size + 1], [-size], [-1]]
    return [[END - size, 2], [END + 1, 0], [GOOD, 2**32 // size - 1], *([[GOOD, 2**32 // size]] if size > 1 else [])]


def last(word: str) -> list[list[int]]:
    """Return the argument at the very end of the memory, and behind it where it points to nothing."""
    size = int(word[1:])
    return [[END - size]] if word[0] == "p" else [[END - size, 1], [END, 0]]


def changed(name: str, index: int, values: list[int]) -> str:
    parts = [good for _, good in words(CASES[name][0])]
    parts[index] = values
    return call(name, [value for part in parts for value in part])


def looked_at(name: str) -> list[tuple[int, str]]:
    return [(index, word) for index, (word, _) in enumerate(words(CASES[name][0])) if word[0] in "pa"]


@pytest.mark.parametrize("name", CASES)
def test_pointers_into_the_memory_are_fine_to_its_last_byte(start: Any, records: Any, name: str) -> None:
    values = [value for _, good in words(CASES[name][0]) for value in good]
    calls = [call(name, values), *(changed(name, index, at) for index, word in looked_at(name) for at in last(word))]
    body = "".join(guests.require(each, CASES[name][1]) for each in calls)
    instance = start(guests.guest(body, pages=f"{PAGES}", abi=2))
    assert instance.transform(records([b"k"])).failures == ()


@pytest.mark.parametrize("name", [name for name in CASES if looked_at(name)])
def test_a_pointer_out_of_the_memory_traps(start: Any, records: Any, name: str) -> None:
    calls = [changed(name, index, values) for index, word in looked_at(name) for values in wild(word)]
    letters = [chr(ord("A") + number) for number in range(len(calls))]
    body = "".join(guests.when_key(letter, f"(drop {each})") for letter, each in zip(letters, calls, strict=True))
    batch = records([letter.encode() for letter in letters])
    failures = start(guests.guest(body + guests.WRITE, pages=f"{PAGES}", abi=2)).transform(batch).failures
    assert {calls[failure.row]: failure.error.code for failure in failures} == dict.fromkeys(
        calls, "out of bounds memory access"
    )


@pytest.mark.parametrize("name", [name for name, (arguments, _) in CASES.items() if "u" in arguments])
def test_a_pointer_without_a_type_is_not_looked_at(start: Any, records: Any, name: str) -> None:
    (index,) = [index for index, (word, _) in enumerate(words(CASES[name][0])) if word == "u"]
    body = guests.require(changed(name, index, [-1]), CASES[name][1])
    assert start(guests.guest(body)).transform(records([b"k"])).failures == ()


@pytest.mark.parametrize(
    "values",
    [
        [END - 47, GOOD, 1, GOOD],
        [GOOD, END - 31, 1, GOOD],
        [GOOD, GOOD, 0, END - 3],
        [GOOD, GOOD, 2**28, GOOD],  # 48 times that, and 32 times, is 0 in 32 bits or little more
        [GOOD, GOOD, 2**27, GOOD],
    ],
)
def test_subscriptions_and_events_out_of_the_memory_trap(start: Any, records: Any, values: list[int]) -> None:
    body = guests.when_key("p", f"(drop {call('poll_oneoff', values)})") + guests.WRITE
    failures = start(guests.guest(body, pages=f"{PAGES}")).transform(records([b"k", b"p"])).failures
    assert [(failure.row, failure.error.code) for failure in failures] == [(1, "out of bounds memory access")]


HEADER_BYTES = (8, 4, 4, 2, 4, 8, 8, 8, 2, 4)


def header(index: int, position: int) -> str:
    """Return a call for a batch that wants one field of its header at a position."""
    pointers = [GOOD] * len(HEADER_BYTES)
    pointers[index] = position
    return f"(drop {call('read_batch_header', pointers)})"


@pytest.mark.parametrize(("index", "size"), list(enumerate(HEADER_BYTES)))
def test_a_header_out_of_the_memory_fails_the_deployment_and_no_record(start: Any, index: int, size: int) -> None:
    for position in (END - size + 1, -size, -1):
        with pytest.raises(GuestTrap, match=r"failed before its first record: .*out of bounds memory access"):
            start(guests.guest(on_start=header(index, position), pages=f"{PAGES}"))


def test_a_header_may_end_where_the_memory_ends(start: Any, records: Any) -> None:
    for index, size in enumerate(HEADER_BYTES):
        wasm = guests.guest(on_start=header(index, END - size) + guests.leave(9), pages=f"{PAGES}")
        (failure,) = start(wasm).transform(records([b"k"])).failures
        assert (type(failure.error), failure.error.status) == (GuestExit, 9)


def test_a_wild_pointer_to_a_record_traps_before_the_first_batch_too(start: Any) -> None:
    with pytest.raises(GuestTrap, match=r"failed before its first record: .*out of bounds memory access"):
        start(guests.guest(on_start=f"(drop {call('read_next_record', [-1, GOOD, GOOD, GOOD, 1])})"))


def test_a_buffer_that_leaves_the_memory_traps_although_the_record_fits(start: Any, records: Any) -> None:
    read = (
        f"(call $read_next_record (i32.const 64) (i32.const 72) (i32.const 80) (i32.const {END - 50}) (i32.const {{}}))"
    )
    assert start(guests.guest("", read=read.format(50))).transform(records([b"k"])).failures == ()
    (failure,) = start(guests.guest("", read=read.format(51))).transform(records([b"k"])).failures
    assert failure.error.code == "out of bounds memory access"


@pytest.mark.parametrize(
    ("name", "texts"),
    [("args", b"under-test\0"), ("environ", b"REDPANDA_INPUT_TOPIC=in\0REDPANDA_OUTPUT_TOPIC_0=out\0")],
)
def test_texts_and_their_pointers_out_of_the_memory_trap(start: Any, records: Any, name: str, texts: bytes) -> None:
    table, room = 4 * texts.count(b"\0"), len(texts)
    good = [call(f"{name}_get", [END - table, GOOD]), call(f"{name}_get", [GOOD, END - room])]
    wild = [[END - table + 1, GOOD], [-4, GOOD], [GOOD, END - room + 1], [GOOD, -1]]
    body = "".join(guests.require(each, 0) for each in good) + "".join(
        guests.when_key(letter, f"(drop {call(f'{name}_get', values)})")
        for letter, values in zip("abcd", wild, strict=True)
    )
    result = start(guests.guest(body + guests.WRITE)).transform(records([b"a", b"b", b"c", b"d", b"k"]))
    assert [failure.error.code for failure in result.failures] == ["out of bounds memory access"] * 4
    assert result.outputs.column("row").to_pylist() == [4]


@pytest.mark.parametrize("vector", [(END - 3, 4), (2**32 - 1, 1), (GOOD, 2**32 - GOOD), (END + 1, 0)])
def test_a_vector_out_of_the_memory_traps_before_anything_is_logged(
    start: Any, records: Any, vector: tuple[int, int]
) -> None:
    vectors = struct.pack("<IIII", GOOD, 5, *vector)
    body = guests.store(GOOD, b"words") + guests.store(guests.SCRATCH, vectors)
    for descriptor in (1, 2):
        wasm = guests.guest(body + f"(drop {call('fd_write', [descriptor, guests.SCRATCH, 2, 128])})")
        result = start(wasm).transform(records([b"k"]))
        reason = "the guest trapped: out of bounds memory access in fd_write"
        assert [str(each.error) for each in result.failures] == [reason]
        assert result.logs == ()


def test_every_function_that_takes_a_pointer_is_tried() -> None:
    without = {"fd_advise", "fd_allocate", "fd_close", "fd_datasync", "fd_fdstat_set_flags", "fd_fdstat_set_rights"}
    without |= {"fd_filestat_set_size", "fd_filestat_set_times", "fd_renumber", "fd_sync", "proc_exit", "proc_raise"}
    without |= {"sched_yield", "sock_shutdown", *(name for name, kind in KINDS.items() if not kind)}
    elsewhere = {"args_get", "environ_get", "poll_oneoff", "read_batch_header"}
    assert set(KINDS) == set(CASES) | without | elsewhere
