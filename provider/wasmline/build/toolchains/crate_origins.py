"""Checks the origins of a project's crates, before cargo contacts them.

A crate must be from a registry in the user's own settings of cargo, such as crates.io, or from a folder near the
project. A manifest can name other origins: a git repository, a registry by its address, any folder of this machine.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from wasmline.build.inputs import check_folder
from wasmline.build.project import TransformProject
from wasmline.errors import BuildFailed

_TAKES = "Cargo.toml takes a crate or its workspace from"


def check_sources(project: TransformProject, describe: Callable[[Path], Mapping[str, Any]]) -> dict[str, Path]:
    """Return the workspaces in other folders from whose manifests a project's crates inherit, by a name.

    ``describe`` returns cargo's description of the workspace that a folder belongs to, without its dependencies
    (``cargo metadata --no-deps``). Raises BuildFailed for a crate of a git repository, of a registry by its address,
    or of a folder that is not near the project.
    """
    workspaces: dict[str, Path] = {}
    found: set[Path] = set()
    following = [project.folder]
    while following:
        folder = following.pop()
        if folder in found:
            continue
        found.add(folder)
        check_folder(project, folder, _TAKES)
        described = describe(folder)
        root, packages = Path(described["workspace_root"]), described["packages"]
        if root == project.folder:
            following += _overrides(project)
        else:
            packages = [package for package in packages if Path(package["manifest_path"]).parent == folder]
            workspaces[f"workspace {os.path.relpath(root, project.folder)}"] = root
        manifests = {root / "Cargo.toml", *(Path(package["manifest_path"]) for package in packages)}
        for manifest in manifests:
            check_folder(project, manifest.parent, _TAKES)
            _reject_addresses(project, manifest)
        found |= {manifest.parent for manifest in manifests if manifest.parent != root}
        needed = [dependency for package in packages for dependency in package["dependencies"]]
        reject_git(project, needed)
        following += [Path(dependency["path"]) for dependency in needed if "path" in dependency]
    return workspaces


def reject_git(project: TransformProject, crates: Iterable[Mapping[str, Any]]) -> None:
    """Raise BuildFailed for a crate of a git repository; ``crates`` have a name and a source.

    Such a crate can contain links to any file, which cargo follows when it copies the crate; and a commit changes the
    crate but not its version, by which cargo decides whether to compile it again.
    """
    if wrong := sorted(f"{one['name']}: {one['source']}" for one in crates if (one["source"] or "").startswith("git+")):
        raise BuildFailed(
            f"{project.name}: {wrong[0]} is a git repository, which is not supported: take the crate from a registry, "
            "or copy it into the project and depend on it by path",
            log="\n".join(wrong),
        )


def parsed(project: TransformProject, manifest: Path) -> dict[str, Any]:
    """Return a manifest as a document. Raises BuildFailed if it is not TOML 1.0."""
    try:
        return tomllib.loads(manifest.read_text("utf-8"))
    except (ValueError, RecursionError) as error:
        raise BuildFailed(f"{project.name}: {manifest} is not TOML 1.0: {error}", log="") from error


def _reject_addresses(project: TransformProject, manifest: Path) -> None:
    """Raise BuildFailed for a registry that a manifest names by its address: a project may not choose servers."""
    if addresses := [*_values(parsed(project, manifest), "registry-index")]:
        raise BuildFailed(
            f"{project.name}: {manifest} takes a crate from the registry {addresses[0]}, by its address, which is not "
            "supported: name it by `registry`, and give its address in your own ~/.cargo/config.toml",
            log="",
        )


def _overrides(project: TransformProject) -> list[Path]:
    """Return the folders of ``[patch]`` and ``[replace]``, which are not in cargo's description."""
    manifest = parsed(project, project.folder / "Cargo.toml")
    tables = {key: value for key, value in manifest.items() if key in ("patch", "replace")}
    reject_git(project, [{"name": "an override", "source": f"git+{address}"} for address in _values(tables, "git")])
    paths = [path for path in _values(tables, "path") if isinstance(path, str) and "\0" not in path]
    return [Path(os.path.normpath(project.folder / path)) for path in paths]


def _values(table: Mapping[str, Any], key: str) -> Iterator[Any]:
    """Yield the values of a key in a table and in nested tables."""
    following = [table]
    while following:
        for name, value in following.pop().items():
            if isinstance(value, dict):
                following.append(value)
            elif name == key:
                yield value
