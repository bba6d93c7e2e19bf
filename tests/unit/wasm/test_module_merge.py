"""Guests whose form is unusual where the shim is joined to them."""

from __future__ import annotations

from typing import Any

import pytest
import wasmtime

from wasmline.errors import InvalidModule
from wasmline.testing import guests
from wasmline.wasm.binary.module_types import declarations
from wasmline.wasm.binary.reader import CODE, Reader, number, sections
from wasmline.wasm.compilation import module_merge as joining
from wasmline.wasm.compilation.module_merge import link_shim
from wasmline.wasm.shim.module import DIRECT

WRITE_TYPE = "(type $write (func (param i32 i32) (result i32)))"
PAYLOAD = f"(i32.const {guests.PAYLOAD}) (local.get $size)"


def calls(wasm: bytes) -> set[int]:
    """Return the numbers of the functions that a module's code calls, if its code has no operand like a call."""
    reader = Reader(sections(wasm)[CODE])
    bodies = b"".join(reader.vector() for _ in range(reader.number()))
    return {bodies[at + 1] for at in range(len(bodies) - 1) if bodies[at] == 0x10}


def test_the_calls_of_every_record_are_direct() -> None:
    wasm = guests.guest(guests.WRITE + guests.write_to(b""), abi=2)
    imported = {item.name: index for index, item in enumerate(declarations(wasm).imports)}
    assert {imported[name] for name in DIRECT} <= calls(wasm)
    assert not {imported[name] for name in DIRECT} & calls(link_shim(wasm))


@pytest.mark.parametrize(
    ("section", "statement"),
    [
        pytest.param(
            f"{WRITE_TYPE} (table funcref (elem $write_record))",
            f"(drop (call_indirect (type $write) {PAYLOAD} (i32.const 0)))",
            id="by reference",
        ),
        pytest.param(
            "(func $tail (param i32 i32) (result i32) (return_call $write_record (local.get 0) (local.get 1)))",
            f"(drop (call $tail {PAYLOAD}))",
            id="as a tail call",
        ),
        pytest.param('(export "write" (func $write_record))', guests.WRITE, id="what it exports"),
        pytest.param(
            '(global (export "shim.memory") i32 (i32.const 0)) (func (export "guest.memory")) (export "" (memory 0))',
            guests.WRITE,
            id="beside exports with the host's names",
        ),
        pytest.param(
            '(table 1 funcref) (table 1 externref) (global (mut i64) (i64.const 1)) (data $text "abc")',
            f"(memory.init $text (i32.const 0) (i32.const 0) (i32.const 3)) {guests.WRITE}",
            id="beside tables, globals and data",
        ),
    ],
)
def test_a_guest_writes(start: Any, records: Any, section: str, statement: str) -> None:
    result = start(guests.guest(statement, section=section)).transform(records([b"a", b"b"]))
    assert (result.outputs.column("key").to_pylist(), result.failures) == ([b"a", b"b"], ())


def test_a_start_section_that_reads_or_writes_a_record_is_told_that_there_is_no_batch(start: Any, records: Any) -> None:
    write = guests.require("(call $write_record (i32.const 0) (i32.const 0))", -1)
    read = guests.require(guests.READ, -1)
    section = f"(func $early (local $room i32) {write} {read}) (start $early)"
    result = start(guests.guest(section=section)).transform(records([b"a"]))
    assert result.outputs.num_rows == 1


def test_a_trap_in_the_shim_names_its_function_and_the_guests(start: Any, records: Any) -> None:
    deep = "(func $deep (drop (call $write_record (i32.const -1) (i32.const 1))))"
    (failure,) = start(guests.guest("(call $deep)", section=deep)).transform(records([b"a"])).failures
    assert "out of bounds memory access in write_record < deep" in str(failure.error)


NAMES_THE_SHIMS = {
    "its memory": "(drop (i32.load 1 (i32.const 0)))",
    "its table": "(call_indirect 1 (i32.const 0))",
    "its size": "(drop (memory.size 1))",
}


@pytest.mark.parametrize("what", NAMES_THE_SHIMS)
def test_a_guest_that_names_what_is_the_shims_once_it_is_rewritten_is_refused(
    monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """The reader of code is made to go wrong as a defect in it would: what it gives is not trusted."""
    text = f"(module (memory 1) (memory 1) (table 1 funcref) (table 1 funcref) (func {NAMES_THE_SHIMS[what]}))"
    code = Reader(sections(bytes(wasmtime.wat2wasm(text)))[CODE])
    code.number()
    body = code.vector()
    wasm = guests.guest(section="(table 1 funcref)")
    monkeypatch.setattr(joining, "rewrite_calls", lambda original, _: body)
    with pytest.raises(InvalidModule, match=r"unknown memory 1|unknown table 1"):
        link_shim(wasm)


@pytest.mark.parametrize("beyond", range(5))
def test_a_guest_that_calls_a_private_function_of_the_shim_once_it_is_rewritten_is_refused(
    monkeypatch: pytest.MonkeyPatch, beyond: int
) -> None:
    wasm = guests.guest()
    guest = declarations(wasm)
    first = len(guest.imports) + guest.functions + len(DIRECT)
    monkeypatch.setattr(joining, "rewrite_calls", lambda body, _: b"\x00\x10" + number(first + beyond) + b"\x0b")
    with pytest.raises(InvalidModule, match="unknown function"):
        link_shim(wasm)
