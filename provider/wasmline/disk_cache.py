"""Caches reproducible content in files that no other user may change.

An entry is one file, written to a temporary file and renamed: readers in other processes see a complete entry or none.
It begins with the SHA-256 of its name and its content, so that damaged or renamed entries are detected and rebuilt.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import re
import secrets
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from wasmline.trusted_path import UnsafePath, open_file, open_folder

MAX_ENTRY_BYTES = 1 << 30
"""Larger content is neither stored nor read."""

MAX_FOLDER_BYTES = 4 << 30
"""Above it, adding an entry evicts the least recently used ones."""

MAX_UNUSED_S = 30 * 86_400
"""Seconds without use after which an entry is evicted."""

MAX_PARTIAL_AGE_S = 3_600
"""Seconds without a write after which a partial file counts as left by a killed writer."""

TOUCH_INTERVAL_S = 86_400
"""Seconds between two updates of an entry's modification time, which records its use."""

MIN_FREE_BYTES = 128 << 20
"""Minimum free disk space: twice the size of a compiler's standard library."""

_VARIABLE = "WASMLINE_CACHE"
_DEFAULT = "~/.cache/wasmline"
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_FULL = (errno.ENOSPC, errno.EDQUOT)
_PARTIAL = ".partial"
_ENTRY_NAME = re.compile(rf"\.?[0-9a-f]{{64}}[-.].+|tmp\w{{8}}\{_PARTIAL}")
_DIGEST_BYTES = hashlib.sha256().digest_size

_log = logging.getLogger(__name__)
_warned: set[object] = set()
"""Causes of the warnings already logged by this process: a path, an ``errno`` or a value of the variable."""


def cache_root() -> Path | None:
    """Return the folder for all reproducible content: ``$WASMLINE_CACHE``, else ``~/.cache/wasmline``.

    A relative path is not used: it would depend on the current folder, such as a downloaded project. None if there is
    no home folder either.
    """
    configured = os.environ.get(_VARIABLE, "")
    if path := _absolute(configured):
        return path
    default = _absolute(_DEFAULT)
    if configured:
        use = f"using {_DEFAULT}" if default else "no cache folder is used"
        _warn_once(configured, f"{_VARIABLE}={configured} is not an absolute path: {use}")
    elif default is None:
        _warn_once(_DEFAULT, f"no cache folder is used: no home folder is known. Set {_VARIABLE} to an absolute path")
    return default


def _absolute(path: str) -> Path | None:
    expanded = Path(os.path.expanduser(path))  # noqa: PTH111 - leaves "~" where no home folder is known
    return expanded if expanded.is_absolute() else None


def compiler_cache_folder(path: Path, *, fallback: Path) -> Path:
    """Return the absolute ``path`` of a program's cache, or ``fallback`` if that folder cannot be used.

    A folder that other users may enter is closed to them, after a check that it holds nothing of theirs.
    """
    try:
        with open_folder(path, create=True) as folder:
            if not os.access(path, os.W_OK):
                raise PermissionError(errno.EACCES, "this user may not write to it")
            if shutil.disk_usage(path).free < MIN_FREE_BYTES:
                raise OSError(errno.ENOSPC, f"less than {MIN_FREE_BYTES >> 20} MiB are free on its disk")
            _close(path, stat.S_IMODE(os.fstat(folder).st_mode))
            return path.absolute()
    except OSError as error:
        _warn(path, error)
        return fallback


def _close(path: Path, mode: int) -> None:
    """Remove other users' access to a folder of this mode. Raises UnsafePath if one of them owns an entry in it."""
    if not mode & _OTHERS:
        return
    path.chmod(mode & ~_OTHERS)
    for at, folders, files in os.walk(path):
        for entry in (Path(at, name) for name in (*folders, *files)):
            owner = entry.lstat().st_uid
            if owner not in (0, os.geteuid()):
                path.chmod(mode)
                raise UnsafePath(f"user {owner} owns {entry} in it", path)


