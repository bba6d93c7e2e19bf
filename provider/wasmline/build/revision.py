"""The git commit that sources belong to, found without reading the repository's configuration.

A repository's ``config`` can name programs, which git runs: file system monitors, filters, hooks. So git is given a
folder of ours as the repository, without any configuration, and with links to the references and objects of the real
one (gitrepository-layout(5)). And it is asked for objects only, never for the state of the work tree.
"""

from __future__ import annotations

import hashlib
import logging
import os
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from wasmline.build.toolchains.compiler import environment, find_executable

log = logging.getLogger(__name__)

_NO_CONFIGURATION = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_SYSTEM": os.devnull,
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
}
_MAX_LINE_BYTES = 4096
_TIMEOUT_S = 30
_NO_OBJECT = (b"", b"", b"")


def repository_root(folder: Path) -> Path | None:
    """Return the nearest folder with a ``.git``: this one or one above it."""
    return next((place for place in (folder.resolve(), *folder.resolve().parents) if (place / ".git").exists()), None)


def revision(folder: Path, files: Iterable[Path]) -> str | None:
    """Return the git commit of a folder, with ``+dirty`` where one of the files is not in it byte for byte.

    Those of a submodule are in it if they are in the submodule's commit, and that is the one the folder's commit has.
    Files outside the repository do not count. None outside git, without git, and for a repository whose references or
    objects are in another format than git's first.
    """
    git, root = find_executable("git"), repository_root(folder)
    return None if git is None or root is None else _revision(git, root, [*files])


def _revision(git: str, root: Path, files: Sequence[Path]) -> str | None:
    """Return the revision of the repository whose work tree is ``root``."""
    with tempfile.TemporaryDirectory(prefix="wasmline-git-") as place:
        repository = Path(place)
        if not _link(root / ".git", repository):
            return None
        commit = _git(git, repository, "rev-parse", "--verify", "HEAD^{commit}")
        if commit is None:
            return None
        listed = _git(git, repository, "ls-tree", "-r", "-z", "--full-tree", commit.decode().strip()) or b""
    objects = {path: information.split() for information, _, path in _entries(listed)}
    submodules: dict[Path, list[Path]] = {}
    dirty = False
    for file in (file.relative_to(root) for file in files if file.is_relative_to(root)):
        _, kind, name = objects.get(os.fsencode(file), _NO_OBJECT)
        above = file.parents[:-1]  # without the root, whatever a tree says of it
        submodule = next((path for path in above if objects.get(os.fsencode(path), _NO_OBJECT)[1] == b"commit"), None)
        if submodule is not None:
            submodules.setdefault(submodule, []).append(root / file)
        else:
            dirty = dirty or kind != b"blob" or name != _blob(root / file)
    for path, below in submodules.items():
        dirty = dirty or _revision(git, root / path, below) != objects[os.fsencode(path)][2].decode()
    return commit.decode().strip() + ("+dirty" if dirty else "")


def _link(git: Path, repository: Path) -> bool:
    """Make a repository that has the head, the references and the objects of another; False where that has none."""
    if git.is_file():  # of a further work tree, or of a submodule
        git = git.parent / _line(git).removeprefix("gitdir: ")
    common = git / (_line(git / "commondir") or ".")
    (repository / "HEAD").write_bytes(os.fsencode(_line(git / "HEAD")) + b"\n")
    for name in ("objects", "refs", "packed-refs"):
        found = common / name
        if found.is_file() if name == "packed-refs" else found.is_dir():
            (repository / name).symlink_to(found.resolve())
    return (repository / "objects").is_dir() and (repository / "refs").is_dir()


def _line(path: Path) -> str:
    """Return the first line of a short file; nothing where there is no such file."""
    if not path.is_file():
        return ""
    with path.open("rb") as file:
        return os.fsdecode(file.read(_MAX_LINE_BYTES).partition(b"\n")[0])


def _git(git: str, repository: Path, *arguments: str) -> bytes | None:
    """Return what git prints; None where it fails, or waits for what is no regular file among its own."""
    command = [git, f"--git-dir={repository}", *arguments]
    try:
        ended = subprocess.run(
            command,
            cwd=repository,
            env=environment() | _NO_CONFIGURATION,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        log.warning("git did not answer within %s s: the build's report has no revision", _TIMEOUT_S)
        return None
    return ended.stdout if ended.returncode == 0 else None


def _entries(listed: bytes) -> Iterable[tuple[bytes, bytes, bytes]]:
    """Return ``mode type object``, a tab and the path of each file in git's list."""
    return (entry.partition(b"\t") for entry in listed.split(b"\0") if entry)


def _blob(file: Path) -> bytes:
    """Return the name that git gives to a file's content."""
    content = file.read_bytes()
    return hashlib.sha1(b"blob %d\0%s" % (len(content), content), usedforsecurity=False).hexdigest().encode()
