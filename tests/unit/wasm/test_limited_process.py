"""Modules whose validation or compilation takes long, and what the process of its own may import."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from wasmline.errors import InvalidModule, WasmlineError
from wasmline.testing import guests
from wasmline.wasm import TransformRuntime, check_abi, inspect
from wasmline.wasm.binary.reader import ELEMENT, PREAMBLE_BYTES, sections, vector
from wasmline.wasm.binary.reader import number as leb
from wasmline.wasm.compilation import compiler, limited_process, wasm_validation
from wasmline.wasm.compilation.limited_process import call_limited
from wasmline.wasm.compilation.wasm_validation import MAX_ARITY, may_take_long

PROVIDER = Path(limited_process.__file__).parents[3]
TWO_RESULTS = guests.guest(section="(type (func (result i32 i32)))")
"""Compiled in a process of its own, as its blocks may have many results."""


def wide(targets: int) -> bytes:
    """Return a module whose validation takes ``targets`` times 1,000 steps, one for each result of a block."""
    types = leb(2) + b"\x60\x00\x00" + b"\x60\x00" + vector(b"\x7f" * MAX_ARITY)
    table = b"\x02\x01\x00\x41\x00\x0e" + leb(targets) + bytes(targets + 1) + b"\x0b" + b"\x1a" * MAX_ARITY + b"\x0b"
    code = leb(1) + vector(b"\x00" + table)
    parts = ((1, types), (3, b"\x01\x00"), (10, code))
    return b"\0asm\x01\0\0\0" + b"".join(bytes([kind]) + vector(content) for kind, content in parts)


def test_what_takes_long_to_validate_is_told_from_its_types() -> None:
    assert may_take_long(wide(100_000))
    assert not may_take_long(wide(1_000))
    assert not may_take_long(guests.guest(section="(func)" * 100_000))


@pytest.mark.parametrize("wasm", [b"\0asm\x01\0\0\0" + b"\x01\xff\xff\xff\x7f" * 20_000, bytes(100_000)])
def test_what_cannot_be_read_may_take_long(wasm: bytes) -> None:
    assert may_take_long(wasm)


@pytest.mark.parametrize("look", [check_abi, inspect, TransformRuntime().compile])
def test_a_module_that_takes_too_long_to_validate_is_refused(monkeypatch: pytest.MonkeyPatch, look: object) -> None:
    monkeypatch.setattr(wasm_validation, "VALIDATE_CPU_S", 1)
    assert callable(look)
    with pytest.raises(InvalidModule, match="more than 1 s of CPU time"):
        look(wide(3_000_000))


def test_a_module_that_takes_long_and_not_too_long_is_looked_at() -> None:
    assert inspect(wide(50_000)).functions == 1


def test_an_invalid_module_that_may_take_long_is_refused_for_what_it_is() -> None:
    wasm = wide(50_000)
    with pytest.raises(InvalidModule, match=r"not a WebAssembly module this host can run: .*offset"):
        check_abi(wasm[:-2] + b"\x6a\x0b")


def test_a_module_beyond_the_size_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    wasm = guests.guest()
    monkeypatch.setattr(wasm_validation, "MAX_MODULE_BYTES", len(wasm))
    assert check_abi(wasm) == 1
    with pytest.raises(InvalidModule, match="strip it"):
        check_abi(wasm + b"\x00\x01\x00")


IMPORTED = ("resource", "json", "wasmtime", "wasmline", "numpy", "sitecustomize", "encodings")


@pytest.mark.parametrize("python_path", [None, "", ".", os.pathsep, f".{os.pathsep}folder"])
def test_nothing_of_the_current_folder_is_imported(tmp_path: Path, python_path: str | None) -> None:
    for name in IMPORTED:
        (tmp_path / f"{name}.py").write_text(f'open({str(tmp_path / "planted")!r}, "a").write("{name} ")')
    code = "import sys; from wasmline.wasm.compilation import compiler; "
    code += "compiler.compile_transform(sys.stdin.buffer.read())"
    path = f"import sys; sys.path.insert(0, {str(PROVIDER)!r});"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    # The caller looks for its modules first, as -P makes it, and gets the current folder's on its path afterwards.
    late = f"{path} from wasmline.wasm.compilation import compiler; "
    late += f"sys.path.insert(0, ''); sys.path.insert(0, {str(tmp_path)!r});"
    late += f"import os; os.environ['PYTHONPATH'] = {python_path!r};" if python_path is not None else ""
    subprocess.run(
        [sys.executable, "-P", "-c", f"{late} {code}"], input=TWO_RESULTS, check=True, cwd=tmp_path, env=environment
    )
    assert not (tmp_path / "planted").exists()


def test_a_caller_in_the_folder_of_the_package_finds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(PROVIDER)
    monkeypatch.setattr(sys, "path", ["", *(path for path in sys.path if path != str(PROVIDER))])
    assert call_limited(f"{wasm_validation.__name__}:validate_in_subprocess", guests.guest(), cpu_s=9) == b""


def test_a_process_that_fails_for_another_reason_says_so() -> None:
    with pytest.raises(WasmlineError, match="No module named") as caught:
        call_limited("wasmline.nothing:main", b"", cpu_s=9)
    assert not isinstance(caught.value, InvalidModule)


REFERENCES = 3_000_000
"""In one passive segment: gigabytes, once compiled."""


def test_a_module_that_compiles_to_too_much_is_refused_and_the_caller_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "COMPILE_CPU_S", 3)
    before = guests.guest()
    kinds = [kind for kind in sections(before) if kind < ELEMENT]
    elements = b"\x09" + vector(b"\x01\x01\x00" + leb(REFERENCES) + bytes(REFERENCES))
    at = sum(len(_section(kind, sections(before)[kind])) for kind in kinds) + PREAMBLE_BYTES
    with pytest.raises(InvalidModule, match=r"more than 3 s of CPU time"):
        compiler.compile_transform(before[:at] + elements + before[at:])


def _section(kind: int, content: bytes) -> bytes:
    return bytes([kind]) + vector(content)
