"""The result of a conversion of dead letters to records."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from wasmline.kafka import TopicRecord
from wasmline.redrive.dead_letter_reader import StoredDeadLetter


@dataclass(slots=True)
class Conversion:
    """The records to write of some dead letters, and those that they stand for.

    outputs, failed_again: of a transform, how many records it made, and how many dead letters failed again.
    skipped: how many cannot be redriven, by reason.
    """

    records: list[TopicRecord] = field(default_factory=list)
    dead_letters: list[StoredDeadLetter] = field(default_factory=list)
    outputs: int = 0
    failed_again: int = 0
    skipped: Counter[str] = field(default_factory=Counter)


class ConversionTooLarge(Exception):
    """The records of several dead letters take too much memory and time for one transaction: take fewer."""
