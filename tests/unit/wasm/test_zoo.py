"""Every guest of the zoo: the process lives, the record to blame is named, and every other record comes out."""

from __future__ import annotations

import os
import pickle
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import wasmtime

from wasmline import errors
from wasmline.testing import guests
from wasmline.testing.sandbox import HostDied, Sandbox
from wasmline.wasm import TransformResult
from wasmline.wasm.abi import FUNCTIONS

ZOO = Path(__file__).parents[3] / "wasm_modules/guests/zoo"
RECORDS = sorted((ZOO / "records").glob("*.wat"))
MODULES = sorted((ZOO / "modules").glob("*.wat"))
LIMITS = {
    "cpu_ms_per_record": 100,
    "memory_bytes": 4 * 2**20,
    "output_bytes_per_record": 2**20,
    "log_bytes_per_batch": 4096,
}
WITHOUT_POINTERS = [
    "fd_advise",
    "fd_allocate",
    "fd_close",
    "fd_datasync",
    "fd_fdstat_get",
    "fd_fdstat_set_flags",
    "fd_fdstat_set_rights",
    "fd_filestat_get",
    "fd_filestat_set_size",
    "fd_filestat_set_times",
    "fd_prestat_get",
    "fd_renumber",
    "fd_sync",
    "proc_raise",
    "sock_shutdown",
]
"""Host functions that look at no pointer: they have none, or answer "not supported" first, as on Redpanda."""
ENDS_BY = {"proc_exit": errors.GuestExit}
ROWS = 40
POISONED = 23
FIRST_OFFSET = 7_000_000_000


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox() as sandbox:
        yield sandbox


def ending(path: Path) -> tuple[type[errors.WasmlineError] | None, str]:
    """Return the class and the words that a file says it ends with."""
    kind, _, words = path.read_text().splitlines()[1].removeprefix(";; ends: ").partition(": ")
    return None if kind == "nothing" else getattr(errors, kind), words


def guest_that(path: Path) -> bytes:
    """Return a guest that copies every record and does what a file says with those whose key begins with p."""
    act, _, fields = path.read_text().partition(";; fields\n")
    return guests.guest(guests.WRITE + guests.when_key("p", act + "\n"), section=fields)


def rows(result: TransformResult) -> tuple[list[int], list[int]]:
    return result.outputs.column("row").to_pylist(), [failure.row for failure in result.failures]


def poisoned_batch(records: Any) -> Any:
    keys = [b"poison" if row == POISONED else b"k%d" % row for row in range(ROWS)]
    return records(keys, offsets=[FIRST_OFFSET + row for row in range(ROWS)])


def test_a_process_that_a_guest_ends_is_told_of_and_replaced(sandbox: Sandbox) -> None:
    first = sandbox.call(os.getpid)
    with pytest.raises(HostDied, match="exit code -6"):
        sandbox.call(os.abort)
    assert sandbox.call(os.getpid) != first


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_one_record_costs_itself_and_no_other(sandbox: Sandbox, records: Any, path: Path) -> None:
    batch = poisoned_batch(records)
    kind, words = ending(path)
    spared = [row for row in range(ROWS) if kind is None or row != POISONED]
    *results, last = sandbox.transform(guest_that(path), [batch, batch, records([b"a", b"b"])], **LIMITS)
    for result in results:
        assert list(dict.fromkeys(result.outputs.column("row").to_pylist())) == spared
        assert [failure.row for failure in result.failures] == ([] if kind is None else [POISONED])
        for failure in result.failures:
            assert batch.column("offset")[failure.row].as_py() == FIRST_OFFSET + POISONED
            assert type(failure.error) is kind
            assert re.search(words, str(failure.error))
            assert len(str(failure.error)) < 2000
            assert type(pickle.loads(pickle.dumps(failure.error))) is kind
    assert rows(last) == ([0, 1], [])


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_a_module_that_gets_to_no_record_is_refused_with_the_reason(sandbox: Sandbox, records: Any, path: Path) -> None:
    kind, words = ending(path)
    assert kind is not None
    with pytest.raises(kind, match=words):
        sandbox.transform(bytes(wasmtime.wat2wasm(path.read_text())), [records([b"a"])], **LIMITS)


