"""The input files of a compiler, by names that do not depend on the location of their folders."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path

from wasmline.build.project import TransformProject
from wasmline.build.revision import repository_root
from wasmline.digests import sequence_digest
from wasmline.errors import BuildFailed

MAX_INPUT_BYTES = 1 << 30
"""A larger file is rejected: each one is read into memory."""

_PROCESSES = Path("/proc")
_MAX_LINKS = 40  # as many as Linux follows

PROJECT = "."
"""The name of the project's own folder among the places of inputs."""


def input_names(
    project: TransformProject, files: Iterable[Path], places: Mapping[str, Path], *, excluded: Sequence[Path] = ()
) -> dict[str, Path]:
    """Return files by the name of their place and their path in it; the paths are relative to the project's folder.

    Files in ``excluded`` folders are omitted, unless a place lies in one: the compiler's version or a lock file
    identifies their content, but not a project's link to them. Raises BuildFailed for a file anywhere else, or behind
    a link, and for one that is not regular: a project may read only its own files.
    """
    roots = {name: Path(os.path.realpath(folder)) for name, folder in places.items()}
    fixed = [base for folder in excluded for base in (folder, Path(os.path.realpath(folder)))]
    inner = [place for place in (*places.values(), *roots.values()) if _in(place, fixed)]
    inputs = {}
    for file in files:
        if ".." not in file.parts and _in(file, fixed) and not _in(file, inner):
            continue
        real = _real(project, file)
        name = next((name for name, root in roots.items() if real.is_relative_to(root)), None)
        if name is None or "\ufffd" in str(file):  # decoded from a compiler's list: it may represent any byte
            raise _outside(project, file, real, linked=name is None)
        if not real.is_file():  # reading a FIFO would wait for a writer
            raise BuildFailed(f"{project.name} reads {real}, which is not a regular file", log="")
        if real.stat().st_size > MAX_INPUT_BYTES:
            raise BuildFailed(f"{project.name} reads {real}, which has more than {MAX_INPUT_BYTES} bytes", log="")
        bases = (places[name], roots[name])
        path = next((file.relative_to(base) for base in bases if file.is_relative_to(base)), file)
        target = real.relative_to(roots[name])
        shown = target if path.is_absolute() else path
        # A link is not a copy of its target: to `#pragma once`, both are one file.
        linked = f"\0{target.as_posix()}" if Path(os.path.normpath(shown)) != target else ""
        inputs[f"{name}/{shown.as_posix()}{linked}"] = real
    return inputs


def _in(path: Path, folders: Iterable[Path]) -> bool:
    return any(path.is_relative_to(folder) for folder in folders)


def _real(project: TransformProject, file: Path) -> Path:
    """Return a file's real path. Raises BuildFailed for a path through /proc: it differs for each process."""
    path = project.folder / file
    real = Path(os.path.realpath(path))
    if real != path and _PROCESSES in _passed(path):
        raise BuildFailed(
            f"{project.name} reads {file}, a path through {_PROCESSES}: put what it needs into its folder", log=""
        )
    return real


def _passed(path: Path) -> Iterator[Path]:
    """Yield the folders and links on an absolute path, and those on the paths of the links."""
    at, following, links = Path("/"), [*reversed(path.parts[1:])], _MAX_LINKS
    while following:
        at = Path(os.path.normpath(at / following.pop()))
        yield at
        if at.is_symlink() and links:
            target, links = at.readlink(), links - 1
            following += reversed(target.parts)
            at = at.parent


def _outside(project: TransformProject, file: Path, real: Path, *, linked: bool) -> BuildFailed:
    path = Path(os.path.normpath(project.folder / file))
    if linked and path.is_relative_to(project.folder):
        return BuildFailed(
            f"{project.name}: {path.relative_to(project.folder)} is a link to {real}, outside the project: copy the "
            "file into the project",
            log="",
        )
    return BuildFailed(
        f"{project.name} reads {real}, which is outside of the project's folder: put what it needs there",
        log="" if file == real else f"{file} is {real}",
    )


def check_folder(project: TransformProject, folder: Path, named: str) -> None:
    """Raise BuildFailed for a folder outside the project's git repository or, without one, the project's parent.

    ``named``: the origin of the folder, as the message's text before it.
    """
    allowed = repository_root(project.folder) or project.folder.parent.resolve()
    if not folder.resolve().is_relative_to(allowed):
        raise BuildFailed(
            f"{project.name}: {named} {folder}, which is outside of {allowed}: put what the project needs there", log=""
        )


def changed_project_error(project: TransformProject) -> BuildFailed:
    """Return the error of a build whose compiler may have read other files than those in the digest."""
    return BuildFailed(f"{project.name}: its files changed while they were compiled: build again", log="")


def digest(inputs: Mapping[str, Path], facts: Sequence[str]) -> str:
    """Return the digest of files by their names, and of ``facts`` such as a compiler's flags.

    It does not depend on the files' locations or modification times.
    """
    files = ((os.fsencode(name), inputs[name].read_bytes()) for name in sorted(inputs))
    parts = chain((len(facts).to_bytes(8, "big"),), map(os.fsencode, facts), chain.from_iterable(files))
    return f"sha256:{sequence_digest(parts)}"
