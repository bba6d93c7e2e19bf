"""Toolchains: one per language, each with exactly one set of flags, so that a source has one module."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from wasmline.build.project import TransformProject
from wasmline.errors import ToolchainMissing

__all__ = ["BUILDABLE", "Toolchain", "toolchain_for"]

BUILDABLE = ("c", "cpp", "go", "rust")


class Toolchain(Protocol):
    """A compiler to WebAssembly for one language. None of its methods runs code of a project."""

    flags: tuple[str, ...]
    """Flags that determine the module's bytes, without paths of this machine."""

    default_sources: tuple[str, ...]
    """Globs below the project's folder."""

    def cache_name(self, project: TransformProject) -> str | None:
        """Return the folder, below the cache's root, of the compiler's own cache; None for none."""

    def prepare(self, project: TransformProject) -> str:
        """Check that the compiler is installed; return its name and version.

        Raises ToolchainMissing, with the line that installs it.
        """

    def inputs(self, project: TransformProject, sources: Sequence[Path], *, cache_dir: Path) -> dict[str, Path]:
        """Return all files that determine the module of a prepared project, by the names of ``inputs.input_names``.

        Raises BuildFailed for one that is neither the project's nor the compiler's, and if dependencies are not
        available.
        """

    def compile(
        self,
        project: TransformProject,
        sources: Sequence[Path],
        output: Path,
        *,
        inputs: Mapping[str, Path],
        cache_dir: Path,
    ) -> None:
        """Write the module of a project to ``output``.

        Raises BuildFailed, with the compiler's log, or if the compiler read a file that is not among the ``inputs``.
        """


def toolchain_for(language: str, *, allow_build_scripts: bool = False) -> Toolchain:
    """Return the toolchain of a language of ``transform.yaml``. Raises ToolchainMissing for other languages.

    Programs of a project, or of its dependencies, run during a build only with ``allow_build_scripts``.
    """
    if language in ("c", "cpp"):
        from wasmline.build.toolchains.cpp import ZigToolchain

        return ZigToolchain(language)
    if language == "go":
        from wasmline.build.toolchains.go import GoToolchain

        return GoToolchain()
    if language == "rust":
        from wasmline.build.toolchains.rust import RustToolchain

        return RustToolchain(allow_build_scripts=allow_build_scripts)
    raise ToolchainMissing(
        f"{language} is not built here, only {', '.join(BUILDABLE)}. Build the module with the language's own tools "
        "and give its .wasm file instead of the folder",
        install="",
    )
