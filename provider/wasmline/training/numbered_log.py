"""Stores documents about models in a registry, one folder each, numbered from 1 without gaps."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from wasmline.errors import InvalidLayout, InvalidReference
from wasmline.printable import bounded_line
from wasmline.registry.artifact_store import check_name
from wasmline.registry.storage import Storage

_NUMBER = re.compile(r"[0-9]{6}|[1-9][0-9]{6,8}")


class Entry(Protocol):
    """A document of a model, which names both."""

    @property
    def model(self) -> str: ...

    @property
    def number(self) -> int: ...


T = TypeVar("T", bound=Entry)


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberedLog(Generic[T]):
    """Documents at ``<folder>/<model>/<number>/<file>``; ``noun`` names them in messages.

    ``parse`` returns the document in bytes at a place. It raises ValueError or InvalidReference for bytes that are
    none; of a document of more than ``max_bytes``, it is given one more than these.
    """

    storage: Storage
    folder: str
    file: str
    noun: str
    parse: Callable[[bytes, str], T]
    max_bytes: int

    def read_all(self, name: str) -> list[T]:
        """Return all documents of a model, the oldest first. Raises InvalidLayout, InvalidReference."""
        return [self.read(name, number) for number in self.numbers(name)]

    def read(self, name: str, number: int) -> T:
        """Return one document. Raises InvalidLayout if it is malformed, or another's."""
        path = f"{self.path(name, number)}/{self.file}"
        place = f"{path} in {self.storage.url}"
        try:
            document = self.parse(self.storage.read(path, self.max_bytes) or b"", place)
            if (document.model, document.number) != (name, number):
                raise ValueError(f"it contains {self.noun} {document.number} of {document.model[:140]!r}")
        except (ValueError, InvalidReference) as error:
            raise InvalidLayout(
                f"{place} is not {self.noun} {number} of {name}: {bounded_line(error)}; restore it, or remove it",
                path=path,
            ) from error
        return document

    def create(self, name: str, number: int, document: bytes) -> bool:
        """Store the document after the last one; False if there is one of that number.

        Raises InvalidLayout for something else in its place.
        """
        if self.storage.create(self.path(name, number), [(self.file, document)]):
            return True
        self.read(name, number)
        return False

    def path(self, name: str, number: int) -> str:
        """Return the folder of one document."""
        return f"{self.folder}/{name}/{number:06d}"

    def numbers(self, name: str) -> list[int]:
        """Return the numbers of a model's documents in order. Raises InvalidLayout for a gap."""
        numbers = self.present(name)
        for expected, number in enumerate(numbers, start=1):
            if number != expected:
                path = self.path(name, number)
                raise InvalidLayout(
                    f"{path} in {self.storage.url} does not follow {self.noun} {expected - 1}: remove it, or restore "
                    "those between them",
                    path=path,
                )
        return numbers

    def present(self, name: str) -> list[int]:
        """Return the numbers of a model's documents in order, whether or not some are missing."""
        check_name(name)
        folders = self.storage.folders(f"{self.folder}/{name}", self.file)
        return sorted(int(folder) for folder in folders if _NUMBER.fullmatch(folder))
