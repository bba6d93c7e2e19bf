"""What a handler is given, and what it may give back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

Headers = Sequence[tuple[str, bytes | None]]


class ConsumedRecord(NamedTuple):
    """A record as it was read. ``timestamp`` is in Unix milliseconds; ``attempt`` counts the handler's tries from 1."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp: int = 0
    attempt: int = 1

    @property
    def size(self) -> int:
        """Bytes of the key, the value and the headers."""
        return _size(self.key, self.value, self.headers)


class Output(NamedTuple):
    """A record to write. Without a ``partition`` it follows from the key, as Java's would; no ``timestamp``: now."""

    topic: str
    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    timestamp: int | None = None
    partition: int | None = None

    @property
    def size(self) -> int:
        """Bytes of the key, the value and the headers."""
        return _size(self.key, self.value, self.headers)


def _size(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    size = len(key or b"") + len(value or b"")
    for name, each in headers:
        size += len(name) + len(each or b"")
    return size
