"""The message of a failure: what the guest said first, then what it did, and no class that is a guess."""

from __future__ import annotations

from typing import Any

import pytest

from wasmline.errors import GuestExit, GuestOutOfMemory, GuestTrap, TransformError
from wasmline.testing import guests
from wasmline.wasm.backtrace import is_rust
from wasmline.wasm.panic_message import panic_and_rest, tells_out_of_memory

MIB = 2**20
TAKE_34_MIB = guests.require(f"(memory.grow (i32.const {34 * 16}))", 3)
TAKE_ALL = "(loop $more (br_if $more (i32.ne (memory.grow (i32.const 1)) (i32.const -1))))"
TAKE_IN_STEPS = "(loop $more (br_if $more (i32.ne (memory.grow (i32.const 16)) (i32.const -1))))"

RUST = "\nthread 'main' (1) panicked at src/main.rs:16:13:\non purpose\nnote: run with `RUST_BACKTRACE=1` to see"
GO = "panic: on purpose [recovered]\n\tpanic: again\n\ngoroutine 1 [running]:\nmain.main()\n\tmain.go:21 +0x27"
AGAIN = "panic: on purpose [recovered] panic: again"
STACK = "goroutine 1 [running]: main.main() main.go:21 +0x27"
PANICS = {
    "Rust": (f"12\n{RUST}", "thread 'main' (1) panicked at src/main.rs:16:13: on purpose", "12"),
    "Rust before 1.73": ("thread 'main' panicked at 'no', m.rs:1:2", "thread 'main' panicked at 'no', m.rs:1:2", ""),
    "Go": (f"12\n{GO}", AGAIN, f"12 {STACK}"),
    "Go, caught before": (f"panic: caught\n\n{GO}", AGAIN, f"panic: caught {STACK}"),
    "TinyGo": ("panic: runtime error at 0x012f: nil map", "panic: runtime error at 0x012f: nil map", ""),
    "C": ("12\nAssertion failed: x (main.c: f: 7)\n", "Assertion failed: x (main.c: f: 7)", "12"),
    "torn": (f"{GO[:70]}\n[...]\n\tmain.go", AGAIN, "goroutine 1 [running]: ma [...] main.go"),
    "nothing": ("", "", ""),
}


@pytest.mark.parametrize(("stderr", "panic", "rest"), PANICS.values(), ids=PANICS.keys())
def test_the_panic_is_told_from_the_rest(stderr: str, panic: str, rest: str) -> None:
    assert panic_and_rest(stderr) == (panic, rest)


@pytest.mark.parametrize(
    "stderr",
    [
        "memory allocation of 1073741824 bytes failed",
        f"12\n{RUST.replace('on purpose', 'memory allocation of 16 bytes failed')}",
        "bad_alloc was thrown in -fno-exceptions mode",
        "libc++abi: terminating due to uncaught exception of type std::bad_alloc: std::bad_alloc",
        "runtime: out of memory: cannot allocate 4194304-byte block (66912256 in use)\nfatal error: out of memory\n\ng",
        "fatal error: runtime: cannot allocate memory",
        "panic: runtime error at 0x0000312a: out of memory",
        "error: OutOfMemory",
    ],
)
def test_a_runtime_says_that_it_has_no_memory(stderr: str) -> None:
    assert tells_out_of_memory(stderr)


@pytest.mark.parametrize(
    "stderr",
    [
        "order 7: out of memory cards",
        "panic: memory allocation of rooms failed",
        "this was no memory allocation of 7 bytes failed or not",
        "fatal error: all goroutines are asleep - deadlock!",
    ],
)
def test_words_about_memory_are_no_lack_of_it(stderr: str) -> None:
    assert not tells_out_of_memory(stderr)


def reason(start: Any, records: Any, act: str, section: str = "", **limits: int) -> TransformError:
    (failure,) = start(guests.guest(act, section=section), **limits).transform(records([b"a"])).failures
    error: TransformError = failure.error
    return error


@pytest.mark.parametrize("said", ["", "no such order"], ids=["silent", "with words"])
def test_an_exit_or_a_trap_with_half_of_the_memory_taken_is_itself(start: Any, records: Any, said: str) -> None:
    speak = guests.log(said) if said else ""
    begin = f"{said}; " if said else ""
    taken = "its memory had grown to 35848192 of memory_bytes=67108864"
    error = reason(start, records, TAKE_34_MIB + speak + guests.leave(3))
    assert isinstance(error, GuestExit)
    assert str(error) == f"{begin}the guest exited with status 3; a transform never exits; {taken}"
    error = reason(start, records, TAKE_34_MIB + speak + guests.TRAP)
    assert isinstance(error, GuestTrap)
    assert str(error) == f"{begin}the guest trapped: unreachable; {taken}"


def test_a_panic_with_all_of_the_memory_taken_is_itself(start: Any, records: Any) -> None:
    for end, kind in ((guests.TRAP, GuestTrap), (guests.leave(2), GuestExit)):
        error = reason(start, records, TAKE_ALL + guests.log("panic: no such order") + end, memory_bytes=MIB)
        assert type(error) is kind
        assert str(error).startswith("panic: no such order; the guest ")
        assert "its memory had grown to 1048576 of memory_bytes=1048576" in str(error)


@pytest.mark.parametrize("take", [TAKE_ALL, TAKE_IN_STEPS])
@pytest.mark.parametrize("end", [guests.TRAP, guests.leave(134)], ids=["trap", "exit"])
def test_a_silent_end_with_all_of_the_memory_taken_is_a_lack_of_it(
    start: Any, records: Any, take: str, end: str
) -> None:
    error = reason(start, records, take + end, memory_bytes=4 * MIB)
    assert isinstance(error, GuestOutOfMemory)
    assert error.limit_bytes == 4 * MIB


