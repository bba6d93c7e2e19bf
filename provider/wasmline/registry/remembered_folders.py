"""Remembers which folders of a storage are complete, for those who list them again and again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Sequence
from threading import Lock

from wasmline.registry.storage import File, Storage

MAX_PARENTS = 10_000
"""Maximum folders of which the listing is remembered; those that were listed longest ago are forgotten."""


class RememberedFolders:
    """A storage that looks for the marker of each folder once: in an object store, that is a request for each.

    A folder never changes, and one that is gone from a listing is forgotten. For any thread.
    """

    def __init__(self, storage: Storage) -> None:
        self.url = storage.url
        self._storage = storage
        self._listed: OrderedDict[tuple[str, str], frozenset[str]] = OrderedDict()
        self._lock = Lock()

    def create(self, folder: str, files: Sequence[File]) -> bool:
        return self._storage.create(folder, files)

    def read(self, path: str, limit: int) -> bytes | None:
        return self._storage.read(path, limit)

    def folders(self, parent: str, marker: str | None = None, *, known: Collection[str] = ()) -> list[str]:
        if marker is None:
            return self._storage.folders(parent)
        with self._lock:
            remembered = self._listed.pop((parent, marker), frozenset())
        found = self._storage.folders(parent, marker, known=remembered.union(known))
        with self._lock:
            self._listed[parent, marker] = frozenset(found)
            if len(self._listed) > MAX_PARENTS:
                self._listed.popitem(last=False)
        return found
