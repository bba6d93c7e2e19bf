"""Rust by cargo, with a standard library for ``wasm32-wasip1`` from rustup or from Debian's packages.

The user's configuration determines the origin of crates; the project's ``Cargo.toml`` and ``Cargo.lock`` and the
compiler determine the module's bytes, and no path of this machine does. So crates are fetched with the user's
configuration and compiled with an empty one, and cargo's current folder is never the project's: the files that it and
rustup read there, ``.cargo/config.toml`` and ``rust-toolchain.toml``, can name programs to run.

Two parts of a crate can still act on this machine. Build scripts and macros run on it: that needs the user's
permission. And names of files, libraries and functions become arguments of rustc and of the linker, which take
``@file`` for a response file, whose options can name programs to run and files to write: such an argument is rejected.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

from wasmline.build.cache import write_whole
from wasmline.build.inputs import PROJECT, changed_project_error, input_names
from wasmline.build.project import FILE, TransformProject
from wasmline.build.toolchains.cargo_metadata import Crates
from wasmline.build.toolchains.compiler_process import (
    DOWNLOAD_VARIABLES,
    ROOT,
    environment,
    find_executable,
    last_line,
    log,
    run,
    run_checked,
    warn,
)
from wasmline.build.toolchains.crate_origins import check_sources, reject_git
from wasmline.errors import BuildFailed, InvalidProject, ToolchainMissing

TARGET = "wasm32-wasip1"
OLDEST = (1, 78)
"""The oldest Rust with the target of this name."""
RUSTUP = f"rustup target add {TARGET}"
DEBIAN = "apt-get install rustc cargo libstd-rust-dev-wasm32 lld"
LINKER = "CARGO_TARGET_WASM32_WASIP1_LINKER"

_FLAGS = ("--release", "--target", TARGET)
_FIXED = {
    "CARGO_INCREMENTAL": "0",
    "RUSTC_BOOTSTRAP": "-1",  # no unstable feature, also by a nightly compiler
}
_USER_VARIABLES = ("CARGO_HOME", "CARGO_HTTP_*", "CARGO_NET_*", "CARGO_REGISTR*", "RUSTUP_*")
_IGNORED_CONFIG_FILES = (".cargo/config.toml", ".cargo/config", "rust-toolchain.toml", "rust-toolchain")
_VERSION = re.compile(r"rustc (\d+)\.(\d+)")

_WRAPPER = """#!/bin/sh
refuse() {{ echo "error: $argument $1" >&2; exit 1; }}
for argument; do
    case "$argument" in
    @*) refuse "would be a response file: rename what begins with @" ;;
    esac
