"""Runs compilers as processes: the output of a failed one becomes the error, and warnings are logged.

A compiler gets only the environment variables named here or by its toolchain: others in the user's environment (CPATH,
GOFLAGS, RUSTFLAGS, ...) would change modules, or run programs.
"""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from wasmline.build.project import TransformProject
from wasmline.errors import BuildFailed
from wasmline.printable import printable

log = logging.getLogger(__name__)

ROOT = Path("/")
"""The current folder of tools that search it and the folders above for settings."""

DOWNLOAD_VARIABLES = ("HOME", "*_proxy", "*_PROXY", "SSL_CERT_*", "GIT_SSL_CAINFO", "SSH_AUTH_SOCK")
"""Variables of a tool that downloads: its settings, its proxies, and its trusted servers."""


def environment(*patterns: str) -> dict[str, str]:
    """Return PATH, TMPDIR and the variables of this process that match a pattern."""
    allowed = ("TMPDIR", *patterns)
    found = {key: value for key, value in os.environ.items() if any(fnmatchcase(key, pattern) for pattern in allowed)}
    return found | {"PATH": os.pathsep.join(_path())}


def find_executable(name: str, *folders: Path) -> str | None:
    """Return the absolute path of an executable in one of the folders or on the PATH, never in the current folder."""
    return shutil.which(name, path=os.pathsep.join((*map(str, folders), *_path())))


def _path() -> list[str]:
    """Return PATH without empty or relative entries: they depend on the current folder, here a project's."""
    entries = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return [entry for entry in entries if Path(entry).is_absolute()]


def run(command: Sequence[str], *, folder: Path = ROOT, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a compiler, or one of its tools, to completion, with any status; its standard input is empty."""
    return subprocess.run(
        command,
        cwd=folder,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )


def run_checked(
    project: TransformProject,
    command: Sequence[str],
    *,
    env: Mapping[str, str],
    first_error: Callable[[str], str | None],
    folder: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a compiler in the project's folder. Raises BuildFailed with its log, and in its message the first error.

    ``first_error`` finds that in the log; otherwise the log's last line is quoted. ``folder`` is another current
    folder.
    """
    ended = run(command, folder=folder or project.folder, env=env)
    if ended.returncode != 0:
        printed = ended.stderr or ended.stdout
        raise BuildFailed(f"{project.name} does not compile: {first_error(printed) or last_line(printed)}", log=printed)
    return ended


def warn(project: TransformProject, printed: str) -> None:
    """Log the output of a compiler that succeeded."""
    if printed.strip():
        text = printable(printed.rstrip(), lines=True)
        log.warning("the compiler warns about %s:\n%s", project.name, text, extra={"has_lines": True})


def last_line(text: str) -> str:
    """Return the last line of what a program printed."""
    lines = text.strip().splitlines()
    return lines[-1] if lines else "it printed nothing"
