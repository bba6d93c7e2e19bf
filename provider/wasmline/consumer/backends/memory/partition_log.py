"""The log of one partition: records by offset, with the gaps of real logs."""

from __future__ import annotations

import enum
from bisect import bisect_left
from collections.abc import Collection
from operator import attrgetter
from typing import NamedTuple

from wasmline.consumer.records import Output

OFFSET = attrgetter("offset")


class TransactionOutcome(enum.Enum):
    """The state of a transaction."""

    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"


class Transaction:
    """What a producer has written to a log since its last marker there: the state that its records share."""

    __slots__ = ("epochs", "fate", "first_offset")

    def __init__(self, first_offset: int) -> None:
        self.fate = TransactionOutcome.OPEN
        self.first_offset = first_offset
        self.epochs: set[int] = set()
        """The leader epochs that it was written in."""


class LogEntry(NamedTuple):
    """An entry of the log. ``output`` is None for a transaction marker; ``timestamp`` is in milliseconds."""

    offset: int
    output: Output | None
    timestamp: int
    transaction: Transaction | None


class Log:
    """Offsets from ``start`` to ``end``, excluded; some have no record."""

    def __init__(self) -> None:
        self.start = 0
        self.end = 0
        self.truncations: list[int] = []
        """The end after each truncation."""
        self.open: dict[int, Transaction] = {}
        """The open transactions, by producer id."""
        self._entries: list[LogEntry] = []

    @property
    def stable(self) -> int:
        """The last stable offset: the first record of an open transaction, or the end."""
        return min((each.first_offset for each in self.open.values()), default=self.end)

    def append(self, output: Output, timestamp: int, producer_id: int | None = None, epoch: int = 0) -> int:
        """Write a record, in a producer's transaction or in none, and return its offset."""
        transaction = None
        if producer_id is not None:
            transaction = self.open.setdefault(producer_id, Transaction(self.end))
            transaction.epochs.add(epoch)
        return self._add(output, timestamp, transaction)

    def mark(self, producer_id: int, fate: TransactionOutcome) -> None:
        """Write a marker, which ends all that the producer has open here; it takes an offset, and no reader gets it."""
        if (transaction := self.open.pop(producer_id, None)) is not None:
            transaction.fate = fate
        self._add(None, 0, None)

    def compact(self, offsets: Collection[int]) -> None:
        """Remove records and keep their offsets."""
        self._entries = [entry for entry in self._entries if entry.offset not in offsets]

    def delete_records(self, before: int) -> None:
        """Remove the entries below an offset, as retention does."""
        self.start = before
        self.end = max(self.end, before)
        del self._entries[: self._place(before)]

    def truncate(self, end: int) -> None:
        """Remove the entries at or above an offset, as a broker that lost them does."""
        self.end = end
        self.truncations.append(end)
        self.start = min(self.start, end)
        del self._entries[self._place(end) :]

    def read(self, position: int, limit: int, *, committed: bool) -> tuple[list[LogEntry], int]:
        """Return up to ``limit`` records from ``position`` on, and the next position; ``committed``: read_committed."""
        end = self.stable if committed else self.end
        found: list[LogEntry] = []
        for place in range(self._place(position), len(self._entries)):
            entry = self._entries[place]
            if entry.offset >= end:
                break
            if len(found) == limit:
                return found, entry.offset
            aborted = entry.transaction is not None and entry.transaction.fate is TransactionOutcome.ABORTED
            if entry.output is not None and not (committed and aborted):
                found.append(entry)
        return found, max(position, end)

    def _add(self, output: Output | None, timestamp: int, transaction: Transaction | None) -> int:
        self._entries.append(LogEntry(self.end, output, timestamp, transaction))
        self.end += 1
        return self.end - 1

    def _place(self, offset: int) -> int:
        return bisect_left(self._entries, offset, key=OFFSET)
