"""Opens folders and files that no other user may change.

The rule is that of OpenSSH's StrictModes: every folder and link on the path belongs to this user or to root, and no
other user may write to a folder. Only a sticky folder such as ``/tmp`` is allowed on the path, because others can
neither rename nor replace entries of this user or root in it. Each folder is opened relative to the previous one, so
that the checked folder is the one that is used. POSIX access lists are visible in a file's mode, as its group's; those
of NFSv4, SMB and macOS are not, and are not checked.
"""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

_MAX_LINKS = 40  # as many as Linux follows
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


class UnsafePath(PermissionError):
    """Another user may change ``path``. ``remedy`` is the command that prevents it; empty if there is none."""

    def __init__(self, problem: str, path: Path, *, remedy: str = "") -> None:
        super().__init__(problem)
        self.path = path
        self.remedy = remedy


@contextmanager
def open_folder(path: Path, *, create: bool = False) -> Iterator[int]:
    """Yield a folder's descriptor, for ``dir_fd``; with ``create``, missing folders are made with mode 0700.

    Raises UnsafePath if another user owns the folder, or one above it, or may write to it; OSError if it cannot be
    opened.
    """
    if os.open not in os.supports_dir_fd:
        raise OSError("this system does not report which users may write to a folder")
    with ExitStack() as opened:
        folder = _opened(opened, path.absolute(), create, _MAX_LINKS)
        _check(os.fstat(folder), path)
        yield folder


@contextmanager
def open_file(folder: int, path: Path) -> Iterator[int]:
    """Yield the descriptor, for reading, of the regular file at ``path``, in an open ``folder``.

    Raises the errors of ``open_folder``.
    """
    file = os.open(path.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    try:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            raise UnsafePath(f"{path} is not a regular file", path)
        _check(status, path)
        yield file
    finally:
        os.close(file)


def _opened(opened: ExitStack, path: Path, create: bool, links: int) -> int:
    flags = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | getattr(os, "O_PATH", os.O_RDONLY)
    if path == path.parent:
        folder = os.open(path, flags)
    else:
        parent = _opened(opened, path.parent, create, links)
        target = _target(parent, path, create)
        if target and links:
            return _opened(opened, path.parent / target, create, links - 1)
        folder = os.open(path.name, flags, dir_fd=parent)
    opened.callback(os.close, folder)
    _check(os.fstat(folder), path, sticky=True)
    return folder


def _target(parent: int, path: Path, create: bool) -> str | None:
    """Return the target of a link, or None for a folder, which is created if it does not exist."""
    try:
        status = os.stat(path.name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        if create:
            with suppress(FileExistsError):  # created by another process meanwhile
                os.mkdir(path.name, 0o700, dir_fd=parent)
                os.chmod(path.name, 0o700, dir_fd=parent)  # regardless of the umask
        return None
    if not stat.S_ISLNK(status.st_mode):
        return None
    _check_owner(status, path)
    return os.readlink(path.name, dir_fd=parent)


def _check(status: os.stat_result, path: Path, *, sticky: bool = False) -> None:
    _check_owner(status, path)
    if status.st_mode & _OTHERS_WRITE and not (sticky and status.st_mode & stat.S_ISVTX):
        raise UnsafePath(
            f"other users may write to {path} (mode {stat.S_IMODE(status.st_mode):04o})",
            path,
            remedy=f"chmod go-w {shlex.quote(str(path))}",
        )


def _check_owner(status: os.stat_result, path: Path) -> None:
    if status.st_uid not in (0, os.geteuid()):
        raise UnsafePath(f"{path} belongs to user {status.st_uid}", path)
