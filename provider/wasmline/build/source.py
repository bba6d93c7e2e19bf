"""The files of a project that are handed to its compiler."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from wasmline.build.project import FILE, TransformProject
from wasmline.errors import InvalidProject


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
    files = tuple(sorted(path.relative_to(project.folder) for path in found))
    for file in files:
        if not str(file).isprintable() or any(part[0] in "@-" for part in file.parts):
            raise InvalidProject(
                f"{project.folder}: a source cannot be named {str(file)!r}: to a compiler, what begins with @ or - may "
                "be an option, and what is not printable cannot be listed",
                path=str(project.folder / FILE),
                line=None,
            )
    return files


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
