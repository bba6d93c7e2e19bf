"""C and C++ by the clang inside ``ziglang``, a plain Python package: no system package, no root.

The first build on a machine compiles libc and libc++ (about 50 seconds of one core) into the cache folder; every other
set of flags would compile them again, which is one more reason for exactly one set.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from wasmline.build.project import TransformProject
from wasmline.build.toolchains.compiler import compiled, last_line, run, warn
from wasmline.cache_folder import tool_folder
from wasmline.errors import ToolchainMissing

VERSION = "0.17.0"
INSTALL = f"pip install ziglang=={VERSION}"

_COMMON = (
    "--target=wasm32-wasi",
    "-O2",
    "-flto",  # libc's and libm's functions are optimized together with the code that calls them
    "-s",  # names and debug sections are nine tenths of an unstripped module, and hold paths
    "-Wall",
    "-Wl,-z,stack-size=65536",  # zig's own 16 MiB stack is over the memory limit of most hosts
    "-Iinclude",
)
_DRIVERS = {"c": "cc", "cpp": "c++"}
_FLAGS = {"c": ("-std=c23", *_COMMON), "cpp": ("-std=c++23", "-fno-exceptions", *_COMMON)}
_SOURCES = {"c": ("src/**/*.c",), "cpp": ("src/**/*.cc", "src/**/*.cpp", "src/**/*.cxx")}


def sdk_include() -> Path:
    """Return the folder of the SDK's headers: inside the installed package, or in the checkout it runs from."""
    build = Path(__file__).resolve().parents[1]
    packaged = build / "sdk" / "cpp" / "include"
    checkout = build.parents[2] / "wasm_modules" / "sdk" / "cpp" / "include"
    for folder in (packaged, checkout):
        if folder.is_dir():
            return folder
    raise ToolchainMissing(
        f"the C++ SDK's headers are neither in {packaged} nor in {checkout}: install wasmline again",
        install="pip install --force-reinstall wasmline",
    )


class ZigToolchain:
    """``python -m ziglang`` as a C or C++ compiler. ``python`` is the interpreter that has the package."""

    own_folders: tuple[str, ...] = ()

    def __init__(self, language: str, *, python: str = sys.executable) -> None:
        self.flags = _FLAGS[language]
        self.default_sources = _SOURCES[language]
        self._driver = _DRIVERS[language]
        self._command = [python, "-m", "ziglang"]

    def prepare(self, project: TransformProject) -> str:
        ended = run([*self._command, "version"])
        found = ended.stdout.strip()
        if ended.returncode != 0:
            raise ToolchainMissing(f"no C++ toolchain: {last_line(ended.stderr)}. Install: {INSTALL}", install=INSTALL)
        if found != VERSION:
            raise ToolchainMissing(
                f"ziglang {found} is installed, {VERSION} is needed: the compiler's version is part of a module's "
                f"bytes. Install: {INSTALL}",
                install=INSTALL,
            )
        return f"ziglang {found}"

    def folders(self, project: TransformProject) -> tuple[Path, ...]:
        return (sdk_include(),)

    def compile(self, project: TransformProject, sources: Sequence[Path], output: Path, *, cache_dir: Path) -> None:
        includes = [f"-I{folder}" for folder in self.folders(project)]
        zig_cache = str(tool_folder(cache_dir / "zig", instead=output.parent / "zig"))
        ended = compiled(
            project,
            [*self._command, self._driver, *self.flags, *includes, *map(str, sources), "-o", str(output)],
            env={**os.environ, "ZIG_GLOBAL_CACHE_DIR": zig_cache, "ZIG_LOCAL_CACHE_DIR": zig_cache},
            first_error=_first_error,
        )
        warn(project, ended.stderr)


def _first_error(log: str) -> str | None:
    """Return the line that says what is wrong, ``file:line:column: error: …``."""
    return next((line for line in log.splitlines() if "error:" in line), None)
