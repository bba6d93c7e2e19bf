"""Cargo's description of a project: its crates, and their code that would run on this machine.

The form is that of ``cargo metadata --format-version 1``.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from wasmline.build.inputs import PROJECT
from wasmline.build.project import TransformProject
from wasmline.build.toolchains.crate_origins import parsed
from wasmline.errors import BuildFailed

_NOT_SOURCES = ("build", "samples", "target")
_HOST_CODE_KINDS = {"custom-build": "build script", "proc-macro": "macro"}
"""The kinds of targets that run on this machine during a build."""


class Crates:
    """The crates that a project is compiled from."""

    def __init__(
        self, project: TransformProject, metadata: Mapping[str, Any], workspaces: Mapping[str, Path] | None = None
    ) -> None:
        self._project = project
        self.workspaces = dict(workspaces or {})
        """The folders of other workspaces, by name: crates inherit from the manifests there."""
        self._packages = {package["id"]: package for package in metadata["packages"]}
        self._nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
        self.root: str = metadata["resolve"]["root"] or ""
        """The crate in the project's own folder; empty if there is none."""
        local = [package for package in self._packages.values() if package["source"] is None]
        _check_names(project, local)
        self.ids = [package["id"] for package in local]
        """The crates that are compiled from folders of this disk."""
        self.folders = {package["name"]: Path(package["manifest_path"]).parent for package in local}

    def places(self) -> dict[str, Path]:
        """Return the folders on this disk, the project's among them, for ``inputs.input_names``."""
        own = self._project.folder
        return {PROJECT: own} | {name: folder for name, folder in self.folders.items() if folder != own}

    def files(self) -> Iterator[Path]:
        """Yield the files in the crates' folders, except hidden ones, samples and the results of builds.

        Links to one of these files are included.
        """
        found, links = set(), []
        for folder in self.places().values():
            found.add(folder / "Cargo.toml")
            for at, folders, names in os.walk(folder):
                left_out = _NOT_SOURCES if Path(at) == folder else ()
                folders[:] = [name for name in folders if name[0] != "." and name not in left_out]
                files = [Path(at, name) for name in names if name[0] != "."]
                links += [file for file in files if file.is_symlink()]
                found.update(file for file in files if file.is_file() and not file.is_symlink())
        yield from found
        yield from (link for link in links if Path(os.path.realpath(link)) in found)

    def binary_target(self) -> str:
        """Return the name of the one program that the project builds."""
        targets = self._packages.get(self.root, {"targets": []})["targets"]
        programs: list[str] = [target["name"] for target in targets if "bin" in target["kind"]]
        if len(programs) != 1:
            raise BuildFailed(
                f"{self._project.name}: {self._project.folder / 'Cargo.toml'} builds "
                f"{', '.join(programs) or 'no program'}; a transform is exactly one program",
                log="",
            )
        return programs[0]

    def reject_host_code(self) -> None:
        """Raise BuildFailed if a build would run code of the project or of its dependencies on this machine."""
        manifest = parsed(self._project, self._project.folder / "Cargo.toml")
        runs = [f"{manifest['cargo-features']} of cargo's unstable features"] if "cargo-features" in manifest else []
        for package in self._compiled():
            kinds = {kind for target in package["targets"] for kind in target["kind"]}
            runs += [
                f"{package['name']} {package['version']} ({_HOST_CODE_KINDS[kind]})"
                for kind in sorted(kinds & _HOST_CODE_KINDS.keys())
            ]
        if runs:
            raise BuildFailed(
                f"{self._project.name} needs code that runs on this machine, outside of the sandbox, to be built: "
                f"{', '.join(sorted(runs))}. If you trust it: wasmline build {shlex.quote(str(self._project.folder))} "
                "--allow-build-scripts (operators: allow_build_scripts=True)",
                log="",
            )

    def _compiled(self) -> Iterator[dict[str, Any]]:
        """Yield the packages that a build compiles: all dependencies except those for tests."""
        found: set[str] = set()
        following = [self.root]
        while following:
            package = following.pop()
            if package not in found:
                found.add(package)
                yield self._packages[package]
                needed = self._nodes[package]["deps"]
                following += [dep["pkg"] for dep in needed if any(kind["kind"] != "dev" for kind in dep["dep_kinds"])]


def _check_names(project: TransformProject, packages: list[dict[str, Any]]) -> None:
    """Raise BuildFailed for a path that rustc would not take as a path among its arguments."""
    for package in packages:
        folder = Path(package["manifest_path"]).parent
        paths = [Path(os.path.relpath(target["src_path"], folder)) for target in package["targets"]]
        wrong = [path for path in paths if any(part[0] in "@-" for part in path.parts)]
        wrong += [] if str(folder).isprintable() else [folder]
        if wrong:
            raise BuildFailed(
                f"{project.name}: {str(wrong[0])!r} cannot name a crate's file or folder: to rustc, what begins with "
                "@ or - may be an option, and what is not printable may end one",
                log="\n".join(map(str, wrong)),
            )
