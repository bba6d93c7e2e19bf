"""Stores folders in an object store: the marker is written last, and only if there is none."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from typing import Any

from wasmline.errors import InvalidLayout, RegistryError, RegistryMisconfigured, RegistryUnavailable
from wasmline.registry import s3_errors
from wasmline.registry.storage import (
    MAX_ENTRIES,
    NOTHING_PUBLISHED,
    File,
    too_many_entries_error,
    unavailable_error,
    wrong_kind_error,
)

CREATE_ATTEMPTS = 5
"""Attempts to create a file that others are creating, of which S3 may tell each that there was a conflict."""

PROBE = (".create_probe", b"Written by wasmline, to see that the store creates a file only if there is none.\n")
"""A file at the root, and its content, which is the same for every writer."""


class ObjectStorage:
    """Folders below a path of an fsspec filesystem.

    Whether the "only if" is atomic depends on fsspec's driver: s3, gcs and abfs use a condition of the store, others
    check first. A store or a driver that ignores it is refused before anything is published. ``options``: the names of
    those with which the filesystem was opened, such as ``key``; errors say where they are from.
    """

    def __init__(self, filesystem: Any, root: str, *, url: str, options: Collection[str] = ()) -> None:
        self.url = url
        self._options = frozenset(options)
        self._fs = filesystem
        self._root = root.rstrip("/")
        self._writes_conditionally = False

    def create(self, folder: str, files: Sequence[File]) -> bool:
        *contents, (marker, last) = files
        self._require_conditional_writes()
        for name, content in contents:
            self._write(f"{folder}/{name}", content)
        path = f"{folder}/{marker}"
        # A driver repeats a request whose answer was lost: then the file that is there is the one that it wrote.
        return self._create_file(path, last) or self.read(path, len(last)) == last

    def read(self, path: str, limit: int) -> bytes | None:
        place = f"{self._root}/{path}"
        with self._mapped(path):
            self._fs.invalidate_cache()
            try:
                known = self._fs.info(place)
                if known["type"] != "file" or known.get("islink"):
                    raise wrong_kind_error("file", path, self.url)
                if (size := known.get("size")) == 0:
                    return b""  # some stores reject a range of an empty object
                end = limit if size is None else min(size, limit)
                content: bytes = self._fs.cat_file(place, start=0, end=end + 1)
            except FileNotFoundError as error:
                if s3_errors.is_missing_bucket(error):
                    raise
                return None
        return content[: limit + 1]

    def folders(self, parent: str, marker: str | None = None, *, known: Collection[str] = ()) -> list[str]:
        with self._mapped(parent):
            self._fs.invalidate_cache()
            try:
                entries = self._fs.ls(f"{self._root}/{parent}", detail=True)
            except FileNotFoundError as error:
                if s3_errors.is_missing_bucket(error):
                    raise
                return []
            if len(entries) > MAX_ENTRIES:
                raise too_many_entries_error(parent, self.url)
            places = [entry["name"].rstrip("/") for entry in entries if entry["type"] == "directory"]
            named = {place.rsplit("/", 1)[-1]: place for place in places}
            return sorted(
                name
                for name, place in named.items()
                if marker is None or name in known or self._is_file(f"{place}/{marker}")
            )

    def probe(self) -> None:
        """Create the file PROBE if there is none, and read it: it stays. Raises RegistryUnavailable."""
        self._require_conditional_writes()
        if self.read(PROBE[0], len(PROBE[1])) is None:
            raise RegistryUnavailable(f"the registry at {self.url} does not have {PROBE[0]}, which was just written")

    def _require_conditional_writes(self) -> None:
        """Raise RegistryMisconfigured for a store that overwrites a file which is only to be created.

        Some stores with S3's interface ignore the condition, and so do some drivers.
        """
        if self._writes_conditionally:
            return
        if self._create_file(*PROBE) and self._create_file(*PROBE):
            raise RegistryMisconfigured(
                f"the registry at {self.url} overwrote a file that was only to be created ({PROBE[0]}): two publishers "
                "could publish one version. Use a store and a driver with conditional writes, such as s3fs 2025.3 or "
                f"later{NOTHING_PUBLISHED}"
            )
        self._writes_conditionally = True

    def _create_file(self, path: str, content: bytes) -> bool:
        """Write a file if there is none of its name; False if there is one."""
        with self._mapped(path, NOTHING_PUBLISHED):
            attempts = CREATE_ATTEMPTS
            while True:
                try:
                    self._fs.pipe_file(f"{self._root}/{path}", content, mode="create")
                    return True
                except Exception as error:
                    attempts -= 1
                    if s3_errors.exists_already(error):
                        return False
                    if attempts == 0 or not s3_errors.is_conflict(error):
                        raise

    def _write(self, path: str, content: bytes) -> None:
        with self._mapped(path, NOTHING_PUBLISHED):
            try:
                self._fs.pipe_file(f"{self._root}/{path}", content)
            except (FileExistsError, IsADirectoryError, NotADirectoryError) as error:
                raise self._in_the_way(path) from error

    def _in_the_way(self, path: str) -> InvalidLayout:
        """Return the error about the obstacle to a write, for drivers with real folders."""
        above = accumulate(path.split("/")[:-1], "{}/{}".format)
        blocking = next((folder for folder in above if self._is_file(f"{self._root}/{folder}")), None)
        return wrong_kind_error("folder", blocking, self.url) if blocking else wrong_kind_error("file", path, self.url)

    def _is_file(self, place: str) -> bool:
        try:
            return bool(self._fs.info(place)["type"] == "file")
        except FileNotFoundError:
            return False

    @contextmanager
    def _mapped(self, path: str, consequence: str = "") -> Iterator[None]:
        """Map a driver's errors to the error tree: each driver has its own exceptions, not all of them OSError."""
        try:
            yield
        except RegistryError:
            raise
        except Exception as error:
            mapped = unavailable_error(self.url, error, path, consequence, options=self._options)
            raise mapped from (error if mapped.retryable else None)  # what to do is said, and no trace adds to it
