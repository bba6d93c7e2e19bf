"""Finds the git commit of sources without reading the repository's configuration.

A repository's ``config`` can name programs, which git runs: file system monitors, filters, hooks. So git gets a
temporary repository without configuration, with links to the references and objects of the real one
(gitrepository-layout(5)). It is queried only for objects, never for the state of the work tree.
"""

from __future__ import annotations

import hashlib
import logging
import os
import resource
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from wasmline.build.toolchains.compiler_process import environment, find_executable

log = logging.getLogger(__name__)

_NO_CONFIGURATION = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_SYSTEM": os.devnull,
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_LITERAL_PATHSPECS": "1",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
}
_MAX_LINE_BYTES = 4096
_MAX_ARGUMENT_BYTES = 100_000
"""Maximum size of the paths in one query; all arguments and variables of a process may have 2 MiB, or less."""
_POINTER_BYTES = 9
"""Size of each argument in addition to its letters: its terminator and its pointer."""
_TIMEOUT_S = 30
"""Seconds for all queries about one repository and its submodules."""
_MAX_MEMORY_BYTES = 2 << 30
"""Memory limit of git: the size of an object or a reference is unbounded."""
_SMALL_WINDOWS = ("-c", "core.packedGitWindowSize=32m", "-c", "core.packedGitLimit=256m")
_NO_OBJECT = (b"", b"", b"")

_Objects = dict[bytes, list[bytes]]
"""Mode, type and name of objects, by their paths in a commit."""


def repository_root(folder: Path) -> Path | None:
    """Return the nearest folder with a ``.git``: this one or one above it."""
    return next((place for place in (folder.resolve(), *folder.resolve().parents) if (place / ".git").exists()), None)


def revision(folder: Path, files: Iterable[Path]) -> str | None:
    """Return the git commit of a folder, with ``+dirty`` if one of the files differs from it.

    Files of a submodule are compared with the submodule's commit, which must be the one in the folder's commit. Files
    outside the repository do not count. None outside git, without git, and for a repository whose references or
    objects are not in git's original format.
    """
    git, root = find_executable("git"), repository_root(folder)
    if git is None or root is None:
        return None
    return _revision(git, root, [file for file in files if file.is_relative_to(root)])


def _revision(git: str, root: Path, files: Sequence[Path]) -> str | None:
    """Return the revision of the repository whose work tree is ``root``."""
    deadline = time.monotonic() + _TIMEOUT_S
    found = _contents(git, root, files, deadline)
    if found is None:
        return None
    commit, objects = found
    dirty = f"{commit}+dirty"
    blobs: list[tuple[Path, bytes]] = []
    following = [(root, files, objects)]
    while following:
        place, below, objects = following.pop()
        submodules: dict[Path, list[Path]] = {}
        for file in below:
            path = file.relative_to(place)
            _, kind, name = objects.get(os.fsencode(path), _NO_OBJECT)
            above = path.parents[:-1]  # without the root, whatever a tree has for it
            submodule = next((at for at in above if objects.get(os.fsencode(at), _NO_OBJECT)[1] == b"commit"), None)
            if submodule is not None:
                submodules.setdefault(submodule, []).append(file)
            elif kind != b"blob":
                return dirty
            else:
                blobs.append((file, name))
        for path, inner in submodules.items():
            found = _contents(git, place / path, inner, deadline)
            if found is None or found[0] != objects[os.fsencode(path)][2].decode():
                return dirty
            following.append((place / path, inner, found[1]))
    return dirty if any(name != _blob(file) for file, name in blobs) else commit


def _contents(git: str, root: Path, files: Sequence[Path], deadline: float) -> tuple[str, _Objects] | None:
    """Return the commit of a work tree, and its objects for those files; None if git fails."""
    with tempfile.TemporaryDirectory(prefix="wasmline-git-") as place:
        repository = Path(place)
        try:
            if not _link(root / ".git", repository):
                return None
        except OSError as error:
            log.warning(
                "%s cannot be read, and the build's report has no revision: %s: allow to read it, or remove it",
                root / ".git",
                error.strerror,
            )
            return None
        answer = _git(git, repository, deadline, "rev-parse", "--verify", "HEAD^{commit}")
        if answer is None:
            return None
        commit = answer.decode().strip()
        objects = _objects(git, repository, deadline, commit, [file.relative_to(root) for file in files])
        return None if objects is None else (commit, objects)


def _link(git: Path, repository: Path) -> bool:
    """Create a repository with the head, the references and the objects of another; False if that has none."""
    if git.is_file():  # an additional work tree, or a submodule
        git = git.parent / _line(git).removeprefix("gitdir: ")
    common = git / (_line(git / "commondir") or ".")
    (repository / "HEAD").write_bytes(os.fsencode(_line(git / "HEAD")) + b"\n")
    for name in ("objects", "refs", "packed-refs"):
        found = common / name
        if found.is_file() if name == "packed-refs" else found.is_dir():
            (repository / name).symlink_to(found.resolve())
    return (repository / "objects").is_dir() and (repository / "refs").is_dir()


def _line(path: Path) -> str:
    """Return the first line of a short file; empty if there is no such file."""
    if not path.is_file():
        return ""
    with path.open("rb") as file:
        return os.fsdecode(file.read(_MAX_LINE_BYTES).partition(b"\n")[0])


def _git(git: str, repository: Path, deadline: float, *arguments: str) -> bytes | None:
    """Return git's output; None if it fails, or blocks on a file of its own that is not regular."""
    command = [git, *_SMALL_WINDOWS, f"--git-dir={repository}", *arguments]
    with subprocess.Popen(
        command,
        cwd=repository,
        env=environment() | _NO_CONFIGURATION,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        if hasattr(resource, "prlimit"):
            with suppress(ProcessLookupError):  # it has ended already
                resource.prlimit(process.pid, resource.RLIMIT_AS, (_MAX_MEMORY_BYTES, _MAX_MEMORY_BYTES))
        try:
            answer, _ = process.communicate(timeout=max(deadline - time.monotonic(), 0))
        except subprocess.TimeoutExpired:
            process.kill()
            log.warning("git timed out after %s s: the build's report has no revision", _TIMEOUT_S)
            return None
    return answer if process.returncode == 0 else None


def _objects(git: str, repository: Path, deadline: float, commit: str, files: Iterable[Path]) -> _Objects | None:
    """Return mode, type and object of the files that are in a commit, and of submodules above them, by path.

    None if git fails. Only these are queried: a commit of some kilobytes can list more files than fit into memory.
    """
    objects = {}
    for paths in _batches(sorted({os.fsencode(path) for file in files for path in (file, *file.parents[:-1])})):
        asked = map(os.fsdecode, paths)
        listed = _git(git, repository, deadline, "ls-tree", "-z", "--full-tree", commit, "--", *asked)
        if listed is None:
            return None
        for information, _, path in (entry.partition(b"\t") for entry in listed.split(b"\0")):
            objects[path] = information.split()
    return objects


def _batches(paths: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Yield paths in lists that fit in the arguments of a process."""
    batch: list[bytes] = []
    size = 0
    for path in paths:
        if size + len(path) > _MAX_ARGUMENT_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(path)
        size += len(path) + _POINTER_BYTES
    if batch:
        yield batch


def _blob(file: Path) -> bytes:
    """Return the name that git gives to a file's content."""
    content = file.read_bytes()
    return hashlib.sha1(b"blob %d\0%s" % (len(content), content), usedforsecurity=False).hexdigest().encode()
