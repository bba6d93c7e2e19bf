"""Builds a project for a command, with a progress message while the compiler runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Timer

from rich.console import Console

from wasmline.build import BuildReport, TransformProject
from wasmline.build import build as build_project

SILENCE_S = 5.0
"""Seconds after which an output that is no terminal tells what is waited for."""


def built(
    project: TransformProject, *, output: Path | None = None, allow_build_scripts: bool = False
) -> tuple[BuildReport, bytes]:
    """Build a project and return the report and the module's bytes."""
    message = f"building {project.name} (the first build on a machine may take a minute)"
    with _told(message):
        report = build_project(project, output=output, allow_build_scripts=allow_build_scripts)
    return report, Path(report.path).read_bytes()


@contextmanager
def _told(message: str) -> Iterator[None]:
    """Show a message meanwhile; in a log, once, if it takes long."""
    console = Console(stderr=True)
    if console.is_terminal:
        with console.status(message):
            yield
        return
    timer = Timer(SILENCE_S, console.print, [message])
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
