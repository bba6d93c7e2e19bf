from __future__ import annotations

import json
from typing import Any

import pytest
import wasmtime

from wasmline.documents import encode
from wasmline.errors import InvalidModule, WasmlineError
from wasmline.testing import guests
from wasmline.wasm import Inspection, ResourceLimits, inspect
from wasmline.wasm.abi import FUNCTIONS
from wasmline.wasm.shim.wat import function_type

MARKER = '(import "redpanda_transform" "check_abi_version_1" (func))'
START = '(func (export "_start"))'
MEMORY = '(memory (export "memory") 2)'
MANY = 2**20 // 48


def look(*fields: str) -> Inspection:
    return inspect(bytes(wasmtime.wat2wasm(f"(module {' '.join(fields)})")))


def imported(*modules: str) -> str:
    return " ".join(
        f'(import "{module}" "{name}" (func {function_type(kind)}))'
        for module in modules
        for name, kind in FUNCTIONS[module].items()
    )


def test_a_module_is_described() -> None:
    found = look(
        MARKER,
        '(import "env" "table" (table 1 9 externref))',
        '(import "env" "limit" (global (mut i64)))',
        '(memory (export "memory") 3 17)',
        START,
        '(func $run (export "run") (param i32 f64 v128) (result f32 externref) (unreachable))',
        '(global (export "answer") i32 (i32.const 42))',
        "(start 1)",
    )
    assert (found.abi, found.functions, found.start_section) == (1, 2, True)
    assert found.memory is not None
    assert (found.memory.initial_pages, found.memory.initial_bytes) == (3, 196_608)
    assert (found.memory.maximum_pages, found.memory.maximum_bytes) == (17, 1_114_112)
    assert [(item.module, item.name, item.kind, item.type) for item in found.imports] == [
        ("redpanda_transform", "check_abi_version_1", "function", "() -> ()"),
        ("env", "table", "table", "1 to 9 externref"),
        ("env", "limit", "global", "mut i64"),
    ]
    assert [(item.module, item.name, item.kind, item.type) for item in found.exports] == [
        (None, "memory", "memory", "3 to 17 pages"),
        (None, "_start", "function", "() -> ()"),
        (None, "run", "function", "(i32, f64, v128) -> (f32, externref)"),
        (None, "answer", "global", "i32"),
    ]


def test_a_transform_is_accepted_by_both_hosts() -> None:
    found = look(
        imported("redpanda_transform", "redpanda_schema_registry"), imported("redpanda_transform"), MEMORY, START
    )
    assert (found.abi, found.wasmline.reasons, found.redpanda.reasons) == (2, (), ())
    assert found.wasmline.accepted
    assert found.redpanda.accepted
    assert found.memory is not None
    assert found.memory.maximum_pages is None


def test_an_inspection_is_a_document() -> None:
    document = json.loads(encode(look(MARKER, MEMORY, START)))
    assert document["memory"]["initial_pages"] == 2
    assert document["redpanda"] == {"accepted": True, "reasons": []}


def test_a_module_that_is_no_transform_is_described_all_the_same() -> None:
    found = look("(func)")
    assert (found.abi, found.memory, found.imports, found.exports) == (None, None, (), ())
    assert not found.wasmline.accepted
    assert len(found.redpanda.reasons) == 3


@pytest.mark.parametrize("junk", [b"", b"\0asm", b"junk", b"(module)", guests.guest()[:-1], b"\0asm\x0d\0\x01\0"])
def test_what_is_no_module_is_refused(junk: bytes) -> None:
    with pytest.raises(InvalidModule, match="not a WebAssembly module"):
        inspect(junk)


def test_nothing_is_run() -> None:
    assert look(MARKER, MEMORY, START, "(func $stop (loop (br 0)))", "(start $stop)").start_section


