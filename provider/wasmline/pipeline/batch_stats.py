"""Counts of pipeline runs, which can be added."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from wasmline import dead_letters
from wasmline.wasm import TransformResult

MAX_LOG_LINES = 200


@dataclass(slots=True)
class BatchStats:
    """Counts of one or more pipeline runs. They can be added: tasks send theirs to the driver.

    ``records_in``, ``records_out`` and ``lost_offsets`` count by input partition, ``dead_letters`` by input partition
    and reason; ``failures`` are the dead letters that the host, not the guest, decided on. ``hangs`` counts by input
    partition how often it was delayed by transactions whose markers a broker had lost. ``hosts`` are the machines that
    ran them, by input partition.
    """

    records_in: Counter[int] = field(default_factory=Counter)
    records_out: Counter[int] = field(default_factory=Counter)
    dead_letters: Counter[tuple[int, str]] = field(default_factory=Counter)
    lost_offsets: Counter[int] = field(default_factory=Counter)
    failures: int = 0
    hangs: Counter[int] = field(default_factory=Counter)
    hosts: dict[int, str] = field(default_factory=dict)
    logs: list[str] = field(default_factory=list)
    logs_dropped: int = 0

    def __iadd__(self, other: BatchStats) -> BatchStats:
        self.records_in.update(other.records_in)
        self.records_out.update(other.records_out)
        self.lost_offsets.update(other.lost_offsets)
        for (partition, label), count in other.dead_letters.items():
            self.dead_letters[partition, dead_letters.label(label, "", self._labels)] += count
        self.failures += other.failures
        self.hangs.update(other.hangs)
        self.hosts.update(other.hosts)
        room = MAX_LOG_LINES - len(self.logs)
        self.logs.extend(other.logs[:room])
        self.logs_dropped += other.logs_dropped + max(0, len(other.logs) - room)
        return self

    def count_dead_letter(self, partition: int, error: str, reason: str) -> None:
        """Count a dead letter under its reason label."""
        self.dead_letters[partition, dead_letters.label(error, reason, self._labels)] += 1
        self.failures += error != dead_letters.REJECTED

    @property
    def _labels(self) -> set[str]:
        return {label for _, label in self.dead_letters}

    @property
    def lines(self) -> list[str]:
        """The log lines, followed by the number of dropped ones."""
        return [*self.logs, *([f"WARN {self.logs_dropped} more lines were dropped"] if self.logs_dropped else [])]

    def reasons(self) -> dict[str, int]:
        """Return the dead letters by reason, the most frequent first."""
        total: Counter[str] = Counter()
        for (_, label), count in self.dead_letters.items():
            total[label] += count
        return dict(total.most_common())


def log_batch_stats(result: TransformResult) -> BatchStats:
    """Return the log lines of one call of a guest."""
    texts = [f"{line.level} {line.text}".removesuffix("\n") for line in result.logs]
    return BatchStats(logs=texts, logs_dropped=result.logs_dropped)
