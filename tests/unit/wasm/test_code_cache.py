from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from wasmline.disk_cache import CacheFolder
from wasmline.errors import InvalidModule, UnsupportedAbi
from wasmline.testing import guests
from wasmline.wasm import TransformContext, TransformRuntime
from wasmline.wasm.binary.module_types import declarations
from wasmline.wasm.compilation import code_cache, compiler
from wasmline.wasm.compilation.code_cache import CodeCache, default_folder
from wasmline.wasm.compilation.compiler import is_expensive

CONTEXT = TransformContext(name="t", input_topic="in", output_topics=("out",))
WASM = guests.guest()


def entry(folder: Path) -> Path:
    (path,) = folder.glob(f"{hashlib.sha256(WASM).hexdigest()}-*.cwasm")
    return path


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    seen: list[bytes] = []

    def compile_transform(wasm: bytes) -> bytes:
        seen.append(wasm)
        return compiler.compile_transform(wasm)

    monkeypatch.setattr(code_cache, "compile_transform", compile_transform)
    return seen


def test_a_transform_is_named_by_the_digest_of_its_bytes(tmp_path: Path) -> None:
    transform = TransformRuntime(tmp_path).compile(WASM)
    assert transform.digest == f"sha256:{hashlib.sha256(WASM).hexdigest()}"
    assert transform.abi_version == 1


def test_a_module_is_compiled_once(tmp_path: Path, compilations: list[bytes]) -> None:
    first, second = (CodeCache(tmp_path).load(WASM).code for _ in range(2))
    assert compilations == [WASM]
    assert first == second
    assert [path.suffix for path in tmp_path.iterdir()] == [".cwasm"]


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-1], lambda data: data[:40], lambda data: b"", lambda data: b"x" * 99]
)
def test_a_damaged_entry_is_compiled_again(tmp_path: Path, compilations: list[bytes], damage: Any) -> None:
    whole = CodeCache(tmp_path).load(WASM).code
    entry(tmp_path).write_bytes(damage(entry(tmp_path).read_bytes()))
    assert CodeCache(tmp_path).load(WASM).code == whole
    assert CodeCache(tmp_path).load(WASM).code == whole
    assert compilations == [WASM] * 2


def test_an_entry_of_another_processor_is_compiled_again(tmp_path: Path, compilations: list[bytes]) -> None:
    code = CodeCache(tmp_path).load(WASM).code
    foreign = code.replace(b"has_", b"had_")  # as features of a processor that this one does not have
    assert foreign != code
    CacheFolder(tmp_path).put(entry(tmp_path).name, foreign)
    assert [CodeCache(tmp_path).load(WASM).code for _ in range(2)] == [code] * 2
    assert compilations == [WASM] * 2