class CacheFolder:
    """Entries by name. An unusable folder, or None, costs time, but never fails."""

    def __init__(self, path: Path | None) -> None:
        self._path = path

    def get(self, name: str) -> bytes | None:
        """Return the entry of a name, or None."""
        if self._path is None:
            return None
        path = self._path / name
        try:
            with open_folder(self._path) as folder:
                return _entry(folder, path)
        except FileNotFoundError:
            return None
        except OSError as error:
            _warn(self._path, error)
            return None

    def put(self, name: str, content: bytes) -> None:
        """Store an entry, and evict old ones."""
        if self._path is None or len(content) > MAX_ENTRY_BYTES:
            return
        try:
            with open_folder(self._path, create=True) as folder:
                _write(folder, name, content)
                _evict(folder)
        except OSError as error:
            _warn(self._path, error)


def _entry(folder: int, path: Path) -> bytes | None:
    try:
        with open_file(folder, path) as file:
            return _content(file, path)
    except UnsafePath as error:
        _log.warning("%s: it is rebuilt", error)
        return None


def _content(file: int, path: Path) -> bytes | None:
    status = os.fstat(file)
    if status.st_size > _DIGEST_BYTES + MAX_ENTRY_BYTES:
        _log.warning("%s is larger than any entry: it is rebuilt", path)
        return None
    with os.fdopen(file, "rb", closefd=False) as stream:
        digest, content = stream.read(_DIGEST_BYTES), stream.read()
    if digest != _digest(path.name, content):
        _log.warning("%s is damaged: it is rebuilt", path)
        return None
    if abs(time.time() - status.st_mtime) > TOUCH_INTERVAL_S:
        with suppress(OSError):  # owned by root, or on a read-only disk
            os.utime(file)
    return content


def _write(folder: int, name: str, content: bytes) -> None:
    partial = f".{name}.{secrets.token_hex(8)}{_PARTIAL}"
    file = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=folder)
    try:
        with os.fdopen(file, "wb") as stream:
            os.fchmod(file, 0o600)  # regardless of the umask
            stream.write(_digest(name, content))
            stream.write(content)
        os.replace(partial, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(OSError):
            os.unlink(partial, dir_fd=folder)
        raise


def _digest(name: str, content: bytes) -> bytes:
    total = hashlib.sha256(name.encode() + b"\0")
    total.update(content)
    return total.digest()


def _evict(folder: int) -> None:
    now, total = time.time(), 0
    for modified, size, name in sorted(_entries(folder), reverse=True):
        total += size
        kept_s = MAX_PARTIAL_AGE_S if name.endswith(_PARTIAL) else MAX_UNUSED_S
        if now - modified > kept_s or total > MAX_FOLDER_BYTES:
            with suppress(OSError):  # another process dropped it
                os.unlink(name, dir_fd=folder)


def _entries(folder: int) -> Iterator[tuple[float, int, str]]:
    listed = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
    try:
        with os.scandir(listed) as entries:
            for entry in entries:
                if _ENTRY_NAME.fullmatch(entry.name):
                    with suppress(FileNotFoundError):  # another process dropped it
                        status = entry.stat(follow_symlinks=False)
                        yield status.st_mtime, status.st_size, entry.name
    finally:
        os.close(listed)


def _warn(path: Path, error: OSError) -> None:
    """Log why a folder is not used and the remedy, once for each cause, whichever folders it concerns."""
    cause: object = error.errno
    remedy = f"Choose another ${_VARIABLE}"
    if isinstance(error, UnsafePath):
        cause = error.path
        # A folder above the cache may be another user's home.
        own = error.path == path.parent or error.path.is_relative_to(path)
        delete = f"Delete it or choose another ${_VARIABLE}" if own else remedy
        remedy = f"Run: {error.remedy}" if error.remedy else delete
    elif error.errno in _FULL:
        remedy = f"Free space there or choose another ${_VARIABLE}"
    _warn_once(cause, f"the cache folder {path} is not used: {error.strerror or error}. {remedy}")


def _warn_once(cause: object, message: str) -> None:
    if cause not in _warned:
        _warned.add(cause)
        _log.warning("%s", message)