def test_what_a_runtime_says_of_memory_counts_however_little_was_taken(start: Any, records: Any) -> None:
    said = "memory allocation of 1073741824 bytes failed"
    error = reason(start, records, guests.log(f"{said}\n") + guests.TRAP)
    assert isinstance(error, GuestOutOfMemory)
    assert str(error).startswith(f"{said}; the guest ended when its memory had grown to 196608 of ")


def test_a_guest_that_reads_nothing_and_exits_with_words_is_itself(start: Any, records: Any) -> None:
    wasm = guests.guest(on_batch=guests.log("no config") + guests.leave(7), pages="500")
    (failure,) = start(wasm).transform(records([b"k"], [b"x" * 31 * MIB])).failures
    assert isinstance(failure.error, GuestExit)


@pytest.mark.parametrize("end", [guests.leave(7), guests.TRAP], ids=["exit", "trap"])
def test_a_guest_that_begins_without_memory_gives_the_same_reason(start: Any, records: Any, end: str) -> None:
    reasons = []
    for pages, grow in (("4", ""), ("0", "(drop (memory.grow (i32.const 4)))")):
        wasm = guests.guest(guests.log("no config") + end, pages=pages, on_start=grow)
        (failure,) = start(wasm).transform(records([b"a"])).failures
        reasons.append((type(failure.error), str(failure.error)))
    assert reasons[0] == reasons[1]
    assert "no config" in reasons[0][1]


def test_what_a_guest_printed_at_its_start_is_in_the_reason(start: Any) -> None:
    act = guests.log("reading the config\n", 1) + guests.log("it is\n") + guests.log("no config\n") + guests.leave(71)
    with pytest.raises(GuestExit) as caught:
        start(guests.guest(on_start=act))
    assert str(caught.value) == (
        "under-test failed before its first record: no config; the guest exited with status 71; a transform never exits"
        "; it wrote to stdout: reading the config; it wrote to stderr: it is"
    )


def test_what_is_kept_of_a_start_is_bounded(start: Any) -> None:
    act = guests.log("0123456789" * 30, 1) * 20 + guests.log("the end", 1) + guests.TRAP
    with pytest.raises(GuestTrap, match=r"stdout: 0123.* \[\.\.\.\] .*the end$") as caught:
        start(guests.guest(on_start=act))
    assert len(str(caught.value)) < 1200


def test_a_reason_obeys_nothing_and_is_one_line(start: Any, records: Any) -> None:
    error = reason(start, records, guests.log("\x1b]0;owned\x07\u202e\nlast\x9b2J") + guests.TRAP)
    assert str(error) == (
        "last\\u009b2J; the guest trapped: unreachable; it wrote to stderr: \\u001b]0;owned\\u0007\\u202e"
    )


LEGACY = "_ZN4shop13Cart$LT$T$GT$3pay17h7c95c692381d7bb3E"
V0 = "_RNvNtCsbDqzXfLQacH_4shop4cart3pay"
PANICKED = "_RNvNtCset5xJoy1xWQ_3std7process5abort"


def nested(depth: int) -> str:
    """Return a mangled name of C++ whose demangled form doubles with each ten bytes."""
    digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    return "_Z1fSt4pairIiiE" + "".join(f"S_IS{digits[n]}_S{digits[n]}_E" for n in range(depth))


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        ([LEGACY], "shop::Cart<T>::pay"),
        ([V0], "shop::cart::pay"),
        ([PANICKED, V0, LEGACY], "shop::cart::pay < shop::Cart<T>::pay"),
        ([PANICKED], "std::process::abort"),
        (["f", V0], "f < shop::cart::pay"),
        (["shop::Cart<int>::pay(int)"], "shop::Cart<int>::pay(int)"),
        ([V0, nested(20)], f"{V0} < {nested(20)[:100]}"),
        ([f"{V0[:-3]}B{'B' * 16}"], f"{V0[:-3]}B{'B' * 16}"),
        (["x" * 5000, V0], f"{'x' * 100} < {V0}"),
        ([V0, f"{LEGACY}\\0a    9:   0x1 - x"], f"{V0} < {LEGACY}\\u000a    9:   0x1 - x"),
    ],
    ids=[
        "legacy",
        "v0",
        "panic",
        "panic alone",
        "C",
        "C++",
        "C++ without end",
        "many back references",
        "long",
        "line break",
    ],
)
def test_names_of_rust_are_readable_and_no_name_costs_the_host(
    start: Any, records: Any, names: list[str], shown: str
) -> None:
    acts = ["(unreachable)", *(f"(call $f{number})" for number in range(len(names) - 1))]  # innermost first
    section = "".join(
        f'(func $f{number} (@name "{name}") {act})' for number, (name, act) in enumerate(zip(names, acts, strict=True))
    )
    error = reason(start, records, f"(call $f{len(names) - 1})", section=section)
    assert str(error) == f"the guest trapped: unreachable in {shown}"


@pytest.mark.parametrize(
    "name",
    ["", "_ZN", "_ZN3fooE", "_ZN1fI1aE17h7c95c692381d7bb3E", "_ZN9917h7c95c692381d7bb3E", "_ZN01a17h7c95c692381d7bb3E"],
)
def test_a_name_that_only_looks_like_one_of_rust_is_none(name: str) -> None:
    assert not is_rust(name)