def test_an_entry_of_another_version_is_compiled_again(
    tmp_path: Path, compilations: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    CodeCache(tmp_path).load(WASM)
    monkeypatch.setattr(code_cache, "CACHE_KEY", "0" * 32)
    CodeCache(tmp_path).load(WASM)
    assert compilations == [WASM] * 2


def test_where_the_version_is_not_known_nothing_is_kept(
    tmp_path: Path, compilations: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(code_cache, "CACHE_KEY", None)
    for _ in range(2):
        CodeCache(tmp_path).load(WASM)
    assert compilations == [WASM] * 2
    assert list(tmp_path.iterdir()) == []


def test_an_entry_of_another_module_under_this_ones_name_is_compiled_again(tmp_path: Path) -> None:
    code = CodeCache(tmp_path).load(WASM).code
    own = entry(tmp_path)
    own.rename(tmp_path / "own")
    CodeCache(tmp_path).load(guests.guest("(unreachable)"))
    (other,) = tmp_path.glob("*.cwasm")
    other.rename(own)
    assert CodeCache(tmp_path).load(WASM).code == code


def shared(path: Path) -> None:
    path.chmod(0o777)


def given_away(path: Path) -> None:
    os.chown(path, 65534, 65534)


@pytest.mark.parametrize("place", ["compiled/entry", "compiled", "."])
@pytest.mark.parametrize(
    "flaw",
    [
        shared,
        pytest.param(given_away, marks=pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")),
    ],
)
def test_code_that_another_user_may_have_planted_is_not_run(
    tmp_path: Path, records: Any, place: str, flaw: Callable[[Path], None]
) -> None:
    root = tmp_path / "cache"
    folder = root / "compiled"
    planted = CodeCache(folder).load(guests.guest("(unreachable)")).code
    CodeCache(folder).load(WASM)
    CacheFolder(folder).put(entry(folder).name, planted)
    flaw(entry(folder) if place == "compiled/entry" else root / place)
    with TransformRuntime(folder).compile(WASM).instantiate(CONTEXT) as instance:
        assert instance.transform(records([b"a"])).outputs.num_rows == 1


WITHOUT_A_FOLDER = """
import os, sys
from wasmline.wasm import TransformRuntime
wasm = sys.stdin.buffer.read()
if os.geteuid() == 0:
    os.setresuid(54321, 54321, 54321)  # a user without a home folder
for home, cache in ((None, None), ("", None), (".", None), ("/nonexistent", None), ("/dev/null", None), (None, "a/b")):
    for name, value in (("HOME", home), ("WASMLINE_CACHE", cache)):
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = value
    print(TransformRuntime().compile(wasm).digest)
"""


def test_without_a_folder_modules_are_compiled_each_time() -> None:
    ended = subprocess.run([sys.executable, "-c", WITHOUT_A_FOLDER], input=WASM, capture_output=True, check=True)
    assert ended.stdout.decode().split() == [f"sha256:{hashlib.sha256(WASM).hexdigest()}"] * 6


def test_a_folder_that_cannot_be_written_costs_only_time(tmp_path: Path, records: Any) -> None:
    (tmp_path / "file").write_text("in the way")
    with TransformRuntime(tmp_path / "file").compile(WASM).instantiate(CONTEXT) as instance:
        assert instance.transform(records([b"a"])).outputs.num_rows == 1


def test_what_cannot_be_compiled_is_not_kept(tmp_path: Path) -> None:
    with pytest.raises(InvalidModule):
        TransformRuntime(tmp_path).compile(b"junk")
    assert list(tmp_path.iterdir()) == []


def test_compiling_checks_the_abi(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedAbi):
        TransformRuntime(tmp_path).compile(guests.guest(abi=3))


def test_the_default_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WASMLINE_CACHE", str(tmp_path))
    assert default_folder() == tmp_path / "compiled"
    monkeypatch.delenv("WASMLINE_CACHE")
    monkeypatch.setenv("HOME", os.fspath(tmp_path))
    assert default_folder() == tmp_path / ".cache" / "wasmline" / "compiled"


def demands(wasm: bytes) -> bool:
    return is_expensive(wasm, declarations(wasm))


def demanding(locals_: int, loops: int) -> bytes:
    """Return a transform with a function of many locals, each of which is alive through many loops."""
    touched = "".join(f"(local.set {index} (i32.const {index}))" for index in range(0, locals_, 7))
    used = "".join(f"(drop (local.get {index}))" for index in range(0, locals_, 7))
    function = f"(func (local {'i32 ' * locals_}) {touched} {'(loop ' * loops} {used} {')' * loops})"
    return guests.guest(section=function)


def test_a_demanding_function_compiles_in_a_process_of_its_own_to_the_same_code(tmp_path: Path) -> None:
    wasm = demanding(400, 1_000)
    assert demands(wasm)
    assert not demands(WASM)
    code = CodeCache(tmp_path).load(wasm).code
    assert code == compiler.compile_valid(wasm)


MANY_LOCALS = f"(func (local {'i32 ' * 8_000}) {'(nop)' * 100})"
"""Nothing by itself; in numbers, each costs as much as a function of code."""

VALUES = "i32 " * 300


@pytest.mark.parametrize(
    "section",
    [
        pytest.param(MANY_LOCALS * 200, id="many functions of many locals"),
        pytest.param(f"(func (param {VALUES}) {'(nop)' * 10_000})", id="parameters"),
        pytest.param(f"(type $wide (func (param {VALUES}) (result {VALUES})))", id="blocks of many results"),
        pytest.param(f"(func {'(i32.const 1)' * 40_000} {'drop ' * 40_000})", id="operands"),
        pytest.param(f"(func {'(loop ' * 6_600} {')' * 6_600})" * 15, id="loops"),
        pytest.param(f"(elem func {'$make_room ' * 20_000})", id="references to functions"),
        pytest.param("(func)" * 10_000, id="functions"),
        pytest.param("(func (call $make_room (i32.const 0)))" * 100_000, id="code"),
        pytest.param("(global i32 (i32.const 0))" * 10_000, id="globals"),
        pytest.param("(table 1 externref)", id="accesses of references to the host's things"),
        pytest.param("(global $g (mut externref) (ref.null extern))", id="a global reference to a thing of the host's"),
    ],
)
def test_what_may_take_for_ever_to_compile_is_demanding(section: str) -> None:
    assert demands(guests.guest(section=section))


def test_a_limit_that_the_process_already_has_does_not_keep_a_module_from_compiling() -> None:
    limited = "import resource; resource.setrlimit(resource.RLIMIT_AS, (7 << 30, 7 << 30))"
    own = "import sys; from wasmline.wasm.compilation import compiler, limited_process"
    name = "compiler.__name__ + ':compile_valid'"
    call = f"limited_process.call_limited({name}, sys.stdin.buffer.read(), cpu_s=9)"
    subprocess.run([sys.executable, "-c", f"{limited}; {own}; {call}"], input=WASM, check=True)


def test_a_module_that_takes_too_long_to_compile_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "COMPILE_CPU_S", 2)
    with pytest.raises(InvalidModule, match="more than 2 s of CPU time"):
        CodeCache(tmp_path).load(demanding(3_000, 5_000))
    assert not list(tmp_path.iterdir())
