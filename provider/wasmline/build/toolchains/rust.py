"""Rust by cargo, wherever a standard library for ``wasm32-wasip1`` is found: from rustup or from Debian's packages.

Where crates come from is the user's configuration; what decides about the module's bytes is the project's
``Cargo.toml`` and ``Cargo.lock``, the compiler, and no path of this machine.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from wasmline.build.project import FILE, TransformProject
from wasmline.build.toolchains.compiler import compiled, last_line, run, warn
from wasmline.cache_folder import tool_folder
from wasmline.errors import BuildFailed, InvalidProject, ToolchainMissing

TARGET = "wasm32-wasip1"
OLDEST = (1, 78)
"""The first Rust that knows the target by this name."""
RUSTUP = f"rustup target add {TARGET}"
DEBIAN = "apt-get install rustc cargo libstd-rust-dev-wasm32 lld"

_FLAGS = ("--release", "--target", TARGET, "--locked")
_FIXED = {"CARGO_INCREMENTAL": "0"}
_IGNORED = ("CARGO_BUILD_", "CARGO_PROFILE_", "CARGO_TARGET_DIR", "CARGO_ENCODED_RUSTFLAGS", "RUSTFLAGS", "RUSTC")
_VERSION = re.compile(r"rustc (\d+)\.(\d+)")


class RustToolchain:
    """``cargo build`` in a project's folder, which holds ``Cargo.toml``."""

    flags: tuple[str, ...] = (
        *(f"{key}={value}" for key, value in _FIXED.items()),
        *_FLAGS,
        *(f"--remap-path-prefix={place}" for place in ("FOLDER=/CRATE", "TARGET=/target", "CARGO_HOME=/cargo")),
    )
    default_sources: tuple[str, ...] = ("src/**/*.rs",)
    own_folders: tuple[str, ...] = ("target",)

    def prepare(self, project: TransformProject) -> str:
        versions = [_version(tool, project) for tool in ("rustc", "cargo")]
        found = _VERSION.match(versions[0])
        if found is None or (int(found[1]), int(found[2])) < OLDEST:
            raise _missing(
                f"{versions[0]} is too old: {'.'.join(map(str, OLDEST))} is the first for {TARGET}",
                rustup=f"rustup update stable && {RUSTUP}",
            )
        if not _has_library(project):
            raise _missing(f"{versions[0]} has no standard library for {TARGET}")
        locked = ["--locked"] if (project.folder / "Cargo.lock").is_file() else []
        _cargo(project, "fetch", "--quiet", "--target", TARGET, *locked)
        return ", ".join(versions)

    def folders(self, project: TransformProject) -> tuple[Path, ...]:
        """Return the folders of crates that ``Cargo.toml`` takes from this disk."""
        places = sorted(_crates(project))
        return tuple(place for place in places if not place.is_relative_to(project.folder.resolve()))

    def compile(self, project: TransformProject, sources: Sequence[Path], output: Path, *, cache_dir: Path) -> None:
        crates = _crates(project)
        program = _program(project, crates)
        place = hashlib.sha256(str(project.folder.resolve()).encode()).hexdigest()[:16]
        target = tool_folder(cache_dir / "cargo" / place, instead=output.parent / "cargo").resolve()
        flags = (f"--remap-path-prefix={path}={name}" for path, name in _renamed(crates, target))
        ended = _cargo(
            project,
            *("build", "--quiet", *_FLAGS, "--bin", program, "--target-dir", str(target)),
            CARGO_ENCODED_RUSTFLAGS="\x1f".join(flags),
        )
        warn(project, ended.stderr)
        shutil.copyfile(target / TARGET / "release" / f"{program}.wasm", output)


def _crates(project: TransformProject) -> dict[Path, dict[str, Any]]:
    """Return what cargo knows of the crates on this disk, the project's own among them, by their folders."""
    ended = _cargo(project, "metadata", "--format-version", "1", "--locked", "--filter-platform", TARGET)
    metadata = json.loads(ended.stdout)
    if Path(metadata["workspace_root"]) != project.folder.resolve():
        raise InvalidProject(
            f"{project.name} belongs to the cargo workspace in {metadata['workspace_root']}, whose lock file is not "
            "the project's: add an empty [workspace] table to its Cargo.toml",
            path=str(project.folder / FILE),
            line=None,
        )
    local = (package for package in metadata["packages"] if package["source"] is None)
    return {Path(package["manifest_path"]).parent: package for package in local}


def _program(project: TransformProject, crates: Mapping[Path, dict[str, Any]]) -> str:
    """Return the name of the one program that the project builds."""
    targets = crates.get(project.folder.resolve(), {"targets": []})["targets"]
    programs: list[str] = [target["name"] for target in targets if "bin" in target["kind"]]
    if len(programs) != 1:
        raise BuildFailed(
            f"{project.name}: {project.folder / 'Cargo.toml'} builds {', '.join(programs) or 'no program'}; a "
            "transform is exactly one program",
            log="",
        )
    return programs[0]


def _renamed(crates: Mapping[Path, dict[str, Any]], target: Path) -> list[tuple[Path, str]]:
    """Return the folders of this machine that panics could name, and what they are called instead.

    The last that is a path's prefix counts.
    """
    home = Path(os.environ.get("CARGO_HOME") or Path.home() / ".cargo").absolute()  # links are kept, as cargo does
    registries = sorted((home / "registry" / "src").glob("*"))  # a folder per registry, and so per mirror
    return [
        (home, "/cargo"),
        *((registry, "/cargo/registry") for registry in registries),
        (target, "/target"),
        *((folder, f"/{crates[folder]['name']}") for folder in sorted(crates)),
    ]


def _has_library(project: TransformProject) -> bool:
    command = [_tool("rustc"), "--print", "target-libdir", "--target", TARGET]
    library = run(command, folder=project.folder, env=_environment())
    return library.returncode == 0 and Path(library.stdout.strip()).is_dir()


def _cargo(project: TransformProject, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return compiled(project, [_tool("cargo"), *arguments], env=_environment() | variables, first_error=_first_error)


def _version(tool: str, project: TransformProject) -> str:
    ended = run([_tool(tool), "--version"], folder=project.folder, env=_environment())
    if ended.returncode != 0:
        raise _missing(f"no Rust toolchain: `{tool} --version` says: {last_line(ended.stderr)}")
    return ended.stdout.strip()


def _tool(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise _missing(f"no Rust toolchain: there is no `{name}` on the PATH")
    return found


def _missing(problem: str, *, rustup: str = RUSTUP) -> ToolchainMissing:
    return ToolchainMissing(
        f"{problem}. Install Rust by rustup, then: {rustup}; or on Debian 13: {DEBIAN}, and set "
        "CARGO_TARGET_WASM32_WASIP1_LINKER=wasm-ld-19",
        install=rustup if shutil.which("rustup") else DEBIAN,
    )


def _environment() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if not key.startswith(_IGNORED)} | _FIXED


def _first_error(log: str) -> str | None:
    """Return the first error with its place: ``src/main.rs:line:column: error[E0425]: …``."""
    lines = log.splitlines()
    for number, line in enumerate(lines):
        if line.startswith("error"):
            place = next((below.strip()[4:] for below in lines[number:] if below.strip().startswith("--> ")), None)
            return f"{place}: {line}" if place else line
    return None