REFUSED = {
    "no ABI": ((MEMORY, START), "at deploy: it imports neither"),
    "a marker of another type": (
        ('(import "redpanda_transform" "check_abi_version_1" (func (param i32)))', MEMORY, START),
        "at deploy: it imports neither",
    ),
    "another ABI": (
        (MARKER, '(import "redpanda_transform" "check_abi_version_3" (func))', MEMORY, START),
        "at start: brokers do not provide redpanda_transform.check_abi_version_3",
    ),
    "another registry ABI": (
        (MARKER, '(import "redpanda_schema_registry" "check_abi_version_1" (func))', MEMORY, START),
        "at deploy: it imports redpanda_schema_registry.check_abi_version_1",
    ),
    "no _start": ((MARKER, MEMORY), "at deploy: it exports no function _start"),
    "a _start of another type": (
        (MARKER, MEMORY, '(func (export "_start") (result i32) (i32.const 0))'),
        "at deploy: it exports no function _start",
    ),
    "no memory": ((MARKER, START), "at deploy: it exports no memory"),
    "a memory of another name": (
        (MARKER, START, '(memory (export "m") (export "memory") 1)'),
        "at start: the first memory it exports is m",
    ),
    "a 64-bit memory": (
        (MARKER, START, '(memory (export "memory") i64 1)'),
        "at start: its engine lacks what the module needs: memory64",
    ),
    "a shared memory": (
        (MARKER, START, '(memory (export "memory") 1 1 shared)'),
        "at start: its engine lacks what the module needs: threads",
    ),
    "two memories": ((MARKER, START, MEMORY, "(memory 1)"), "at start: it has 2 memories"),
    "much memory": (
        (MARKER, START, '(memory (export "memory") 33)'),
        "at start: its memory begins with 2,162,688 bytes, data_transforms_per_function_memory_limit is 2,097,152",
    ),
    "a maximum": ((MARKER, START, '(memory (export "memory") 1 32)'), "at start: its memory declares a maximum, 32"),
    "a large table": ((MARKER, START, MEMORY, "(table 16385 funcref)"), "at start: a table begins with 16,385"),
    "two tables": ((MARKER, START, MEMORY, "(table 1 funcref) (table 1 funcref)"), "at start: it has 2 tables"),
    "references to the host's things": (
        (MARKER, START, MEMORY, "(table 1 externref)"),
        "at start: its engine lacks what the module needs: gc types",
    ),
    "an unregistered function": (
        (MARKER, '(import "wasi_snapshot_preview1" "proc_raise" (func (param i32) (result i32)))', MEMORY, START),
        "at start: brokers do not provide wasi_snapshot_preview1.proc_raise",
    ),
    "another unregistered function": (
        (imported("redpanda_transform", "wasi_snapshot_preview1"), MEMORY, START),
        "at start: brokers do not provide wasi_snapshot_preview1.fd_fdstat_set_rights, wasi_snapshot_preview1.proc_r",
    ),
    "an unknown module": (
        (MARKER, '(import "env" "now" (func (result i64)))', MEMORY, START),
        "at start: brokers do not provide env.now",
    ),
    "a function of another type": (
        (MARKER, '(import "wasi_snapshot_preview1" "fd_close" (func (param i64) (result i32)))', MEMORY, START),
        "at start: brokers do not provide wasi_snapshot_preview1.fd_close",
    ),
    "a vector in a type": (
        (MARKER, MEMORY, START, "(func (param v128))"),
        "at deploy: a function takes or returns a v",
    ),
    "a vector in a global": (
        (MARKER, MEMORY, START, "(global v128 (v128.const i64x2 1 2))"),
        "at deploy: global 0 is a v128",
    ),
    "a computed global": (
        (MARKER, MEMORY, START, "(global i32 (i32.const 7)) (global i32 (i32.add (i32.const 1) (i32.const 2)))"),
        "at deploy: global 1 is not initialized with a single constant",
    ),
    "a global function": (
        (MARKER, MEMORY, "(func $f) (elem declare func $f)", START, "(global funcref (ref.func $f))"),
        "at deploy: global 0 is not initialized with a single constant",
    ),
    "a long name": ((MARKER, MEMORY, START, f'(func (export "{"n" * 513}"))'), "at deploy: a name of 513 bytes"),
    "many parameters": (
        (MARKER, MEMORY, START, f"(func (param {'i32 ' * 129}))"),
        "at deploy: a function has 129 param",
    ),
    "many results": (
        (MARKER, MEMORY, START, f"(func (result {'i32 ' * 65}) (unreachable))"),
        "at deploy: a function has 65 results",
    ),
    "many functions": ((MARKER, MEMORY, START, "(func)" * MANY), f"at deploy: {MANY + 1:,} functions"),
    "a large module": (
        (MARKER, MEMORY, START, f'(data "{"x" * 10 * 2**20}")'),
        "are more than data_transforms_binary_max_size, 10,485,760",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_broker_would_refuse(case: str) -> None:
    fields, reason = REFUSED[case]
    found = look(*fields).redpanda
    assert not found.accepted
    assert [each for each in found.reasons if reason in each], found.reasons


ACCEPTED = {
    "a start section": (MARKER, MEMORY, START, "(func $set) (start $set)"),
    "memory up to the limit": (MARKER, '(memory (export "memory") 32)', START),
    "vectors inside": (MARKER, MEMORY, START, "(func (drop (v128.const i64x2 1 2)))"),
    "globals of every kind": (
        MARKER,
        MEMORY,
        START,
        "(global i32 (i32.const -2147483648)) (global (mut i64) (i64.const 0x7fffffffffffffff))",
        "(global f32 (f32.const 11)) (global f64 (f64.const 11)) (global funcref (ref.null func))",
    ),
    "more exports": (MARKER, MEMORY, START, '(func (export "__main_void") (result i32) (i32.const 0))'),
    "imports declared twice": (
        imported("redpanda_transform"),
        '(import "wasi_snapshot_preview1" "fd_write" (func (param i32 i32 i32 i32) (result i32)))' * 2,
        MEMORY,
        START,
    ),
    "a table of functions": (MARKER, MEMORY, START, "(table 16384 funcref) (elem (i32.const 0) 0)"),
    "a name of 512 bytes": (MARKER, MEMORY, START, f'(func (export "{"n" * 512}"))'),
}


@pytest.mark.parametrize("case", ACCEPTED)
def test_a_broker_would_accept(case: str) -> None:
    assert look(*ACCEPTED[case]).redpanda.reasons == ()


@pytest.mark.parametrize(
    ("fields", "limits", "reason"),
    [
        ((MEMORY, START), {}, "check_abi_version_1"),
        ((MARKER, MEMORY, START), {"memory_bytes": 65_536}, "its initial memory has 131,072 bytes"),
        ((MARKER, MEMORY, START, "(memory 1)"), {}, "it has 2 memories"),
        ((MARKER, START, '(memory (export "memory") i64 1)'), {}, "memory64"),
        ((MARKER, MEMORY, START, "(table 1048577 funcref)"), {}, "1,048,577 initial elements"),
        ((MARKER, MEMORY, START, "(table 1 funcref)" * 8), {}, "it has 8 tables"),
        ((MARKER, MEMORY, START, '(func (export "f") (param v128))'), {}, "v128"),
    ],
)
def test_this_host_says_why_it_refuses_and_does(
    start: Any, fields: tuple[str, ...], limits: dict[str, int], reason: str
) -> None:
    wasm = bytes(wasmtime.wat2wasm(f"(module {' '.join(fields)})"))
    (given,) = inspect(wasm, ResourceLimits(**limits)).wasmline.reasons
    assert reason in given
    with pytest.raises(WasmlineError):
        start(wasm, **limits)


def test_what_this_host_accepts_starts(start: Any) -> None:
    wasm = guests.guest(section="(table 1 funcref)" * 7)
    assert inspect(wasm).wasmline.accepted
    start(wasm)
