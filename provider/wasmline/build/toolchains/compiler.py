"""Compilers as processes: what one prints when it refuses becomes the error, and what it warns of is logged."""

from __future__ import annotations

import logging
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from wasmline.build.project import TransformProject
from wasmline.errors import BuildFailed

log = logging.getLogger(__name__)


def run(
    command: Sequence[str], *, folder: Path | None = None, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a compiler, or one of its tools, to its end, whatever that is."""
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, errors="replace", check=False)


def compiled(
    project: TransformProject,
    command: Sequence[str],
    *,
    env: Mapping[str, str],
    first_error: Callable[[str], str | None],
) -> subprocess.CompletedProcess[str]:
    """Run a compiler in the project's folder. Raises BuildFailed with its log, and in its message the first error.

    ``first_error`` finds that in the log; without one the log's last line is quoted.
    """
    ended = run(command, folder=project.folder, env=env)
    if ended.returncode != 0:
        printed = ended.stderr or ended.stdout
        raise BuildFailed(f"{project.name} does not compile: {first_error(printed) or last_line(printed)}", log=printed)
    return ended


def warn(project: TransformProject, printed: str) -> None:
    """Log what a compiler that succeeded had to say."""
    if printed.strip():
        log.warning("the compiler warns about %s:\n%s", project.name, printed.rstrip())


def last_line(text: str) -> str:
    """Return the last line of what a program printed."""
    lines = text.strip().splitlines()
    return lines[-1] if lines else "it said nothing"
