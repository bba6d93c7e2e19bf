"""Reports of a parallel run: the driver derives them from the partition statuses that lease tasks write."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Literal

from wasmline.clock import now_ms
from wasmline.control import Deployment, PartitionTotals, StatusTopic
from wasmline.documents import plain
from wasmline.errors import KafkaError, NotAuthorized
from wasmline.job_specs import JobReport, JobSpec, JobState, StreamTotals
from wasmline.leases.lease_status_reporter import unread
from wasmline.partition_status import PartitionStatus

log = logging.getLogger(__name__)


class ParallelReporter:
    """Follows the partition statuses of one run, whose counters start at zero. For one thread."""

    def __init__(
        self, job: JobSpec, topic: str, write_report: Callable[[JobReport], None], status: StatusTopic
    ) -> None:
        self._job = job
        self._topic = topic
        self._write_report = write_report
        self._log = status
        self._statuses: dict[int, PartitionStatus] = {}

    def begin(self, deployment: Deployment | None, progress: Mapping[int, int], ends: Mapping[int, int]) -> None:
        """Write the initial status of each partition before the first lease; tasks count from there.

        Raises NotAuthorized.
        """
        before = {each.partition: each for each in self._log.of(self._job.job) if each.topic == self._topic}
        for partition, offset in progress.items():
            fresh = replace(unread(self._job, deployment, self._topic, partition), since_offset=offset)
            known = before.get(partition)
            same = known is not None and known.is_of_generation(fresh) and known.since_offset <= offset
            base = known if known is not None and same else fresh
            self._statuses[partition] = replace(
                fresh,
                offset=offset,
                lag=max(0, ends.get(partition, offset) - offset),
                since_offset=base.since_offset,
                generation_records=base.generation_records,
                generation_dead_letters=base.generation_dead_letters,
            )
        self._write(is_first=True)

    def follow(self, *, paused: bool) -> bool:
        """Read the statuses that the tasks wrote; return whether there is anything to report.

        ``paused``: no lease is planned and none is left. The tasks of the next one write ``running`` again.
        """
        newest_statuses = self._statuses | {each.partition: each for each in self._log.of(self._job.job)}
        moved = newest_statuses != self._statuses
        self._statuses = newest_statuses
        if paused and any(each.state != "paused" for each in newest_statuses.values()):
            self._write_state("paused")
            return True
        return moved

    def report(self, state: JobState, message: str = "", error: str | None = None) -> JobReport:
        """Write and return the current report; a final state is also written to every partition."""
        if state.final:
            self._write_state("failed" if state is JobState.FAILED else "stopped")
        totals = plain(self._totals())
        report = JobReport.now(self._job.job, self._job.run, state, message, error=error, result=totals)
        self._write_report(report)
        return report

    def _totals(self) -> StreamTotals:
        known = list(self._statuses.values())
        newest = max(known, key=lambda each: each.generation)
        totals = PartitionTotals.of(known)
        return StreamTotals(
            transform=newest.transform,
            digest=newest.digest,
            generation=newest.generation,
            partitions=len(known),
            records_in=totals.records_in,
            records_out=totals.records_out,
            dead_letters=totals.dead_letters,
            lost_offsets=totals.lost_offsets,
            batches=[],
        )

    def _write_state(self, state: Literal["paused", "stopped", "failed"]) -> None:
        """Write a state to all partitions, none of which is leased now."""
        idle = {"state": state, "rate": 0.0, "in_flight": 0, "updated_ms": now_ms()}
        self._statuses = {each: replace(status, **idle) for each, status in self._statuses.items()}  # type: ignore[arg-type]
        self._write()

    def _write(self, *, is_first: bool = False) -> None:
        try:
            self._log.write(self._statuses.values())
        except KafkaError as error:
            if is_first and isinstance(error, NotAuthorized):
                raise
            log.warning("the partition statuses of job %s are behind: %s", self._job.job, error)
