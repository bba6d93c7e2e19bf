"""Builds a project for a command, with a progress message while the compiler runs."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from wasmline.build import BuildReport, TransformProject
from wasmline.build import build as build_project


def built(
    project: TransformProject, *, output: Path | None = None, allow_build_scripts: bool = False
) -> tuple[BuildReport, bytes]:
    """Build a project and return the report and the module's bytes."""
    message = f"building {project.name} (the first build on a machine may take a minute)"
    with Console(stderr=True).status(message):
        report = build_project(project, output=output, allow_build_scripts=allow_build_scripts)
    return report, Path(report.path).read_bytes()
