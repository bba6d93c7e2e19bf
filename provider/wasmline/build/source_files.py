"""Finds the source files of a project."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from wasmline.build.project import FILE, TransformProject
from wasmline.errors import InvalidProject
from wasmline.printable import bounded_line

MAX_PATTERN_LETTERS = 4_096
"""Maximum letters of all patterns together: each one is searched in all folders."""


def sources(project: TransformProject, defaults: Sequence[str]) -> tuple[Path, ...]:
    """Return the files to compile, sorted, relative to the project's folder. Raises InvalidProject if none match."""
    patterns = project.sources or tuple(defaults)
    if sum(map(len, patterns)) > MAX_PATTERN_LETTERS:
        raise _refused(project, f"`sources` has more than {MAX_PATTERN_LETTERS} letters: name folders, not each file")
    found = {path for pattern in patterns for path in _matches(project, pattern)}
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


def _matches(project: TransformProject, pattern: str) -> Iterator[Path]:
    """Yield the files that a pattern matches, in one pass over the folders in which it can match.

    ``**`` is any number of folders. Links to folders are followed if the pattern names them, before its first
    wildcard. (``Path.glob`` visits a folder once for each path to it: ``**/**`` has many, and so have cycles of links.)
    """
    every = Path(pattern).parts
    parts = tuple(part for at, part in enumerate(every) if every[at - 1 : at + 1] != ("**", "**"))
    if Path(pattern).is_absolute() or ".." in parts:
        raise _bad_pattern(project, pattern, "which leaves the project's folder")
    if not parts:
        raise _bad_pattern(project, pattern, "which is not a pattern of files")
    named = next((at for at, part in enumerate(parts[:-1]) if any(c in part for c in "*?[")), len(parts) - 1)
    wildcards = parts[named:]
    start = project.folder.joinpath(*parts[:named])
    if not Path(os.path.realpath(start)).is_relative_to(os.path.realpath(project.folder)):
        raise _bad_pattern(project, pattern, "which follows a link out of the project's folder")
    following = [(start, _from(0, wildcards))]
    while following:
        folder, at = following.pop()
        for entry in _entries(project, folder):
            matched = {place for place in at if fnmatchcase(entry.name, wildcards[place])}
            if entry.is_dir(follow_symlinks=False):
                reached = {place for place in at if wildcards[place] == "**"}
                reached.update(*(_from(place + 1, wildcards) for place in matched if place + 1 < len(wildcards)))
                if reached:
                    following.append((Path(entry), reached))
            elif len(wildcards) - 1 in matched and os.path.isfile(entry):  # noqa: PTH113 - also of a link that cannot be followed
                yield Path(entry)


def _entries(project: TransformProject, folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise _refused(
            project, f"{bounded_line(folder)} cannot be read: {error.strerror}: remove it, or name others in `sources`"
        ) from error


def _from(place: int, wildcards: Sequence[str]) -> set[int]:
    """Return the positions in a pattern that may match next, from ``place`` on: ``**`` may match nothing."""
    following = next((at for at in range(place, len(wildcards)) if wildcards[at] != "**"), len(wildcards) - 1)
    return {*range(place, following + 1)}


def _bad_pattern(project: TransformProject, pattern: str, problem: str) -> InvalidProject:
    return _refused(project, f"`sources` has {pattern!r}, {problem}")


def _refused(project: TransformProject, problem: str) -> InvalidProject:
    path = project.folder / FILE
    return InvalidProject(f"{path}: {bounded_line(problem)}", path=str(path), line=None)
