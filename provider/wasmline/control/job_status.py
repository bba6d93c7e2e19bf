"""The status of a job: its order, the last report of its run, and the statuses of its partitions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from wasmline.clock import now_ms
from wasmline.control.job_topic import JobOrder, JobTopic
from wasmline.control.status_topic import StatusTopic
from wasmline.errors import TopicNotFound
from wasmline.job_specs import JobReport
from wasmline.kafka import KafkaConfig, Topics
from wasmline.partition_status import PartitionStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionTotals:
    """Sums over the partitions of a job; ``rate`` is in records per second."""

    lag: int = 0
    rate: float = 0.0
    in_flight: int = 0
    stuck_keys: int = 0
    retries: int = 0
    records_in: int = 0
    records_out: int = 0
    lost_offsets: int = 0
    dead_letters: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, partitions: Iterable[PartitionStatus]) -> PartitionTotals:
        """Return the sums over some partitions, the most frequent reason of dead letters first."""
        known = list(partitions)
        names = ("lag", "rate", "in_flight", "stuck_keys", "retries", "records_in", "records_out", "lost_offsets")
        sums: dict[str, Any] = {name: sum(getattr(each, name) for each in known) for name in names}
        reasons: Counter[str] = Counter()
        for each in known:
            reasons.update(each.dead_letters)
        return cls(**sums, dead_letters=dict(reasons.most_common()))


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStatus:
    """The status of a job at one moment. ``report`` is None before the run's first; a training has no ``partitions``.

    ``partitions`` are the last reported statuses with the current lag; their state is ``stopped`` after the run.
    """

    order: JobOrder
    report: JobReport | None
    partitions: tuple[PartitionStatus, ...]

    @property
    def ended(self) -> bool:
        return self.report is not None and self.report.state.final


class JobStatusReader:
    """Reads the statuses of jobs. Not thread-safe. Must be closed."""

    def __init__(self, config: KafkaConfig) -> None:
        self._jobs = JobTopic(config)
        self._status = StatusTopic(config)
        self._topics = Topics(config)

    def read_status(self, job: str) -> JobStatus:
        """Return the current status of ``job``. Raises JobNotFound."""
        order = self._jobs.order(job)
        report = self._jobs.report(job, order.spec.run)
        status = JobStatus(order=order, report=report, partitions=())
        return replace(status, partitions=tuple(self._partitions(job, over=status.ended)))

    def _partitions(self, job: str, *, over: bool) -> Iterable[PartitionStatus]:
        known = self._status.of(job)
        if not known:
            return
        try:
            ends = self._topics.end_offsets(known[0].topic)
        except TopicNotFound:
            return
        for each in known:
            if each.partition in ends:
                yield each.at(ends[each.partition], silent_ms=now_ms() - each.updated_ms, runs=not over)

    def close(self) -> None:
        """Close the Kafka clients."""
        self._jobs.close()
        self._status.close()
