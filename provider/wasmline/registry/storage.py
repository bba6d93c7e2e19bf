"""Where the registry keeps its folders: each is created whole or not at all, and never changed."""

from __future__ import annotations

import errno
import os
import shutil
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

from wasmline.errors import RegistryUnavailable

File = tuple[str, bytes]
"""A path relative to the folder, and its content."""


_NOTHING = "; nothing was published"


class Storage(Protocol):
    """Immutable folders of small files. Every method raises RegistryUnavailable where the store refuses."""

    url: str

    def create(self, folder: str, files: Sequence[File]) -> bool:
        """Make ``folder`` with all of ``files`` visible at once; False if the folder is there already.

        The last file is the folder's marker: readers see no folder without it.
        """

    def read(self, path: str) -> bytes | None:
        """Return a file's content, or None where there is no such file."""

    def folders(self, parent: str, marker: str) -> list[str]:
        """Return the sorted names of the folders in ``parent`` that hold a path matching the glob ``marker``."""


def open_storage(url: str) -> Storage:
    """Return the storage behind a path or an fsspec URL (``s3://…``, ``gs://…``, ``memory://…``)."""
    from fsspec.core import url_to_fs
    from fsspec.implementations.local import LocalFileSystem

    try:
        filesystem, path = url_to_fs(url)
    except (ImportError, ValueError) as error:
        raise RegistryUnavailable(f"no driver for the registry at {url}: {error}") from error
    if isinstance(filesystem, LocalFileSystem):
        return LocalStorage(Path(path))
    return ObjectStorage(filesystem, path, url=url)


class LocalStorage:
    """Folders on a disk: written beside their place, flushed to the disk, then renamed."""

    def __init__(self, root: Path) -> None:
        self.url = str(root)
        self._root = root

    def create(self, folder: str, files: Sequence[File]) -> bool:
        target = self._root / folder
        staging = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
        with _refusals(self.url, _NOTHING):
            try:
                for name, content in files:
                    _write_through(staging / name, content)
                staging.rename(target)
                _flush_folder(target.parent)
            except OSError as error:
                if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                    return False
                raise
            finally:
                shutil.rmtree(staging, ignore_errors=True)
        return True

    def read(self, path: str) -> bytes | None:
        with _refusals(self.url), suppress(FileNotFoundError):
            return (self._root / path).read_bytes()
        return None

    def folders(self, parent: str, marker: str) -> list[str]:
        with _refusals(self.url):
            depth = len(marker.split("/"))
            found = (self._root / parent).glob(f"*/{marker}")
            relative = {path.parents[depth - 1].name for path in found if not _hidden(path, depth)}
            return sorted(relative)


class ObjectStorage:
    """Folders in an object store: the marker is written last, and only if nobody else wrote one.

    How sure the "only if" is depends on fsspec's driver: s3, gcs and abfs ask the store itself, others look first.
    """

    def __init__(self, filesystem: Any, root: str, *, url: str) -> None:
        self.url = url
        self._fs = filesystem
        self._root = root.rstrip("/")

    def create(self, folder: str, files: Sequence[File]) -> bool:
        *contents, (marker, last) = files
        with _refusals(self.url, _NOTHING):
            for name, content in contents:
                self._fs.pipe_file(f"{self._root}/{folder}/{name}", content)
            try:
                self._fs.pipe_file(f"{self._root}/{folder}/{marker}", last, mode="create")
            except FileExistsError:
                return False
        return True

    def read(self, path: str) -> bytes | None:
        with _refusals(self.url), suppress(FileNotFoundError):
            content: bytes = self._fs.cat_file(f"{self._root}/{path}")
            return content
        return None

    def folders(self, parent: str, marker: str) -> list[str]:
        prefix = f"{self._root}/{parent}"
        with _refusals(self.url):
            self._fs.invalidate_cache()
            found: list[str] = self._fs.glob(f"{prefix}/*/{marker}")
        depth = len(marker.split("/"))
        return sorted({path.split("/")[-1 - depth] for path in found})


def _write_through(path: Path, content: bytes) -> None:
    """Write a file and wait until the disk has it: a disk that is full says so now, not after the rename."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _flush_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _hidden(path: Path, depth: int) -> bool:
    """Whether a match lies in a folder that is still being written."""
    return any(part.startswith(".") for part in path.parts[-1 - depth : -1])


@contextmanager
def _refusals(url: str, consequence: str = "") -> Iterator[None]:
    """Map what the storage says into the error tree."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error) or type(error).__name__
        raise RegistryUnavailable(f"the registry at {url} refused: {reason}{consequence}") from error
