"""Counts of the records that a consumer processed on one partition."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from wasmline import dead_letters
from wasmline.consumer.records import Headers


@dataclass(slots=True)
class PartitionCounters:
    """What was done on a partition since the consumer started, committed or not.

    ``records`` are those that are not retried, ``outputs`` the records written for them, ``dead_letters`` those
    dead-lettered, by label, and ``retries`` the failed attempts that are retried. ``hangs`` counts the delays by
    transactions whose markers a broker had lost. ``aborts`` counts the transactions in a row that were aborted, or not
    begun, and are retried. ``lost_offsets`` are those that the log no longer had when they were
    to be read; transaction markers may be among them. ``committed_at`` is the time of the last successful commit, in
    Unix seconds; None before the first.
    """

    records: int = 0
    outputs: int = 0
    retries: int = 0
    hangs: int = 0
    aborts: int = 0
    lost_offsets: int = 0
    committed_at: float | None = field(default=None, compare=False)
    dead_letters: Counter[str] = field(default_factory=Counter)

    def count_dead_letter(self, headers: Headers) -> None:
        """Count a dead letter, also one of a handler's own, whatever its headers are."""
        try:
            last = dict(headers)
        except (TypeError, ValueError):  # no client accepts these
            last = {}
        error, reason = (_text(last.get(name)) for name in (dead_letters.ERROR, dead_letters.REASON))
        self.dead_letters[dead_letters.label(error, reason, self.dead_letters)] += 1


def _text(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value or "")
