"""C and C++ with the clang of ``ziglang``, a plain Python package: no system package, no root.

The first build on a machine compiles libc and libc++ (about 50 seconds of one core) into the cache folder; every other
set of flags would compile them again, another reason for exactly one set.

Source text cannot make this compiler run a program. The files that it can make it read are in the list of dependencies
that the preprocessor prints (``#include``, ``#embed``, ``__has_include``), except the assembler's ``.include`` and
``.incbin``: so inline assembly is off, and every source is C or C++, whatever its extension.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.machinery import PathFinder
from itertools import chain
from pathlib import Path

from wasmline.build.inputs import PROJECT, changed_project_error, input_names
from wasmline.build.installed_folder import installed_folder
from wasmline.build.project import TransformProject
from wasmline.build.toolchains.compiler_process import environment, last_line, run, run_checked, warn
from wasmline.errors import BuildFailed, ToolchainMissing

VERSION = "0.17.0"
INSTALL = f"pip install ziglang=={VERSION}"

_COMMON = (
    "--target=wasm32-wasi",
    "-O2",
    "-flto",  # libc's and libm's functions are optimized together with the code that calls them
    "-s",  # names and debug sections are nine tenths of an unstripped module, and hold paths
    "-Wall",
    "-Wl,-z,stack-size=65536",  # zig's own 16 MiB stack is over the memory limit of most hosts
    "-fno-gnu-inline-asm",  # an empty one, the compiler's barrier, is allowed
    "-Iinclude",
)
_DRIVERS = {"c": ("cc", "-xc"), "cpp": ("c++", "-xc++")}
_FLAGS = {"c": ("-std=c23", *_COMMON), "cpp": ("-std=c++23", "-fno-exceptions", *_COMMON)}
_SOURCES = {"c": ("src/**/*.c",), "cpp": ("src/**/*.cc", "src/**/*.cpp", "src/**/*.cxx")}

_LIST = ("-M", "-MP", "-w")
"""Prints a Makefile: with ``-MP`` each header has a line of its own, so that no character of a name is ambiguous."""
_NO_COPY = "-fno-crash-diagnostics"
"""Otherwise a source that crashes the compiler leaves all its includes in TMPDIR, readable for every user."""
_WRITE_LIST = ("-MD", "-MP")
"""Writes the same Makefile beside each object."""


def sdk_include() -> Path:
    """Return the folder of the SDK's headers: inside the installed package, or in the checkout it runs from."""
    return installed_folder("the C++ SDK's headers", "build/sdk/cpp/include", checkout="sdk/cpp/include")


class ZigToolchain:
    """``zig cc`` and ``zig c++`` of the package ``ziglang``, which this Python has installed."""

    def __init__(self, language: str) -> None:
        self.flags = _FLAGS[language]
        self.default_sources = _SOURCES[language]
        self._driver, self._language = _DRIVERS[language]

    def cache_name(self, project: TransformProject) -> str:
        return "zig"

    def prepare(self, project: TransformProject) -> str:
        ended = run([str(_package() / "zig"), "version"], env=environment())
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

    def inputs(self, project: TransformProject, sources: Sequence[Path], *, cache_dir: Path) -> dict[str, Path]:
        """Return the files that the preprocessor reads for each source. For several at once, zig uses other flags."""
        if (project.folder / "include").is_file():
            raise BuildFailed(
                f"{project.name}: include must be a folder: clang reads a file of that name as a header map", log=""
            )
        with ThreadPoolExecutor() as pool:
            printed = list(
                pool.map(lambda source: self._zig(project, [source], _LIST, cache_dir, local_cache=cache_dir), sources)
            )
        return _inputs(project, sources, printed)

    def compile(
        self,
        project: TransformProject,
        sources: Sequence[Path],
        output: Path,
        *,
        inputs: Mapping[str, Path],
        cache_dir: Path,
    ) -> None:
        local_cache = output.parent / "zig"
        self._zig(project, sources, (*_WRITE_LIST, "-o", str(output)), cache_dir, local_cache=local_cache)
        written = [os.fsdecode(file.read_bytes()) for file in local_cache.glob("tmp/*.d")]
        if len(written) != len(sources) or not _inputs(project, sources, written).keys() <= inputs.keys():
            raise changed_project_error(project)

    def _zig(
        self,
        project: TransformProject,
        sources: Sequence[Path],
        options: Sequence[str],
        global_cache: Path,
        *,
        local_cache: Path,
    ) -> str:
        """Run the compiler on the sources and return its output.

        ``local_cache`` is for its own outputs: it would take them as unchanged if a new header hides an older one.
        """
        driver = (str(_package() / "zig"), self._driver)
        command = [*driver, *self.flags, _NO_COPY, f"-I{sdk_include()}", *options, self._language]
        variables = {
            "ZIG_GLOBAL_CACHE_DIR": str(global_cache),
            "ZIG_LOCAL_CACHE_DIR": str(local_cache),
            "SOURCE_DATE_EPOCH": "0",  # the value of __DATE__, __TIME__ and __TIMESTAMP__, if a pragma allows them
        }
        ended = run_checked(
            project, [*command, *map(str, sources)], env=environment() | variables, first_error=_first_error
        )
        warn(project, ended.stderr)
        return ended.stdout


def _package() -> Path:
    """Return the folder of the installed package, never one of that name in the current folder."""
    installed = [entry for entry in sys.path if Path(entry).is_absolute() and Path(entry) != Path.cwd()]
    spec = PathFinder.find_spec("ziglang", installed)
    if spec is None or not spec.submodule_search_locations:
        raise ToolchainMissing(
            f"no C++ toolchain: the package ziglang is not installed for {sys.executable}. Install: {INSTALL}",
            install=INSTALL,
        )
    return Path(spec.submodule_search_locations[0])


def _inputs(project: TransformProject, sources: Sequence[Path], lists: Sequence[str]) -> dict[str, Path]:
    """Return the sources and their dependencies in the compiler's lists."""
    files = [*sources, *chain.from_iterable(map(_headers, lists))]
    _check_names(project, files)
    places = {PROJECT: project.folder, "sdk": sdk_include()}
    return input_names(project, files, places, excluded=[_package() / "lib"])


def _headers(printed: str) -> list[Path]:
    """Return the files that a Makefile has an empty rule for: ``path:``, with space, ``#`` and ``$`` escaped."""
    rules = [line[:-1] for line in printed.split("\n") if line.endswith(":")]
    return [Path(rule.replace("\\ ", " ").replace("\\#", "#").replace("$$", "$")) for rule in rules]


def _check_names(project: TransformProject, files: Iterable[Path]) -> None:
    """Raise BuildFailed for an ambiguous name: clang lists a backslash in it as a slash."""
    parents = {project.folder / parent for file in files for parent in file.parents}
    folders = [folder for folder in parents if folder.is_relative_to(project.folder) and folder.is_dir()]
    for entry in (entry for folder in folders for entry in folder.iterdir()):
        if "\\" in entry.name:
            raise BuildFailed(f"{project.name}: {entry} has a backslash in its name: rename it", log="")


def _first_error(log: str) -> str | None:
    """Return the line with the error, ``file:line:column: error: …``."""
    return next((line for line in log.splitlines() if "error:" in line), None)
