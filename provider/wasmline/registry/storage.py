"""Protocol of a registry's storage: folders are created whole or not at all, and never changed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Protocol

from wasmline.errors import InvalidLayout, RegistryMisconfigured, RegistryUnavailable
from wasmline.printable import bounded_line
from wasmline.registry import s3_errors

File = tuple[str, bytes]
"""A path relative to the folder, and its content."""

NOTHING_PUBLISHED = "; nothing was published"

MAX_ENTRIES = 100_000
"""Maximum entries of a listed folder: the names of a kind, the versions of a name, the decisions on a model."""


class Storage(Protocol):
    """Immutable folders of files. Paths are relative to the root, with ``/`` between their parts.

    Its content is not trusted: a part of a path that is a symbolic link, a device or a pipe raises InvalidLayout, and
    is neither followed nor read. Every method raises RegistryUnavailable if the store fails, RegistryMisconfigured if
    no retry cures that. They name the path.
    """

    url: str

    def create(self, folder: str, files: Sequence[File]) -> bool:
        """Create ``folder`` with all of ``files`` visible at once; False if the folder exists.

        The last file is the folder's marker: readers see no folder without it, and one without it is completed. Any
        other file has the same content for every writer of its name, such as its digest: several may write it at once.
        Raises InvalidLayout for an obstacle in its place.
        """

    def read(self, path: str, limit: int) -> bytes | None:
        """Return a file's content, or None if there is no such file.

        For a file of more than ``limit`` bytes, the first ``limit`` + 1 are returned.
        """

    def folders(self, parent: str, marker: str | None = None, *, known: Collection[str] = ()) -> list[str]:
        """Return the sorted names of the folders in ``parent``, of all or of those with the file ``marker``.

        The marker is not looked for in those that are ``known`` to have it. Raises InvalidLayout if ``parent`` has more
        than MAX_ENTRIES.
        """


def open_storage(url: str) -> Storage:
    """Return the storage behind a path or an fsspec URL (``s3://…``, ``gs://…``, ``memory://…``).

    An object store is logged in to with the options of ``storage_options``, else as its driver finds a login by itself.
    """
    from fsspec.core import url_to_fs
    from fsspec.implementations.local import LocalFileSystem

    from wasmline.registry.local_storage import LocalStorage
    from wasmline.registry.object_storage import ObjectStorage
    from wasmline.registry.storage_options import options_of

    if "::" in url:  # a cache may hide writes of others, and a link on the disk behind it
        raise RegistryUnavailable(
            f"the registry at {url} is a chained fsspec URL, which is not supported: use its last URL alone"
        )
    options = options_of(url)
    try:
        filesystem, path = url_to_fs(url, **options)
    except Exception as error:  # a driver may raise anything, also for the content of the URL
        raise RegistryUnavailable(f"the registry at {url} cannot be opened: {error!r}") from error
    if isinstance(filesystem, LocalFileSystem):
        return LocalStorage(Path(path))
    return ObjectStorage(filesystem, path, url=url, options=options)


def unavailable_error(
    url: str, error: Exception, path: str, consequence: str = "", *, options: Collection[str] = ()
) -> RegistryUnavailable:
    """Return the RegistryUnavailable for an error of a disk or a driver, opened with ``options``, about a path."""
    if remedy := s3_errors.remedy(error, options):
        return RegistryMisconfigured(f"the registry at {url} refused: {remedy}{consequence}; see {path}")
    reason = bounded_line(getattr(error, "strerror", None) or error) or type(error).__name__
    return RegistryUnavailable(f"the registry at {url} refused: {reason}{consequence}; see {path}")


def wrong_kind_error(kind: str, path: str, url: str) -> InvalidLayout:
    """Return the error about an entry in the place of a file or a folder."""
    return InvalidLayout(f"{path} in {url} is not a {kind}, and links are not followed: remove it", path=path)


def too_many_entries_error(path: str, url: str) -> InvalidLayout:
    """Return the error about a folder of more than MAX_ENTRIES."""
    return InvalidLayout(f"{path} in {url} holds more than {MAX_ENTRIES} entries: remove some of them", path=path)