done
{}exec {} "$@"
"""
_REFUSED = re.compile(r"error: \S+ would (?:be a response file|link a file).*")
_LOCKED = re.compile(r"^error: .*--(locked|frozen) was passed to prevent this", re.MULTILINE)
_LINK_INPUTS = """previous=
for argument; do
    case "$previous" in
    -l | --library) argument="-l$argument" ;;
    esac
    case "$argument" in
    -l*[:/]* | --library=*[:/]* | /*/../*) refuse "would link a file that is not among the sources" ;;
    {target}/* | {sysroot}/lib/* | "${{TMPDIR:-/tmp}}"/rustc*) ;;
    /*) refuse "would link a file that is not among the sources" ;;
    esac
    previous="$argument"
done
"""
"""The linker may read only cargo's outputs and Rust's own libraries: ``#[link(name)]`` may contain any path."""
_DEP_INFO = re.compile(r"(?:[^\n]+: [^\n]*\n\n)+((?:[^\n]+:\n)*)(?:\n((?:# env-dep:[^\n]*\n)*))?")
"""Dependency file of rustc: rules for a crate's outputs, an empty one for each file it read, and variables."""
_VARIABLE = re.compile(r"# env-dep:(?!CARGO_PKG_|CARGO_CRATE_NAME=|CARGO_BIN_NAME=)([^=\n]+)=")
"""A set variable, except those that only repeat the project's ``Cargo.toml``."""


class RustToolchain:
    """``cargo build`` of a project's folder, which contains ``Cargo.toml``."""

    flags: tuple[str, ...] = (
        *(f"{key}={value}" for key, value in _FIXED.items()),
        *_FLAGS,
        *(f"--remap-path-prefix={place}" for place in ("FOLDER=/CRATE", "TARGET=/target", "VENDOR=/vendor")),
    )
    default_sources: tuple[str, ...] = ("src/**/*.rs",)

    def __init__(self, *, allow_build_scripts: bool = False) -> None:
        self._allow_build_scripts = allow_build_scripts

    def cache_name(self, project: TransformProject) -> str:
        return f"cargo/{hashlib.sha256(os.fsencode(project.folder)).hexdigest()[:16]}"

    def prepare(self, project: TransformProject) -> str:
        versions = [self._version(tool) for tool in ("rustc", "cargo")]
        found = _VERSION.match(versions[0])
        if found is None or (int(found[1]), int(found[2])) < OLDEST:
            raise _missing(
                f"{versions[0]} is too old: {'.'.join(map(str, OLDEST))} is the first for {TARGET}",
                rustup=f"rustup update stable && {RUSTUP}",
            )
        library = run([self._tool("rustc"), "--print", "target-libdir", "--target", TARGET], env=environment())
        if library.returncode != 0 or not Path(library.stdout.strip()).is_dir():
            raise _missing(f"{versions[0]} has no standard library for {TARGET}")
        for name in _IGNORED_CONFIG_FILES:
            if (project.folder / name).exists():
                log.warning("%s: %s is not read, because it can name programs to run", project.name, name)
        if LINKER in os.environ:
            versions.append(run([self._linker(), "--version"], env=environment()).stdout.strip() or self._linker())
        return ", ".join(versions)

    def inputs(self, project: TransformProject, sources: Sequence[Path], *, cache_dir: Path) -> dict[str, Path]:
        """Return all files that rustc may read. After the build, a check ensures that it read no others."""
        crates = self._crates(project, cache_dir)
        manifests = [folder / "Cargo.toml" for folder in crates.workspaces.values()]
        places = crates.places() | crates.workspaces
        return input_names(project, [*crates.files(), *manifests, project.folder / "Cargo.lock"], places)

    def compile(
        self,
        project: TransformProject,
        sources: Sequence[Path],
        output: Path,
        *,
        inputs: Mapping[str, Path],
        cache_dir: Path,
    ) -> None:
        crates = self._crates(project, cache_dir)
        name = crates.binary_target()
        if not self._allow_build_scripts:
            crates.reject_host_code()
        self._build(project, crates, cache_dir)
        try:
            _check_read(project, crates, inputs, cache_dir, host_code=self._allow_build_scripts)
        except BuildFailed:
            shutil.rmtree(cache_dir / "target")
            raise
        shutil.copyfile(cache_dir / "target" / TARGET / "release" / f"{name}.wasm", output)

    def _crates(self, project: TransformProject, compiler_cache: Path) -> Crates:
        """Vendor the sources of all dependencies, and query cargo about them in a home without others."""
        user = environment(*DOWNLOAD_VARIABLES, *_USER_VARIABLES)

        def describe(folder: Path) -> dict[str, Any]:
            described = self._metadata(project, compiler_cache, "--no-deps", env=user, folder=folder)
            if folder == project.folder:
                _check_workspace(project, Path(described["workspace_root"]))
            return described

        known = [Path(name) for name in ("Cargo.toml", "Cargo.lock") if os.path.lexists(project.folder / name)]
        input_names(project, known, {PROJECT: project.folder})  # before cargo reads them, which waits for a pipe
        workspaces = check_sources(project, describe)
        locked = ["--locked"] if os.path.lexists(project.folder / "Cargo.lock") else []  # a link is not written through
        reject_git(project, self._metadata(project, compiler_cache, *locked, env=user)["packages"])
        vendor = ("vendor", "--versioned-dirs", "--respect-source-config", "--locked", str(compiler_cache / "vendor"))
        fetched = self._cargo(project, compiler_cache, *vendor, env=user)
        write_whole(compiler_cache / "home" / "config.toml", fetched.stdout.encode())
        filters = ("--frozen", "--filter-platform", TARGET)
        metadata = self._metadata(project, compiler_cache, *filters, env=_offline(compiler_cache))
        return Crates(project, metadata, workspaces)

    def _metadata(
        self,
        project: TransformProject,
        compiler_cache: Path,
        *options: str,
        env: Mapping[str, str],
        folder: Path | None = None,
    ) -> dict[str, Any]:
        question = ("metadata", "--format-version", "1", *options)
        printed = self._cargo(project, compiler_cache, *question, env=env, folder=folder).stdout
        described: dict[str, Any] = json.loads(printed)
        return described

    def _build(self, project: TransformProject, crates: Crates, compiler_cache: Path) -> None:
        """Compile the crates of folders, regardless of their modification times, and those not compiled yet."""
        target = compiler_cache / "target"
        crate_names = {folder: name for name, folder in crates.folders.items()}
        renamed = {target: "target", compiler_cache / "vendor": "vendor"} | crate_names
        flags = [f"--remap-path-prefix={folder}=/{name}" for folder, name in renamed.items()]
        checks = _LINK_INPUTS.format(target=shlex.quote(str(target)), sysroot=shlex.quote(str(self._sysroot)))
        variables = {
            LINKER: _checked(self._linker(), compiler_cache, checks),
            "CARGO_ENCODED_RUSTFLAGS": "\x1f".join(flags),
        }
        env = _offline(compiler_cache) | variables
        common = ("--frozen", "--quiet", *_FLAGS, "--target-dir", str(target))
        self._cargo(project, compiler_cache, "clean", *common, *(f"--package={crate}" for crate in crates.ids), env=env)
        program = (f"--package={crates.root}", "--bin", crates.binary_target())  # the one that was checked
        ended = self._cargo(project, compiler_cache, "build", *common, *program, env=env)
        warn(project, ended.stderr)

    def _linker(self) -> str:
        chosen = os.environ.get(LINKER, "rust-lld")
        found = find_executable(chosen, *self._sysroot.glob("lib/rustlib/*/bin"))
        if found is None:
            raise _missing(f"no linker: there is no `{chosen}` in {self._sysroot} or on the PATH")
        return found

    def _cargo(
        self,
        project: TransformProject,
        compiler_cache: Path,
        *arguments: str,
        env: Mapping[str, str],
        folder: Path | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run cargo on the crate in ``folder``, by default the project's."""
        command = [self._tool("cargo"), *arguments, "--manifest-path", str((folder or project.folder) / "Cargo.toml")]
        variables = {**env, **_FIXED, "RUSTC": _checked(self._tool("rustc"), compiler_cache)}
        return run_checked(project, command, env=variables, first_error=_first_error, folder=ROOT)

    @cached_property
    def _sysroot(self) -> Path:
        """The folder of the user's Rust: outside a project, rustup reads no ``rust-toolchain.toml``."""
        ended = run([_tool("rustc"), "--print", "sysroot"], env=environment("HOME", *_USER_VARIABLES))
        if ended.returncode != 0:
            raise _missing(
                f"no Rust toolchain: `rustc --print sysroot` says: {last_line(ended.stderr)}",
                rustup=f"rustup default stable && {RUSTUP}",
            )
        return Path(ended.stdout.strip())

    def _tool(self, name: str) -> str:
        return _tool(name, self._sysroot / "bin")

    def _version(self, tool: str) -> str:
        ended = run([self._tool(tool), "--version"], env=environment())
        if ended.returncode != 0:
            raise _missing(f"no Rust toolchain: `{tool} --version` says: {last_line(ended.stderr)}")
        return ended.stdout.strip()


def _checked(path: str, compiler_cache: Path, checks: str = "") -> str:
    """Return a wrapper of the executable at ``path`` that rejects response files.

    ``checks`` are further lines of sh, which call ``refuse`` for an ``$argument``.
    """
    wrapper = compiler_cache / "wrappers" / Path(path).name  # rustc derives a linker's options from its name
    script = _WRAPPER.format(checks, shlex.quote(path)).encode()
    if not wrapper.is_file() or wrapper.read_bytes() != script:
        write_whole(wrapper, script)
        wrapper.chmod(0o700)
    return str(wrapper)


def _offline(compiler_cache: Path) -> dict[str, str]:
    return environment() | {"CARGO_HOME": str(compiler_cache / "home")}


def _check_workspace(project: TransformProject, root: Path) -> None:
    """Raise InvalidProject for a member of a larger workspace, before cargo writes that workspace's lock file."""
    if root != project.folder:
        raise InvalidProject(
            f"{project.name} belongs to the cargo workspace of {root / 'Cargo.toml'}, whose lock file is not the "
            "project's: add an empty [workspace] table to its Cargo.toml",
            path=str(project.folder / FILE),
            line=None,
        )


def _check_read(
    project: TransformProject, crates: Crates, inputs: Mapping[str, Path], compiler_cache: Path, *, host_code: bool
) -> None:
    """Raise BuildFailed if rustc read a file that is not among the inputs, or a variable of this machine."""
    known = {*crates.files()}
    if not {*map(os.path.realpath, known)} <= {*map(str, inputs.values())}:
        raise changed_project_error(project)
    fetched = (compiler_cache / ("" if host_code else "vendor")).resolve()  # a build script writes sources elsewhere
    undeclared, variables = [], set()
    for files, names in _read(project, compiler_cache / "target" / TARGET / "release" / "deps"):
        variables.update(names)
        for file in files:
            path, real = Path(os.path.normpath(project.folder / file)), Path(os.path.realpath(project.folder / file))
            if not real.is_relative_to(fetched) and not {path, real} <= known:
                undeclared.append(path)
    if undeclared:
        raise BuildFailed(
            f"{project.name} reads {min(undeclared)}, which is not among its sources: those are the files in its "
            "folder except hidden files, build/, samples/, target/ and links to anything else",
            log="\n".join(map(str, sorted(undeclared))),
        )
    if variables and not host_code:
        raise BuildFailed(
            f"{project.name} puts the environment variable {min(variables)} into its module, which differs between "
            "machines: of env! and option_env! only CARGO_PKG_*, CARGO_CRATE_NAME and CARGO_BIN_NAME are supported",
            log="\n".join(sorted(variables)),
        )


def _read(project: TransformProject, folder: Path) -> Iterator[tuple[list[Path], list[str]]]:
    """Yield, for each compiled crate of a folder, the files and the variables that rustc read for it."""
    lists = [*folder.glob("*.d")]
    if not lists:
        raise BuildFailed(f"{project.name}: cargo left no list of the files it read in {folder}", log="")
    for written in lists:
        rules = _DEP_INFO.fullmatch(os.fsdecode(written.read_bytes()))
        if rules is None:
            raise BuildFailed(f"{project.name} reads a file whose name is not supported: rename it", log="")
        files = [Path(rule[:-1].replace("\\ ", " ")) for rule in rules[1].split("\n")[:-1]]
        yield files, _VARIABLE.findall(rules[2] or "")


def _tool(name: str, *folders: Path) -> str:
    found = find_executable(name, *folders)
    if found is None:
        raise _missing(f"no Rust toolchain: there is no `{name}` on the PATH")
    return found


def _missing(problem: str, *, rustup: str = RUSTUP) -> ToolchainMissing:
    return ToolchainMissing(
        f"{problem.rstrip('.')}. Install Rust by rustup, then: {rustup}; or on Debian 13: {DEBIAN}, and set "
        f"{LINKER}=wasm-ld-19",
        install=rustup if find_executable("rustup") else DEBIAN,
    )


def _first_error(log: str) -> str | None:
    """Return the first error with its place, ``src/main.rs:line:column: error[E0425]: …``, or with its cause."""
    if refused := _REFUSED.search(log):
        return refused[0]
    if _LOCKED.search(log):
        return "its Cargo.lock does not fit its Cargo.toml: restore it, or remove it, and the next build writes another"
    lines = log.splitlines()
    for number, line in enumerate(lines):
        if line.startswith("error"):
            below = lines[number:]
            place = next((text.strip()[4:] for text in below if text.strip().startswith("--> ")), None)
            causes = [text.strip() for before, text in pairwise(below) if before == "Caused by:"]
            return f"{place}: {line}" if place else ": ".join((line, *causes[-1:]))
    return None
