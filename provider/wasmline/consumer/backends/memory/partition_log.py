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
    """The state that the records of one transaction share."""

    __slots__ = ("fate", "logs")

    def __init__(self) -> None:
        self.fate = TransactionOutcome.OPEN
        self.logs: dict[Log, int] = {}
        """Its logs, with its first offset in each."""

    def end(self, fate: TransactionOutcome) -> None:
        """End the transaction, with a marker in each of its logs."""
        self.fate = fate
        for log in self.logs:
            log.mark()


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
        self._entries: list[LogEntry] = []
        self._transactions: set[Transaction] = set()

    @property
    def stable(self) -> int:
        """The last stable offset: the first record of an open transaction, or the end."""
        self._transactions = {each for each in self._transactions if each.fate is TransactionOutcome.OPEN}
        return min((each.logs[self] for each in self._transactions), default=self.end)

    def append(self, output: Output, timestamp: int, transaction: Transaction | None = None) -> int:
        """Write a record and return its offset."""
        if transaction is not None and self not in transaction.logs:
            transaction.logs[self] = self.end
            self._transactions.add(transaction)
        return self._add(output, timestamp, transaction)

    def mark(self) -> None:
        """Write a marker, which takes an offset and is never returned to readers."""
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
        for entry in self._entries[self._place(position) :]:
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
