"""The compilers: one per language, each with exactly one set of flags, so that a source has one module."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from wasmline.build.project import TransformProject
from wasmline.errors import ToolchainMissing

__all__ = ["BUILDABLE", "Toolchain", "toolchain_for"]

BUILDABLE = ("c", "cpp", "go", "rust")


class Toolchain(Protocol):
    """A compiler to WebAssembly for one language. None of its methods runs what a project brings along."""

    flags: tuple[str, ...]
    """What decides about the module's bytes, without paths of this machine."""

    default_sources: tuple[str, ...]
    """Globs below the project's folder."""

    def cache_name(self, project: TransformProject) -> str | None:
        """Return the folder, below the cache's root, of what the compiler keeps between builds; None for none."""

    def prepare(self, project: TransformProject) -> str:
        """Return the compiler's name and version, once it is sure to be there.

        Raises ToolchainMissing, with the line that installs it.
        """

    def inputs(self, project: TransformProject, sources: Sequence[Path], *, cache_dir: Path) -> dict[str, Path]:
        """Return all files that decide about the module of a prepared project, by the names of ``inputs.input_names``.

        Raises BuildFailed for one that is neither the project's nor the compiler's, and where dependencies cannot be
        had.
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

        Raises BuildFailed, with the compiler's log, or where the compiler read a file that is not among the ``inputs``.
        """


def toolchain_for(language: str, *, allow_build_scripts: bool = False) -> Toolchain:
    """Return the toolchain of a language of ``transform.yaml``. Raises ToolchainMissing for those that have none.

    Only with ``allow_build_scripts`` are programs of a project, or of what it depends on, run to build it.
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
