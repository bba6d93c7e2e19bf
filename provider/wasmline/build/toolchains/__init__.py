"""The compilers: one per language, each with exactly one set of flags, so that a source has one module."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from wasmline.build.project import TransformProject
from wasmline.errors import ToolchainMissing

__all__ = ["BUILDABLE", "Toolchain", "toolchain_for"]

BUILDABLE = ("c", "cpp")


class Toolchain(Protocol):
    """A compiler to WebAssembly for one language."""

    flags: tuple[str, ...]
    """What decides about the module's bytes, without paths of this machine."""

    default_sources: tuple[str, ...]
    """Globs below the project's folder."""

    include_folders: tuple[Path, ...]
    """Folders outside the project that the compiler reads."""

    def version(self) -> str:
        """Return the compiler's name and version. Raises ToolchainMissing, with the line that installs it."""

    def compile(self, project: TransformProject, sources: Sequence[Path], output: Path, *, cache_dir: Path) -> None:
        """Write the module to ``output``. Raises BuildFailed, with the compiler's log."""


def toolchain_for(language: str) -> Toolchain:
    """Return the toolchain of a language of ``transform.yaml``. Raises ToolchainMissing for those still to come."""
    if language not in BUILDABLE:
        raise ToolchainMissing(
            f"this release builds {' and '.join(BUILDABLE)}; {language} comes later. Build the module with the "
            "language's own tools and give its .wasm file instead of the folder",
            install="",
        )
    from wasmline.build.toolchains.cpp import ZigToolchain

    return ZigToolchain(language)
