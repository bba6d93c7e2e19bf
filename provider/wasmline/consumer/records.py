"""Records as handlers receive them, and the outputs that they return."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from wasmline.renames import renamed

Headers = Sequence[tuple[str, bytes | None]]


class ConsumedRecord(NamedTuple):
    """A record as it was read. ``timestamp`` is in Unix milliseconds; ``attempt`` counts the handler's calls from 1."""

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
    """A record to write. Without ``partition``, the key selects it as Java's producer does; no ``timestamp``: now."""

    topic: str
    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    timestamp: int | None = None
    partition: int | None = None

    @property
    def size(self) -> int:
        """Bytes of the key, the value and the headers; 0 for values that no client accepts as a record."""
        try:
            return _size(self.key, self.value, self.headers)
        except (TypeError, ValueError):
            return 0


@dataclass(frozen=True, slots=True)
class BatchResult:
    """The result of a batch: its outputs, and its failed records by their place in the batch.

    ``rows`` are the places of the records that the outputs come from. None: unknown, as with a handler of several.
    """

    outputs: Sequence[Output] = ()
    failures: Mapping[int, Exception] = field(default_factory=dict)
    rows: Sequence[int | None] | None = None

    def row(self, output: int, records: int) -> int | None:
        """Return the place of the record that an output comes from, in a batch of this many records."""
        if self.rows is not None:
            return self.rows[output]
        return 0 if records == 1 else None


def record_coordinates(record: ConsumedRecord) -> str:
    """Return the coordinates of a record in the form of messages: ``orders-0@42``."""
    return f"{record.topic}-{record.partition}@{record.offset}"


def _size(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    size = len(key or b"") + len(value or b"")
    for name, each in headers:
        size += len(name) + len(each or b"")
    return size


if not TYPE_CHECKING:  # or no missing name would be found
    __getattr__ = renamed(__name__)
