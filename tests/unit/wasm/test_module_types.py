"""The reader of declarations, beside the runtime's own answers where it has one."""

from __future__ import annotations

import pytest
import wasmtime

from wasmline.errors import InvalidModule
from wasmline.testing import guests
from wasmline.wasm.binary.module_types import FunctionType, GlobalType, Kind, MemoryType, TableType, declarations
from wasmline.wasm.binary.name_truncation import truncate_names
from wasmline.wasm.binary.reader import number, vector

MODULES = {
    "nothing": "",
    "a guest": guests.guest(abi=2, section="(table 3 7 funcref)"),
    "everything": """
      (import "a" "f" (func $f (param i32 i64 f32 f64 externref funcref) (result f64 i32)))
      (import "a" "t" (table $t 2 externref))
      (import "a" "m" (memory $m 200 60000))
      (import "a" "g" (global $g (mut f32)))
      (import "" "é" (func))
      (func $own (param i64))
      (table $u 128 20000 funcref)
      (memory $n 0)
      (global $h i64 (i64.const -9223372036854775808))
      (global $i (mut funcref) (ref.func $own))
      (export "é" (func $f)) (export "own" (func $own)) (export "t" (table $t)) (export "u" (table $u))
      (export "m" (memory $m)) (export "n" (memory $n)) (export "g" (global $g)) (export "h" (global $h))
      (export "i" (global $i)) (export "" (func $own))
      (elem (table $u) (i32.const 0) func $own $own) (data (memory $n) (i32.const 0) "")""",
    "names and custom sections": '(@custom "first" "\\00\\01") (func $n (export "n")) (@custom "last" "x")',
    "passive data": '(memory 1) (data "x") (func (memory.init 0 (i32.const 0) (i32.const 0) (i32.const 0)))',
}


def answer(kind: object) -> Kind:
    """Return a type as the runtime's bindings report it."""
    if isinstance(kind, wasmtime.FuncType):
        return FunctionType(tuple(map(called, kind.params)), tuple(map(called, kind.results)))
    if isinstance(kind, wasmtime.TableType):
        return TableType(called(kind.element), kind.limits.min, kind.limits.max)
    if isinstance(kind, wasmtime.MemoryType):
        return MemoryType(kind.limits.min, kind.limits.max, kind.is_shared, kind.is_64)
    assert isinstance(kind, wasmtime.GlobalType)
    return GlobalType(called(kind.content), kind.mutable)


def called(value: wasmtime.ValType) -> str:
    """Return the specification's name; the bindings call references to the host's things by another."""
    return str(value).replace("anyref", "externref")


@pytest.mark.parametrize("name", MODULES)
def test_the_reader_says_what_the_runtime_says(name: str) -> None:
    source = MODULES[name]
    wasm = source if isinstance(source, bytes) else bytes(wasmtime.wat2wasm(f"(module {source})"))
    module = wasmtime.Module(wasmtime.Engine(), wasm)
    found = declarations(wasm)
    assert [(item.module, item.name, known(item.type)) for item in found.imports] == [
        (item.module, item.name, answer(item.type)) for item in module.imports
    ]
    assert [(item.name, known(item.type)) for item in found.exports] == [
        (item.name, answer(item.type)) for item in module.exports
    ]


def known(kind: Kind) -> Kind:
    """Return a type without what the runtime does not tell: how a global begins."""
    return GlobalType(kind.holds, kind.mutable) if isinstance(kind, GlobalType) else kind


def test_what_is_not_exported_is_read_too() -> None:
    found = declarations(
        bytes(
            wasmtime.wat2wasm(f"(module {MODULES['everything']} (type (func (param v128))) (start $own2) (func $own2))")
        )
    )
    assert (found.functions, found.start_section, len(found.types)) == (2, True, 4)
    assert [str(table) for table in found.tables] == ["2 externref", "128 to 20,000 funcref"]
    assert [str(memory) for memory in found.memories] == ["200 to 60,000 pages", "0 pages"]
    assert [(str(item), item.constant) for item in found.globals] == [
        ("mut f32", True),
        ("i64", True),
        ("mut funcref", False),
    ]


@pytest.mark.parametrize(
    "fields",
    [f"(global i32 (i32.const 0) {'(i32.const 0) i32.add ' * 500})", f"(type (func {'(param i32)' * 900})) " * 1_300],
    ids=["a long constant", "many long types"],
)
def test_declarations_beyond_any_compilers_are_refused(fields: str) -> None:
    wasm = bytes(wasmtime.wat2wasm(f"(module {fields})"))
    with pytest.raises(InvalidModule, match=r"more than 1,000 instructions|types take .* bytes"):
        declarations(wasm)


def named(function: str) -> bytes:
    return vector(b"name") + b"\1" + vector(number(1) + number(0) + vector(function.encode()))


def test_names_are_cut_and_what_is_no_name_is_left_out() -> None:
    long, locals_ = named("e" * 1_023 + "é"), b"\2" + vector(b"\0")
    assert truncate_names([long + locals_, named("f")]) == [named("e" * 1_023), named("f")]
    assert truncate_names([long[:-1], named("f") + b"\1\x7f"]) == []
    assert truncate_names([named("f"), named("f" * 8 * 2**20)]) == []
