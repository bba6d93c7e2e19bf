"""Caches documents that never change, such as the versions of models and the decisions on them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class DocumentCache(Generic[K, V]):
    """Reads each document once: ``read`` is called with its name and its key, of which a name has several.

    Holds at most ``max_documents``; those of the name that was used longest ago leave first. An error of ``read`` is
    raised and not kept. For any thread: two of them may read the same document at once.
    """

    def __init__(self, read: Callable[[str, K], V], max_documents: int) -> None:
        self._read = read
        self._max_documents = max_documents
        self._documents: OrderedDict[str, dict[K, V]] = OrderedDict()
        self._count = 0
        self._lock = Lock()

    def get(self, name: str, key: K) -> V:
        """Return a document. Raises the errors of ``read``."""
        with self._lock:
            known = self._documents.get(name)
            if known is not None and key in known:
                self._documents.move_to_end(name)
                return known[key]
        document = self._read(name, key)
        with self._lock:
            known = self._documents.setdefault(name, {})
            self._count += key not in known
            known[key] = document
            self._documents.move_to_end(name)
            while self._count > self._max_documents:
                self._evict()
        return document

    def retain(self, name: str, is_listed: Callable[[K], bool]) -> None:
        """Forget the documents of a name that are not listed any more: one of the same key may follow them."""
        with self._lock:
            known = self._documents.get(name, {})
            for key in [key for key in known if not is_listed(key)]:
                del known[key]
                self._count -= 1

    def retain_names(self, is_listed: Callable[[str], bool]) -> None:
        """Forget the documents of all names that are not listed any more."""
        with self._lock:
            for name in [name for name in self._documents if not is_listed(name)]:
                self._count -= len(self._documents.pop(name))

    def _evict(self) -> None:
        name, known = next(iter(self._documents.items()))
        if known:
            del known[next(iter(known))]
            self._count -= 1
        else:
            del self._documents[name]
