"""Every host function that is given a pointer, called with a good one and with each that leaves the guest's memory."""

from __future__ import annotations

from typing import Any

import pytest

from wasmline.testing import guests
from wasmline.wasm.abi import FUNCTIONS, WASI

PAGES = 3
END = PAGES * 65536
GOOD = 1024
NOSYS = 52

# What each argument is: n a number, p8 a pointer to 8 bytes, a8 an array of 8-byte elements whose count comes next,
# u a pointer without a type, at which nobody looks.
ARGUMENTS = {
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
CASES = {name: (arguments, NOSYS) for name, arguments in ARGUMENTS.items()} | ANSWERED


def words(arguments: str) -> list[tuple[str, list[int]]]:
    """Return each argument's kind with the numbers it is when all is well."""
    return [(word, [GOOD, 2] if word[0] == "a" else [0] if word == "n" else [GOOD]) for word in arguments.split()]


def call(name: str, values: list[int]) -> str:
    kinds = FUNCTIONS[WASI][name].partition(":")[0]
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


def last(word: str) -> list[int]:
    """Return the argument at the very end of the memory."""
    size = int(word[1:])
    return [END - size] if word[0] == "p" else [END - size, 1]


def changed(name: str, index: int, values: list[int]) -> str:
    parts = [good for _, good in words(CASES[name][0])]
    parts[index] = values
    return call(name, [value for part in parts for value in part])


def looked_at(name: str) -> list[tuple[int, str]]:
    return [(index, word) for index, (word, _) in enumerate(words(CASES[name][0])) if word[0] in "pa"]


@pytest.mark.parametrize("name", CASES)
def test_pointers_into_the_memory_are_fine_to_its_last_byte(start: Any, records: Any, name: str) -> None:
    values = [value for _, good in words(CASES[name][0]) for value in good]
    calls = [call(name, values), *(changed(name, index, last(word)) for index, word in looked_at(name))]
    body = "".join(guests.require(each, CASES[name][1]) for each in calls)
    instance = start(guests.guest(body, pages=f"{PAGES}"))
    assert instance.transform(records([b"k"])).failures == ()


@pytest.mark.parametrize("name", [name for name in CASES if looked_at(name)])
def test_a_pointer_out_of_the_memory_traps(start: Any, records: Any, name: str) -> None:
    calls = [changed(name, index, values) for index, word in looked_at(name) for values in wild(word)]
    letters = [chr(ord("A") + number) for number in range(len(calls))]
    body = "".join(guests.when_key(letter, f"(drop {each})") for letter, each in zip(letters, calls, strict=True))
    batch = records([letter.encode() for letter in letters])
    failures = start(guests.guest(body + guests.WRITE, pages=f"{PAGES}")).transform(batch).failures
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


def test_every_function_of_wasi_that_takes_a_pointer_is_tried() -> None:
    without = {"fd_advise", "fd_allocate", "fd_close", "fd_datasync", "fd_fdstat_set_flags", "fd_fdstat_set_rights"}
    without |= {"fd_filestat_set_size", "fd_filestat_set_times", "fd_renumber", "fd_sync", "proc_exit", "proc_raise"}
    without |= {"sched_yield", "sock_shutdown"}
    elsewhere = {"args_get", "environ_get", "poll_oneoff"}  # they read structures
    assert set(FUNCTIONS[WASI]) == set(CASES) | without | elsewhere
