"""The compilers: one per language, each with exactly one set of flags, so that a source has one module."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from wasmline.build.project import TransformProject
from wasmline.errors import ToolchainMissing

__all__ = ["BUILDABLE", "Toolchain", "toolchain_for"]

BUILDABLE = ("c", "cpp", "go", "rust")


class Toolchain(Protocol):
    """A compiler to WebAssembly for one language."""

    flags: tuple[str, ...]
    """What decides about the module's bytes, without paths of this machine."""

    default_sources: tuple[str, ...]
    """Globs below the project's folder."""

    own_folders: tuple[str, ...]
    """Folders of a project that the language's own tools write; no input of a build."""

    def prepare(self, project: TransformProject) -> str:
        """Return the compiler's name and version, once it is sure to be there and the project's lock file complete.

        Raises ToolchainMissing, with the line that installs it; BuildFailed where dependencies cannot be had.
        """

    def folders(self, project: TransformProject) -> tuple[Path, ...]:
        """Return the folders outside the project whose files the compiler reads as sources, once prepared."""

    def compile(self, project: TransformProject, sources: Sequence[Path], output: Path, *, cache_dir: Path) -> None:
        """Write the module of a prepared project to ``output``. Raises BuildFailed, with the compiler's log."""


def toolchain_for(language: str) -> Toolchain:
    """Return the toolchain of a language of ``transform.yaml``. Raises ToolchainMissing for those that have none."""
    if language in ("c", "cpp"):
        from wasmline.build.toolchains.cpp import ZigToolchain

        return ZigToolchain(language)
    if language == "go":
        from wasmline.build.toolchains.go import GoToolchain

        return GoToolchain()
    if language == "rust":
        from wasmline.build.toolchains.rust import RustToolchain

        return RustToolchain()
    raise ToolchainMissing(
        f"{language} is not built here, only {', '.join(BUILDABLE)}. Build the module with the language's own tools "
        "and give its .wasm file instead of the folder",
        install="",
    )
