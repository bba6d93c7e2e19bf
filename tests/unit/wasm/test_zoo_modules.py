"""Bytes that are no module, or hardly one: cut short, empty, very large."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import wasmtime

from wasmline.errors import InvalidModule, ModuleError, UnknownImport
from wasmline.testing import guests
from wasmline.testing.sandbox import Sandbox
from wasmline.wasm import check_abi

NAMES = re.compile(rb"\0[\x80-\xff]*[\0-\x7f]\x04name")
"""The head of the custom section that a module may end with; it is whole without."""


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox() as sandbox:
        yield sandbox


def test_every_beginning_of_a_module_is_refused(sandbox: Sandbox) -> None:
    whole = guests.guest()
    names = NAMES.search(whole)
    assert names is not None
    code = whole[: names.start()]
    assert sandbox.call(check_abi, code) == sandbox.call(check_abi, whole) == 1
    for size in range(len(whole)):
        if size != len(code):
            with pytest.raises(ModuleError):
                sandbox.call(check_abi, whole[:size])


@pytest.mark.parametrize(
    "wasm",
    [b"", b"\0", b"\0asm", b"\0asm\x01\0\0\0", b"\0asm\x0d\0\x01\0", b"(module)", b"\x7fELF" * 1000, b"\0asm" * 1000],
    ids=["empty", "a zero", "magic", "header", "component", "text", "elf", "magics"],
)
def test_what_is_no_module_is_refused(sandbox: Sandbox, wasm: bytes) -> None:
    with pytest.raises(ModuleError) as caught:
        sandbox.transform(wasm, [])
    assert type(caught.value) is InvalidModule or wasm == b"\0asm\x01\0\0\0"
    assert len(str(caught.value)) < 1000


def test_a_module_of_ten_megabytes_runs(sandbox: Sandbox, records: Any) -> None:
    wasm = guests.guest(section=f'(data "{"x" * 10_000_000}")')
    results = sandbox.transform(wasm, [records([b"a", b"b"])])
    assert [result.outputs.num_rows for result in results] == [2]


def test_a_module_of_a_hundred_thousand_functions_runs_and_starts_anew(sandbox: Sandbox, records: Any) -> None:
    wasm = guests.guest(guests.WRITE + guests.when_key("p", guests.TRAP), section="(func)" * 100_000)
    (result,) = sandbox.transform(wasm, [records([b"a", b"p", b"b"])])
    assert (result.outputs.column("row").to_pylist(), [failure.row for failure in result.failures]) == ([0, 2], [1])


def test_a_hundred_thousand_unknown_imports_are_refused_in_a_few_words(sandbox: Sandbox) -> None:
    imports = "".join(f'(import "nobody" "has{number}" (func))' for number in range(100_000))
    text = '(module (import "redpanda_transform" "check_abi_version_1" (func)) {} {} (func (export "_start")))'
    wasm = bytes(wasmtime.wat2wasm(text.format(imports, '(memory (export "memory") 1)')))
    with pytest.raises(UnknownImport, match=r"nobody\.has0, ") as caught:
        sandbox.call(check_abi, wasm)
    assert len(str(caught.value)) < 1000