def test_a_log_flood_is_capped_and_counted(sandbox: Sandbox, records: Any) -> None:
    flood = guest_that(ZOO / "records/log-flood.wat")
    (result,) = sandbox.transform(flood, [poisoned_batch(records)], **LIMITS)
    kept = sum(len(line.text) + 12 for line in result.logs)
    assert {line.row for line in result.logs} == {POISONED}
    assert LIMITS["log_bytes_per_batch"] - 112 < kept <= LIMITS["log_bytes_per_batch"]
    assert len(result.logs) + result.logs_dropped == 2000


@pytest.mark.parametrize("at", [0, 23, 39])
def test_a_record_too_big_for_the_guests_memory_is_the_one_that_fails(sandbox: Sandbox, records: Any, at: int) -> None:
    values = [b"x" * (3_000_000 if row == at else 10) for row in range(ROWS)]
    batch = records([b"k"] * ROWS, values)
    for result in sandbox.transform(guests.guest(), [batch, batch], memory_bytes=2**20):
        assert rows(result) == ([row for row in range(ROWS) if row != at], [at])
        assert type(result.failures[0].error) is errors.GuestOutOfMemory


@pytest.mark.parametrize("act", [guests.TRAP, guests.NEXT_BATCH * 2, guests.leave(1)], ids=["trap", "ask", "exit"])
def test_a_guest_that_fails_on_every_header_fails_every_record_once(sandbox: Sandbox, records: Any, act: str) -> None:
    (result,) = sandbox.transform(guests.guest(on_batch=act), [records([b"k"] * ROWS)])
    assert rows(result) == ([], list(range(ROWS)))


def test_a_header_that_is_wanted_beyond_the_memory_fails_the_start(sandbox: Sandbox, records: Any) -> None:
    for argument in range(10):
        pointers = " ".join(f"(i32.const {-1 if index == argument else 64})" for index in range(10))
        call = f"(drop (call $read_batch_header {pointers}))"
        with pytest.raises(errors.GuestTrap, match=r"before its first record: .*out of bounds memory access"):
            sandbox.transform(guests.guest(on_start=call), [records([b"a", b"b"])])


@pytest.mark.parametrize(
    "name", [name for names in FUNCTIONS.values() for name, kind in names.items() if kind[:1] > ":"]
)
def test_wild_arguments_of_a_host_function_cost_one_record(sandbox: Sandbox, records: Any, name: str) -> None:
    (kind,) = (names[name] for names in FUNCTIONS.values() if name in names)
    params, _, results = kind.partition(":")
    wild = " ".join(f"({'i32' if letter == 'i' else 'i64'}.const -8)" for letter in params)
    call = f"(call ${name} {wild})"
    act = f"(drop {call})" if results else call
    wasm = guests.guest(guests.WRITE + guests.when_key("p", act), abi=2)
    batch = poisoned_batch(records)
    for result in sandbox.transform(wasm, [batch, batch], **LIMITS):
        failed = [] if name in WITHOUT_POINTERS else [POISONED]
        assert rows(result) == ([row for row in range(ROWS) if row not in failed], failed)
        assert all(type(failure.error) is ENDS_BY.get(name, errors.GuestTrap) for failure in result.failures)


def test_a_recursion_ends_in_a_trap_where_threads_have_small_stacks(records: Any) -> None:
    with Sandbox() as sandbox:
        sandbox.call(threading.stack_size, 256 * 1024)
        (result,) = sandbox.transform(guest_that(ZOO / "records/recurse.wat"), [poisoned_batch(records)], **LIMITS)
    assert [failure.row for failure in result.failures] == [POISONED]


def test_names_that_a_module_chose_do_not_flood_a_message(sandbox: Sandbox, records: Any) -> None:
    text = "\\1b[31m" + "A" * 100_000
    wasm = guests.guest(guests.when_key("p", "(call $boom)"), section=f'(func $boom (@name "{text}") (unreachable))')
    (result,) = sandbox.transform(wasm, [records([b"p"])])
    reason = str(result.failures[0].error)
    assert "unreachable in \\u001b[31mAAA" in reason
    assert len(reason) < 300
