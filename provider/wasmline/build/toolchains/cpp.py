"""C and C++ by the clang inside ``ziglang``, a plain Python package: no system package, no root.

The first build on a machine compiles libc and libc++ (about 50 seconds of one core) into the cache folder; every other
set of flags would compile them again, which is one more reason for exactly one set.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from wasmline.build.project import TransformProject
from wasmline.errors import BuildFailed, ToolchainMissing

log = logging.getLogger(__name__)

VERSION = "0.17.0"
INSTALL = f"pip install ziglang=={VERSION}"

_COMMON = (
    "--target=wasm32-wasi",
    "-O2",
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

    def __init__(self, language: str, *, python: str = sys.executable) -> None:
        self.flags = _FLAGS[language]
        self.default_sources = _SOURCES[language]
        self.include_folders: tuple[Path, ...] = (sdk_include(),)
        self._driver = _DRIVERS[language]
        self._command = [python, "-m", "ziglang"]

    def version(self) -> str:
        ended = subprocess.run([*self._command, "version"], capture_output=True, text=True, check=False)
        found = ended.stdout.strip()
        if ended.returncode != 0:
            raise ToolchainMissing(f"no C++ toolchain: {_last_line(ended.stderr)}. Install: {INSTALL}", install=INSTALL)
        if found != VERSION:
            raise ToolchainMissing(
                f"ziglang {found} is installed, {VERSION} is needed: the compiler's version is part of a module's "
                f"bytes. Install: {INSTALL}",
                install=INSTALL,
            )
        return f"ziglang {found}"

    def compile(self, project: TransformProject, sources: Sequence[Path], output: Path, *, cache_dir: Path) -> None:
        includes = [f"-I{folder}" for folder in self.include_folders]
        zig_cache = str(cache_dir / "zig")
        ended = subprocess.run(
            [*self._command, self._driver, *self.flags, *includes, *map(str, sources), "-o", str(output)],
            cwd=project.folder,
            env={**os.environ, "ZIG_GLOBAL_CACHE_DIR": zig_cache, "ZIG_LOCAL_CACHE_DIR": zig_cache},
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        if ended.returncode != 0:
            raise BuildFailed(
                f"{project.name} does not compile: {_first_error(ended.stderr)}", log=ended.stderr or ended.stdout
            )
        if ended.stderr.strip():
            log.warning("the compiler warns about %s:\n%s", project.name, ended.stderr.rstrip())


def _first_error(log: str) -> str:
    """Return the line that says what is wrong, ``file:line:column: error: …``."""
    errors = [line for line in log.splitlines() if "error:" in line]
    return errors[0] if errors else _last_line(log)


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else "it said nothing"
