"""What a module is built from: which files, their digest, and the git commit they belong to."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from wasmline.build.project import FILE, TransformProject
from wasmline.errors import InvalidProject

_NOT_INPUTS = ("build", "samples")
_HIDDEN_INPUTS = (".cargo",)


def sources(project: TransformProject, defaults: Sequence[str]) -> tuple[Path, ...]:
    """Return the files to compile, sorted, relative to the project's folder. Raises InvalidProject if none are."""
    patterns = project.sources or tuple(defaults)
    found = {path for pattern in patterns for path in _matches(project, pattern) if path.is_file()}
    if not found:
        raise InvalidProject(
            f"{project.folder}: no file matches {', '.join(patterns)}; put the sources there, or name them under "
            f"`sources` in {FILE}",
            path=str(project.folder / FILE),
            line=None,
        )
    return tuple(sorted(path.relative_to(project.folder) for path in found))


def _matches(project: TransformProject, pattern: str) -> Iterable[Path]:
    if Path(pattern).is_absolute() or ".." in Path(pattern).parts:
        raise _bad_pattern(project, pattern, "which leaves the project's folder")
    try:
        return list(project.folder.glob(pattern))
    except ValueError as error:
        raise _bad_pattern(project, pattern, f"which is no pattern of files: {error}") from error


def _bad_pattern(project: TransformProject, pattern: str, problem: str) -> InvalidProject:
    path = project.folder / FILE
    return InvalidProject(f"{path}: `sources` has {pattern!r}, {problem}", path=str(path), line=None)


def digest(folders: Sequence[Path], facts: Sequence[str], *, without: Sequence[str] = ()) -> str:
    """Return the digest of all files that a compiler may read in ``folders``, and of ``facts`` such as its flags.

    Neither where the folders are nor when the files changed counts. Samples, build results, hidden files, the folders
    named in ``without`` and ``transform.yaml`` itself are left out.
    """
    total = hashlib.sha256()
    for fact in facts:
        _add(total, fact.encode())
    for folder in folders:
        for path in sorted(_inputs(folder, {*_NOT_INPUTS, *without})):
            _add(total, path.relative_to(folder).as_posix().encode())
            _add(total, path.read_bytes())
    return f"sha256:{total.hexdigest()}"


def _inputs(folder: Path, without: set[str]) -> Iterator[Path]:
    for path in folder.rglob("*"):
        relative = path.relative_to(folder)
        hidden = any(part.startswith(".") and part not in _HIDDEN_INPUTS for part in relative.parts)
        if path.is_file() and not hidden and relative.parts[0] not in without and str(relative) != FILE:
            yield path


def _add(total: hashlib._Hash, part: bytes) -> None:
    total.update(len(part).to_bytes(8, "big"))
    total.update(part)


def revision(folder: Path) -> str | None:
    """Return the git commit of a folder, with ``+dirty`` where its files differ; None outside git or without git."""
    if shutil.which("git") is None:
        return None
    commit = _git(folder, "rev-parse", "--verify", "HEAD")
    if not commit:
        return None
    changed = _git(folder, "status", "--porcelain", "--", ".", ":(exclude)build")
    return f"{commit}+dirty" if changed else commit


def _git(folder: Path, *arguments: str) -> str | None:
    ended = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=False)
    return ended.stdout.strip() if ended.returncode == 0 else None
