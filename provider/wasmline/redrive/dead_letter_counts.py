"""Counts dead letters by transform, error and source topic."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from wasmline.control import RedriveState
from wasmline.dead_letters import OTHER, label
from wasmline.printable import bounded_line
from wasmline.redrive.dead_letter_reader import StoredDeadLetter

MAX_GROUPS = 1_000
"""Groups that are counted one by one; all others count as one."""

MAX_NAME = 300
"""Letters of a name that tell groups apart: headers are the input of any writer."""


@dataclass(slots=True, kw_only=True)
class DeadLetterCount:
    """The dead letters of one group.

    pending: those that were not redriven. first_ms, last_ms: Unix milliseconds. last_position, last_reason: of the one
    with the latest time, its ``topic-partition@offset`` and its reason as one bounded line.
    """

    transform: str
    error: str
    source_topic: str
    dead_letters: int = 0
    pending: int = 0
    first_ms: int
    last_ms: int
    last_position: str = ""
    last_reason: str = ""


def count_dead_letters(letters: Iterable[StoredDeadLetter], state: RedriveState) -> list[DeadLetterCount]:
    """Return the count of each group, sorted; transform is ``name@version``."""
    counts: dict[tuple[str, str, str], DeadLetterCount] = {}
    labels: set[str] = set()
    for letter in letters:
        failure = letter.failure
        labels.add(error := label(failure.error or "", failure.reason or "", labels))
        source = failure.source.topic if failure.source else ""
        group = (failure.transform_reference[:MAX_NAME], error, source[:MAX_NAME])
        if group not in counts and len(counts) >= MAX_GROUPS:
            group = (OTHER, OTHER, OTHER)
        if group not in counts:
            transform, error, source_topic = group
            first = letter.timestamp
            counts[group] = DeadLetterCount(
                transform=transform, error=error, source_topic=source_topic, first_ms=first, last_ms=first
            )
        count = counts[group]
        count.dead_letters += 1
        count.pending += not letter.is_redriven(state)
        count.first_ms = min(count.first_ms, letter.timestamp)
        if letter.timestamp >= count.last_ms:
            count.last_ms = letter.timestamp
            count.last_position, count.last_reason = letter.position, bounded_line(failure.reason or "")
    return [count for _, count in sorted(counts.items())]
