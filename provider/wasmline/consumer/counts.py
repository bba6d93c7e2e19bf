"""What a consumer did on one partition, in numbers."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from wasmline import dead_letters
from wasmline.consumer.records import Output


@dataclass(slots=True)
class PartitionCounts:
    """What was done on a partition since the consumer began, whether or not it is committed yet.

    ``records`` are those that will not be tried again, ``outputs`` what was made of them, ``dead_letters`` among them
    by label, and ``retries`` the tries that are to be tried again.
    """

    records: int = 0
    outputs: int = 0
    retries: int = 0
    dead_letters: Counter[str] = field(default_factory=Counter)

    def letter(self, output: Output) -> None:
        """Count a dead letter."""
        texts = {name: (value or b"").decode(errors="replace") for name, value in output.headers}
        error, reason = (texts.get(name, "") for name in (dead_letters.ERROR, dead_letters.REASON))
        self.dead_letters[dead_letters.label(error, reason, self.dead_letters)] += 1
