"""Stores folders on a disk: written to a staging folder, flushed to the disk, then renamed.

Every folder is opened relative to its parent and without following links, so that none can lead out of the registry,
not even one that is replaced by a link meanwhile. An intermediate folder need not be readable.
"""

from __future__ import annotations

import errno
import logging
import os
import shutil
import stat
import uuid
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path, PurePosixPath

from wasmline.errors import InvalidLayout
from wasmline.registry.storage import (
    MAX_ENTRIES,
    NOTHING_PUBLISHED,
    File,
    too_many_entries_error,
    unavailable_error,
    wrong_kind_error,
)

logger = logging.getLogger(__name__)

_ROOT = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
_FOLDER = _ROOT | os.O_NOFOLLOW
_READABLE = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
"""Flags for reading that do not wait for a pipe's writer."""

_NOT_A_FOLDER = (errno.ENOTDIR, errno.ELOOP)
_NOT_A_FILE = (errno.ELOOP, errno.ENXIO)
_NO_FLUSH = (errno.EINVAL, errno.EBADF, errno.ENOSYS, errno.ENOTSUP)
"""Errors of file systems that do not flush folders, such as some of FUSE and SMB."""

_NO_CHANGE = (errno.EACCES, errno.EPERM, errno.EXDEV, errno.ENOSYS, errno.ENOTSUP)
"""Errors of file systems for folders of other users, and without hard links."""


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
            raise unavailable_error(self.url, error, folder, NOTHING_PUBLISHED) from error

    def read(self, path: str, limit: int) -> bytes | None:
        place = PurePosixPath(path)
        try:
            with self._opened(place.parent) as parent:
                descriptor = os.open(place.name, _READ, dir_fd=parent)
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                os.close(descriptor)
                raise wrong_kind_error("file", path, self.url)
            with os.fdopen(descriptor, "rb") as file:
                return file.read(min(status.st_size, limit) + 1)
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno in _NOT_A_FILE:
                raise wrong_kind_error("file", path, self.url) from error
            raise unavailable_error(self.url, error, path) from error

    def folders(self, parent: str, marker: str | None = None, *, known: Collection[str] = ()) -> list[str]:
        try:
            with self._opened(PurePosixPath(parent)) as folder, _readable(folder) as readable:
                with os.scandir(readable) as entries:
                    found = list(islice(entries, MAX_ENTRIES + 1))
                    names = [entry.name for entry in found if entry.is_dir(follow_symlinks=False)]
                if len(found) > MAX_ENTRIES:
                    raise too_many_entries_error(parent, self.url)
                return sorted(
                    name for name in names if marker is None or name in known or self._holds(folder, name, marker)
                )
        except FileNotFoundError:
            return []
        except OSError as error:
            raise unavailable_error(self.url, error, parent) from error

    @contextmanager
    def _opened(self, folder: PurePosixPath, *, make: bool = False) -> Iterator[int]:
        """Yield a descriptor of a folder below the root, for ``dir_fd``."""
        descriptor = os.open(self._root, _ROOT)
        place = PurePosixPath()
        try:
            for part in folder.parts:
                place /= part
                if make:
                    _make_folder(part, descriptor)
                below = self._enter(part, descriptor, place)
                os.close(descriptor)
                descriptor = below
            yield descriptor
        finally:
            os.close(descriptor)

    def _enter(self, part: str, at: int, place: PurePosixPath) -> int:
        try:
            return os.open(part, _FOLDER, dir_fd=at)
        except OSError as error:
            if error.errno in _NOT_A_FOLDER:
                raise wrong_kind_error("folder", str(place), self.url) from error
            raise

    def _write(self, path: PurePosixPath, content: bytes) -> None:
        """Write a file and flush it to the disk: a full disk fails now, not after the rename."""
        with self._opened(path.parent, make=True) as folder:
            with os.fdopen(os.open(path.name, _WRITE, 0o666, dir_fd=folder), "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            _flush(folder)

    def _install(self, parent: int, staging: str, folder: PurePosixPath, paths: Sequence[str]) -> bool:
        """Rename a written folder to its name; False if a folder with the marker has that name."""
        try:
            os.rename(staging, folder.name, src_dir_fd=parent, dst_dir_fd=parent)
            _flush(parent)
        except OSError as error:
            if error.errno in _NOT_A_FOLDER:
                raise wrong_kind_error("folder", str(folder), self.url) from error
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            if self._holds(parent, folder.name, paths[-1]):
                return False
            return self._complete(staging, folder, paths)
        return True

    def _complete(self, staging: str, folder: PurePosixPath, paths: Sequence[str]) -> bool:
        """Move files into a folder that lacks its marker, the marker last; False if another writer set one first.

        All files except the marker have the same names or contents for every writer, so that they do not conflict.
        """
        *contents, marker = paths
        try:
            for path in contents:
                self._replace(folder.parent / staging / path, folder / path)
            with self._opened(folder.parent / staging) as written, self._opened(folder) as holder:
                os.link(marker, marker, src_dir_fd=written, dst_dir_fd=holder, follow_symlinks=False)
                _flush(holder)
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno not in _NO_CHANGE:
                raise
            raise InvalidLayout(
                f"{folder} in {self.url} has no {marker} and cannot be completed ({error.strerror}): remove it, or "
                "allow to write to it",
                path=str(folder),
            ) from error
        return True

    def _replace(self, source: PurePosixPath, place: PurePosixPath) -> None:
        with self._opened(source.parent) as written, self._opened(place.parent, make=True) as holder:
            try:
                os.replace(source.name, place.name, src_dir_fd=written, dst_dir_fd=holder)
            except IsADirectoryError as error:
                raise wrong_kind_error("file", str(place), self.url) from error
            _flush(holder)

    def _holds(self, parent: int, name: str, marker: str) -> bool:
        """Return whether a folder has a file ``marker``; an unreadable folder is skipped."""
        try:
            folder = os.open(name, _FOLDER, dir_fd=parent)
            try:
                status = os.stat(marker, dir_fd=folder, follow_symlinks=False)
            finally:
                os.close(folder)
        except FileNotFoundError:
            return False
        except OSError as error:
            logger.warning("%s in the registry at %s is passed over: %s", ascii(name), self.url, error.strerror)
            return False
        return stat.S_ISREG(status.st_mode)


def _make_root(root: Path) -> None:
    """Create the registry's folder and its parents if missing."""
    with suppress(FileExistsError):
        try:
            root.mkdir()
        except FileNotFoundError:
            _make_root(root.parent)
            root.mkdir()
        folder = os.open(root.parent, _ROOT)
        try:
            _flush(folder)
        finally:
            os.close(folder)


def _make_folder(name: str, at: int) -> None:
    with suppress(FileExistsError):
        os.mkdir(name, dir_fd=at)
        _flush(at)


@contextmanager
def _readable(folder: int) -> Iterator[int]:
    """Yield a descriptor of an opened folder for reading its entries."""
    descriptor = os.open(".", _READABLE, dir_fd=folder)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _flush(folder: int) -> None:
    """Flush a folder's entries to the disk, as far as its file system and its mode allow."""
    try:
        with _readable(folder) as descriptor:
            os.fsync(descriptor)
    except PermissionError:
        return
    except OSError as error:
        if error.errno not in _NO_FLUSH:
            raise
