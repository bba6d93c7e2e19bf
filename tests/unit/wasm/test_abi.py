from __future__ import annotations

import pytest
import wasmtime

from wasmline.errors import InvalidModule, MissingExport, UnknownImport, UnsupportedAbi
from wasmline.testing import guests
from wasmline.wasm import check_abi
from wasmline.wasm.abi import FUNCTIONS
from wasmline.wasm.shim.wat import function_type

MARKER = '(import "redpanda_transform" "check_abi_version_1" (func))'
EXPORTS = '(memory (export "memory") 1) (func (export "_start"))'


def module(*fields: str) -> bytes:
    return bytes(wasmtime.wat2wasm(f"(module {' '.join(fields)})"))


@pytest.mark.parametrize("version", [1, 2])
def test_the_marker_a_module_imports_is_its_abi_version(version: int) -> None:
    assert check_abi(guests.guest(abi=version)) == version


@pytest.mark.parametrize("junk", [b"", b"junk", b"\0asm", b"\0asm\x01\0\0\0junk", b"(module)", b"\0asm\x0d\0\x01\0"])
def test_bytes_that_are_no_module_are_refused(junk: bytes) -> None:
    with pytest.raises(InvalidModule):
        check_abi(junk)


def test_a_module_without_a_marker_is_refused() -> None:
    with pytest.raises(UnsupportedAbi, match="check_abi_version_1"):
        check_abi(module(EXPORTS))


@pytest.mark.parametrize(
    "marker",
    [
        '(import "redpanda_transform" "check_abi_version_3" (func))',
        '(import "redpanda_transform" "check_abi_version_1" (func (param i32)))',
        '(import "redpanda_transform" "check_abi_version_1" (func (result i32)))',
    ],
)
def test_a_marker_of_another_abi_or_type_is_refused(marker: str) -> None:
    with pytest.raises(UnsupportedAbi, match="supported versions: 1 and 2"):
        check_abi(module(marker, EXPORTS))


def test_a_marker_of_an_unknown_registry_abi_is_refused() -> None:
    registry = '(import "redpanda_schema_registry" "check_abi_version_1" (func))'
    with pytest.raises(UnsupportedAbi, match="redpanda_schema_registry"):
        check_abi(module(MARKER, registry, EXPORTS))


@pytest.mark.parametrize(
    ("exports", "missing"),
    [
        ('(memory (export "memory") 1)', "_start"),
        ('(memory (export "memory") 1) (func (export "_start") (param i32))', "_start"),
        ('(memory (export "memory") 1) (global (export "_start") i32 (i32.const 0))', "_start"),
        ('(func (export "_start"))', "memory"),
        ('(func (export "_start")) (func (export "memory"))', "memory"),
    ],
)
def test_start_and_memory_must_be_exported_with_their_types(exports: str, missing: str) -> None:
    with pytest.raises(MissingExport) as error:
        check_abi(module(MARKER, exports))
    assert error.value.export == missing


@pytest.mark.parametrize("config", ['(memory (export "memory") i64 1)', '(memory (export "memory") 1 1 shared)'])
def test_memories_of_other_kinds_are_refused(config: str) -> None:
    with pytest.raises((InvalidModule, MissingExport)):
        check_abi(module(MARKER, config, '(func (export "_start"))'))


def test_every_unknown_import_is_named() -> None:
    imports = [
        '(import "env" "emscripten_resize_heap" (func (param i32) (result i32)))',
        '(import "redpanda_transform" "read_batch_metadata" (func (param i32 i32 i32) (result i32)))',
        '(import "wasi_snapshot_preview1" "fd_close" (func (param i64) (result i32)))',
        '(import "env" "table" (table 1 funcref))',
    ]
    with pytest.raises(UnknownImport) as error:
        check_abi(module(MARKER, *imports, EXPORTS))
    assert error.value.imports == (
        "env.emscripten_resize_heap",
        "env.table",
        "redpanda_transform.read_batch_metadata",
        "wasi_snapshot_preview1.fd_close",
    )


def test_a_module_may_import_every_function_the_host_provides_and_any_of_them_twice() -> None:
    imports = [
        f'(import "{owner}" "{name}" (func {function_type(kind)}))'
        for owner, names in FUNCTIONS.items()
        for name, kind in names.items()
    ]
    assert check_abi(module(*imports, *imports, EXPORTS)) == 2


def test_the_tables_behind_the_imports_cannot_be_imported() -> None:
    for owner in (*FUNCTIONS, "trampoline", "guest", "host"):
        table = f'(import "{owner}" "table" (table 1 funcref))'
        with pytest.raises(UnknownImport):
            check_abi(module(MARKER, table, EXPORTS))


def test_names_of_a_module_reach_messages_without_control_characters() -> None:
    with pytest.raises(UnknownImport) as caught:
        check_abi(module(MARKER, '(import "a\\1b]0;b\\07" "c\\nd" (func))', EXPORTS))
    assert str(caught.value).isprintable()
    with pytest.raises(UnsupportedAbi) as refused:
        check_abi(module('(import "redpanda_transform" "check_abi_version_9\\1b[2J" (func))', EXPORTS))
    assert str(refused.value).isprintable()
