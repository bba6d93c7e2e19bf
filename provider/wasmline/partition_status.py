"""Statuses of a job's partitions, as stored in the status topic."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

IDLE_AFTER_MS = 30_000
"""Time without a report after which a partition that has reached its topic's end is idle: batches are reported at
their end, and an idle stream has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStatus:
    """One input partition of one job.

    ``offset`` is the next offset to read, ``lag`` the records behind the topic's end, ``rate`` records per second of
    the last batch, ``since_offset`` the first offset of the running generation. The counts are those of this run, but
    ``generation_records`` and ``generation_dead_letters`` count from ``since_offset`` on, over several runs.
    ``hangs`` is how often it was delayed by transactions whose markers a broker had lost, and which were ended.
    ``in_flight`` records are in handlers now, ``retries`` counts further attempts, and ``stuck_keys`` are keys whose
    first record waits for its next attempt or has been in its handler for long. ``lost_offsets`` are offsets that the
    log no longer had when they were to be read; transaction markers may be among them. ``host`` is the machine whose
    task processed it last; "" before the first. In parallel mode ``lease`` is
    the source of the status, ``attempt`` a random name of the attempt to run it, and ``committed`` the offset that this
    attempt left committed; None while it runs, or if it was killed.
    """

    job: str
    transform: str
    topic: str
    partition: int
    digest: str
    generation: int
    state: Literal["running", "paused", "stopped", "failed"]
    offset: int
    lag: int
    rate: float
    since_offset: int
    updated_ms: int
    records_in: int = 0
    records_out: int = 0
    dead_letters: dict[str, int] = field(default_factory=dict)
    generation_records: int = 0
    generation_dead_letters: int = 0
    in_flight: int = 0
    retries: int = 0
    stuck_keys: int = 0
    hangs: int = 0
    lost_offsets: int = 0
    host: str = ""
    lease: str = ""
    attempt: str = ""
    committed: int | None = None
    spec_version: Literal[1] = 1

    def is_of_generation(self, other: PartitionStatus) -> bool:
        """Return whether both are of the same generation of the same transform."""
        return (self.transform, self.generation) == (other.transform, other.generation)

    def at(self, end_offset: int | None, *, silent_ms: int, runs: bool) -> PartitionStatus:
        """Return what this report says after ``silent_ms`` without another one.

        ``end_offset`` is the topic's then, None if not known: the reported lag stays, as with a topic that was created
        again, which ends before the offset. A job that no longer ``runs`` is stopped, whatever a killed driver reported
        last. At the topic's end the ``rate`` is 0 after IDLE_AFTER_MS.
        """
        state = "stopped" if not runs and self.state in ("running", "paused") else self.state
        lag = self.lag if end_offset is None or end_offset < self.offset else end_offset - self.offset
        is_idle = end_offset == self.offset and silent_ms >= IDLE_AFTER_MS
        return replace(self, state=state, lag=lag, rate=0.0 if is_idle else self.rate)
