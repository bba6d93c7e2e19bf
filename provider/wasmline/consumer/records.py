"""Records as handlers receive them, and the outputs that they return."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from wasmline.errors import OutputRefused
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
        _, _, _, key, value, headers, _, _ = self
        size = len(key or b"") + len(value or b"")
        return size + _headers_size(headers) if headers else size


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
            size = len(self.key or b"") + len(self.value or b"")
            return size + _headers_size(self.headers) if self.headers else size
        except Exception:  # a length or a truth value may raise anything
            return 0


@dataclass(frozen=True, slots=True)
class BatchResult:
    """The result of a batch: its outputs, and its failed records by their place in the batch.

    ``rows`` are the places of the records that the outputs come from. None: of the only record, or unknown, as with a
    handler of several.
    """

    outputs: Sequence[Output] = ()
    failures: Mapping[int, Exception] = field(default_factory=dict)
    rows: Sequence[int | None] | None = None

    def row(self, output: int, records: int) -> int | None:
        """Return the place of the record that an output comes from, in a batch of this many records."""
        if self.rows is not None:
            return self.rows[output]
        return 0 if records == 1 else None


MAX_NUMBERS = {"timestamp": 2**63 - 1, "partition": 2**31 - 1}
"""The largest values of an output's numbers, as the protocol has them; none of them is negative."""


def require_record(output: Output) -> None:
    """Raise OutputRefused for an output whose topic, timestamp or partition no record can have."""
    if not isinstance(output.topic, str):
        raise OutputRefused(f"the handler's output names as its topic {output.topic!r}, not a text")
    for name, most in MAX_NUMBERS.items():
        value = getattr(output, name)
        if value is not None:
            try:
                is_possible = 0 <= operator.index(value) <= most
            except TypeError:
                is_possible = False
            if not is_possible:
                text = f"the handler's output cannot be a record of {output.topic}: its {name} is {value!r}"
                raise OutputRefused(text)


def record_coordinates(record: ConsumedRecord) -> str:
    """Return the coordinates of a record in the form of messages: ``orders-0@42``."""
    return f"{record.topic}-{record.partition}@{record.offset}"


def _headers_size(headers: Headers) -> int:
    return sum(len(name) + len(value or b"") for name, value in headers)


if not TYPE_CHECKING:  # or no missing name would be found
    __getattr__ = renamed(__name__)
