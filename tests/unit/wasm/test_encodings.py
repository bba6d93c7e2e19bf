"""Encodings that the runtime takes and compilers do not emit: each is read right, or the module is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import wasmtime

from wasmline.errors import InvalidModule
from wasmline.testing import guests
from wasmline.wasm import check_abi, inspect
from wasmline.wasm.binary.call_rewriting import rewrite_calls
from wasmline.wasm.binary.module_types import declarations
from wasmline.wasm.binary.reader import (
    CODE,
    EXPORT,
    GLOBAL,
    IMPORT,
    MAX_SECTIONS,
    MEMORY,
    PREAMBLE_BYTES,
    TABLE,
    TYPE,
    Reader,
    vector,
)
from wasmline.wasm.binary.reader import number as leb
from wasmline.wasm.engine import new_engine

Change = Callable[[bytes], bytes]

LONG_FUNCREF = b"\x63\x70"
MODULE = bytes(
    wasmtime.wat2wasm("""(module
      (type (func)) (type (func (param funcref)))
      (import "redpanda_transform" "check_abi_version_2" (func))
      (memory (export "memory") 1) (table 1 funcref) (global funcref (ref.null func)) (func (export "_start")))""")
)


def changed(wasm: bytes, changes: dict[int, Change]) -> bytes:
    """Return a module with other content in some of its sections."""
    reader, written = Reader(wasm, PREAMBLE_BYTES), [wasm[:PREAMBLE_BYTES]]
    while reader.more:
        kind, content = reader.byte(), reader.vector()
        written.append(bytes([kind]) + vector(changes.get(kind, bytes)(content)))
    return b"".join(written)


def replaced(before: bytes, after: bytes) -> Change:
    return lambda content: content.replace(before, after, 1)


def compact(form: bytes, items: bytes) -> Change:
    """Return an import section of one group: imports of one module, by the proposal for compact imports."""
    return lambda _: b"\x01" + vector(b"redpanda_transform") + vector(b"") + form + items


MARKER = vector(b"check_abi_version_2")
REFUSED = {
    "a long type of a parameter": {TYPE: replaced(b"\x60\x01\x70", b"\x60\x01" + LONG_FUNCREF)},
    "a long type of a table": {TABLE: replaced(b"\x01\x70", b"\x01" + LONG_FUNCREF)},
    "a long type of a global": {GLOBAL: replaced(b"\x01\x70", b"\x01" + LONG_FUNCREF)},
    "a final subtype": {TYPE: replaced(b"\x60\x00\x00", b"\x4f\x00\x60\x00\x00")},
    "compact imports, each with a type": {IMPORT: compact(b"\x7f", b"\x01" + MARKER + b"\x00\x00")},
    "compact imports of one type": {IMPORT: compact(b"\x7e", b"\x00\x00\x01" + MARKER)},
}


@pytest.mark.parametrize("name", REFUSED)
def test_an_encoding_that_is_not_read_is_refused(name: str) -> None:
    wasm = changed(MODULE, REFUSED[name])
    wasmtime.Module.validate(new_engine(), wasm)
    for look in (check_abi, inspect):
        with pytest.raises(InvalidModule, match="core specification"):
            look(wasm)


@pytest.mark.parametrize(
    ("section", "content"),
    [
        pytest.param(EXPORT, b"\x01" + vector(b"e") + b"\x04\x00", id="an export of a tag"),
        pytest.param(EXPORT, b"\x01" + vector(b"e") + b"\x00\x7f", id="an export that is not there"),
        pytest.param(EXPORT, b"\x01" + vector(b"\xff") + b"\x00\x00", id="a name that is not UTF-8"),
        pytest.param(IMPORT, b"\x01" + vector(b"") * 2 + b"\x04\x00\x00", id="an import of a tag"),
        pytest.param(IMPORT, b"\x01" + vector(b"") * 2 + b"\x00\x7f", id="an import of no type"),
        pytest.param(TABLE, b"\x01\x70\x08\x01", id="a table of unknown limits"),
        pytest.param(TABLE, b"\x01\x7f\x00\x01", id="a table of numbers"),
        pytest.param(TABLE, b"\x01\x70\x00" + b"\x80" * 10 + b"\x01", id="a number of eleven bytes"),
        pytest.param(TABLE, b"\x02\x70\x00\x01", id="a table too few"),
        pytest.param(MEMORY, b"\x01\x00\x84\x80\x80\x80\x80\x80\x00", id="a limit of seven bytes"),
        pytest.param(GLOBAL, b"\x01\x7f\x02\x41\x00\x0b", id="a global neither constant nor mutable"),
        pytest.param(GLOBAL, b"\x01\x7f\x00\x45\x0b", id="a global that is computed"),
        pytest.param(GLOBAL, b"\x01\x7b\x00\xfd\x0d" + bytes(16) + b"\x0b", id="a global of a shuffled vector"),
    ],
)
def test_what_cannot_be_read_is_an_invalid_module(section: int, content: bytes) -> None:
    with pytest.raises(InvalidModule):
        declarations(changed(MODULE, {section: lambda _: content}))


@pytest.mark.parametrize("section", [b"\x0d\x01\x00", b"\x01\x01\x00", b"\x01\x7f"], ids=["tags", "again", "cut short"])
def test_a_section_that_is_unknown_or_there_twice_or_cut_short_is_refused(section: bytes) -> None:
    with pytest.raises(InvalidModule):
        declarations(MODULE + section)


def test_a_flood_of_sections_is_refused() -> None:
    with pytest.raises(InvalidModule, match="sections"):
        check_abi(MODULE + b"\x00\x01\x00" * MAX_SECTIONS)


CALLS = b"\x10\x00" * 8
"""The constant of a vector, like eight calls of function 0."""


@pytest.mark.parametrize(
    "before",
    [
        pytest.param(b"\x02" + LONG_FUNCREF + b"\xd0\x70\x0b\x1a", id="a block of a long type"),
        pytest.param(b"\xd0\x70\xd0\x70\x41\x00\x1c\x01" + LONG_FUNCREF + b"\x1a", id="a choice of a long type"),
        pytest.param(b"\x02\x80\x80\x80\x80\x00\x0b", id="a block of a type by a long number"),
        pytest.param(b"\xfd\x8c\x80\x00" + CALLS + b"\x1a", id="an instruction by a long number"),
        pytest.param(b"\xfd\x0c" + CALLS + b"\x1a", id="a vector like eight calls"),
        pytest.param(b"\x42\x90\x80\x80\x80\x80\x80\x80\x80\x10\x1a", id="a number of nine bytes"),
    ],
)
@pytest.mark.parametrize("types", [b"\x7f", LONG_FUNCREF], ids=["short", "long"])
@pytest.mark.parametrize("groups", [0, 1, 3])
def test_calls_are_told_from_operands_in_any_encoding(before: bytes, types: bytes, groups: int) -> None:
    locals_ = leb(groups) + (b"\x43" + types) * groups
    body, redirected = (locals_ + before + call + b"\x0b" for call in (b"\x10\x00", b"\x10" + leb(300)))
    engine = new_engine()
    wasmtime.Module.validate(engine, changed(MODULE, {CODE: lambda _: b"\x01" + vector(body)}))
    assert rewrite_calls(body, {0: 300}) in (redirected, body)
    assert rewrite_calls(body, {0: 300}) == redirected or before.startswith(b"\xfd\x8c")


SHIFTED = b"\x03\x01\x63\x70\x01\x63\x70\x43\x63\x70"
"""Locals in three groups of long types: read as short ones they end two bytes too early, in the middle of a number."""


def test_a_guest_with_locals_of_long_types_runs(start: Any, records: Any) -> None:
    """Its vectors look like calls. With more than 128 functions, redirecting one would make the constant longer."""
    section = "(func $odd (result i32) (drop (v128.const i64x2 0 0)) (i32.const 7))" + "(func)" * 130
    wasm = guests.guest(guests.require("(call $odd)", 7) + guests.WRITE + guests.write_to(b""), abi=2, section=section)
    odd = b"\x00\xfd\x0c" + bytes(16) + b"\x1a\x41\x07\x0b"
    first = (
        bytes([0x10, [item.name for item in declarations(wasm).imports].index("read_next_record")]) * 5
        + b"\x01\x1a\x01\x01\x43\x00"
    )
    second = b"\x1a\x41\x00\x28\x42\x01\x00\x1a".ljust(16, b"\x01")
    vectors = b"".join(b"\xfd\x0c" + constant + b"\x1a" for constant in (first, second))
    wasm = changed(wasm, {CODE: replaced(vector(odd), vector(SHIFTED + vectors + b"\x41\x07\x0b"))})
    result = start(wasm).transform(records([b"a", b"b"]))
    assert (result.outputs.column("key").to_pylist(), result.failures) == ([b"a", b"a", b"b", b"b"], ())
