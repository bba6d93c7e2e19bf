"""Creates new projects that build, test and run unchanged."""

from __future__ import annotations

import os
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

from wasmline.build.project import FILE
from wasmline.build.toolchains import toolchain_for
from wasmline.errors import InvalidProject
from wasmline.registry.artifact_store import NAME

_RENAMED = {"gitignore": ".gitignore"}  # under its real name it would apply to the templates


def scaffold(folder: Path, *, language: str = "cpp", name: str | None = None) -> list[Path]:
    """Write a project named ``name`` (default: the folder's name) and return its files.

    Existing files are not overwritten. Raises InvalidProject for a folder that has one of the files, or an invalid
    name; ToolchainMissing for a language without a toolchain.
    """
    toolchain_for(language)
    name = name or folder.resolve().name.lower().replace("_", "-").replace(" ", "-")
    if not NAME.fullmatch(name):
        raise _refused(folder, f"{name!r} cannot name a transform: choose a name of lower-case letters, digits and -")
    template = resources.files("wasmline.build") / "templates" / language
    files = {folder / path: text.replace("@NAME@", name) for path, text in _files(template, Path())}
    if os.path.lexists(folder / ".gitignore"):
        del files[folder / ".gitignore"]
    linked = [path for path in files if path.parent != folder and path.parent.is_symlink()]
    if taken := [*linked, *filter(os.path.lexists, files)]:
        raise _refused(folder, f"{taken[0]} exists already; choose an empty folder")
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    return sorted(files)


def _files(folder: Traversable, at: Path) -> list[tuple[Path, str]]:
    found: list[tuple[Path, str]] = []
    for entry in folder.iterdir():
        path = at / _RENAMED.get(entry.name, entry.name)
        found += _files(entry, path) if entry.is_dir() else [(path, entry.read_text("utf-8"))]
    return found


def _refused(folder: Path, problem: str) -> InvalidProject:
    return InvalidProject(problem, path=str(folder / FILE), line=None)
