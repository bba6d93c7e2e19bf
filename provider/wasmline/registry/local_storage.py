"""Folders on a disk: written beside their place, flushed to the disk, then renamed.

Every folder is opened relative to its parent and without following links, so that none can lead out of the registry,
not even one that is exchanged for a link meanwhile.
"""

from __future__ import annotations

import errno
import logging
import os
import shutil
import stat
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath

from wasmline.errors import InvalidLayout
from wasmline.registry.storage import NOTHING_PUBLISHED, File, unavailable

logger = logging.getLogger(__name__)

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
"""Does not wait for a pipe's writer."""

_NOT_A_FOLDER = (errno.ENOTDIR, errno.ELOOP)
_NOT_A_FILE = (errno.ELOOP, errno.ENXIO)


class LocalStorage:
    """Folders below ``root``, which may itself be a link."""

    def __init__(self, root: Path) -> None:
        self.url = str(root)
        self._root = root

    def create(self, folder: str, files: Sequence[File]) -> bool:
        place = PurePosixPath(folder)
        staging = f".{place.name}.{uuid.uuid4().hex}"
        try:
            _make_root(self._root)
            with self._opened(place.parent, make=True) as parent:
                try:
                    for path, content in files:
                        self._write(place.parent / staging / path, content)
                    return self._install(parent, staging, place, [path for path, _ in files])
                finally:
                    shutil.rmtree(staging, ignore_errors=True, dir_fd=parent)
        except OSError as error:
            raise unavailable(self.url, error, NOTHING_PUBLISHED) from error

    def read(self, path: str, limit: int) -> bytes | None:
        place = PurePosixPath(path)
        try:
            with self._opened(place.parent) as parent:
                descriptor = os.open(place.name, _READ, dir_fd=parent)
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                os.close(descriptor)
                raise self._not_a("file", place)
            with os.fdopen(descriptor, "rb") as file:
                return file.read(min(status.st_size, limit) + 1)
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno in _NOT_A_FILE:
                raise self._not_a("file", place) from error
            raise unavailable(self.url, error) from error

    def folders(self, parent: str, marker: str | None = None) -> list[str]:
        try:
            with self._opened(PurePosixPath(parent)) as descriptor, os.scandir(descriptor) as entries:
                names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
                return sorted(name for name in names if marker is None or self._holds(descriptor, name, marker))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise unavailable(self.url, error) from error

    @contextmanager
    def _opened(self, folder: PurePosixPath, *, make: bool = False) -> Iterator[int]:
        """Yield a descriptor of a folder below the root."""
        descriptor = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for part in folder.parts:
                if make:
                    _make_folder(part, descriptor)
                below = self._enter(part, descriptor, folder)
                os.close(descriptor)
                descriptor = below
            yield descriptor
        finally:
            os.close(descriptor)

    def _enter(self, part: str, at: int, folder: PurePosixPath) -> int:
        try:
            return os.open(part, _FOLDER, dir_fd=at)
        except OSError as error:
            if error.errno in _NOT_A_FOLDER:
                raise self._not_a("folder", folder) from error
            raise

    def _write(self, path: PurePosixPath, content: bytes) -> None:
        """Write a file and wait until the disk has it: a disk that is full says so now, not after the rename."""
        with self._opened(path.parent, make=True) as folder:
            with os.fdopen(os.open(path.name, _WRITE, 0o666, dir_fd=folder), "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.fsync(folder)

    def _install(self, parent: int, staging: str, folder: PurePosixPath, paths: Sequence[str]) -> bool:
        """Give a written folder its name; False if a folder with the marker has it."""
        try:
            os.rename(staging, folder.name, src_dir_fd=parent, dst_dir_fd=parent)
            os.fsync(parent)
        except OSError as error:
            if error.errno in _NOT_A_FOLDER:
                raise self._not_a("folder", folder) from error
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            if self._holds(parent, folder.name, paths[-1]):
                return False
            return self._complete(staging, folder, paths)
        return True

    def _complete(self, staging: str, folder: PurePosixPath, paths: Sequence[str]) -> bool:
        """Move files into a folder that lacks its marker, the marker last; False if another writer set one first.

        All but the marker have names or contents that are the same for every writer, so that these do not conflict.
        """
        *contents, marker = paths
        for path in contents:
            place = folder / path
            source = folder.parent / staging / path
            with self._opened(source.parent) as written, self._opened(place.parent, make=True) as holder:
                os.replace(place.name, place.name, src_dir_fd=written, dst_dir_fd=holder)
                os.fsync(holder)
        with self._opened(folder.parent / staging) as written, self._opened(folder) as holder:
            try:
                os.link(marker, marker, src_dir_fd=written, dst_dir_fd=holder, follow_symlinks=False)
            except FileExistsError:
                return False
            os.fsync(holder)
        return True

    def _holds(self, parent: int, name: str, marker: str) -> bool:
        """Return whether a folder holds a file ``marker``; one that cannot be looked into is passed over."""
        try:
            status = os.stat(f"{name}/{marker}", dir_fd=parent, follow_symlinks=False)
        except FileNotFoundError:
            return False
        except OSError as error:
            logger.warning("%s in the registry at %s is passed over: %s", ascii(name), self.url, error.strerror)
            return False
        return stat.S_ISREG(status.st_mode)

    def _not_a(self, kind: str, path: PurePosixPath) -> InvalidLayout:
        return InvalidLayout(
            f"{path} in {self.url} is not a {kind}, and links are not followed: remove it", path=str(path)
        )


def _make_root(root: Path) -> None:
    """Make the registry's folder and its parents where they are missing."""
    with suppress(FileExistsError):
        try:
            root.mkdir()
        except FileNotFoundError:
            _make_root(root.parent)
            root.mkdir()
        _flush(root.parent)


def _make_folder(name: str, at: int) -> None:
    with suppress(FileExistsError):
        os.mkdir(name, dir_fd=at)
        os.fsync(at)


def _flush(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
