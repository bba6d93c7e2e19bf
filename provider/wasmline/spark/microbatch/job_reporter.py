"""Reports of a micro-batch run: committed offsets for lag tools, partition statuses, logs and job reports."""

from __future__ import annotations

import json
import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, Literal

from wasmline.clock import now_ms
from wasmline.control import Deployment, JobTopic, StatusTopic
from wasmline.documents import plain
from wasmline.errors import KafkaError
from wasmline.job_specs import BatchReport, JobReport, JobSpec, JobState, StreamTotals
from wasmline.kafka import ConsumerGroups, KafkaConfig, Topics
from wasmline.kafka.permission_check import PermissionCheck
from wasmline.partition_status import PartitionStatus
from wasmline.pipeline import BatchStats
from wasmline.topic_partitions import TopicPartition

log = logging.getLogger(__name__)

State = Literal["running", "paused", "stopped", "failed"]

RECENT_BATCHES = 5
"""Batches in a report while the job runs; the final report has more."""

MAX_REPORTED_OFFSETS = 6_000
"""Offset ranges in the final report, which must stay below Kafka's limit for a record."""


class MicrobatchReporter:
    """Joins Spark's offsets of a finished batch with the counts of its tasks.

    ``batch`` is called on the query's thread, everything else on the driver's own. Reports must be written; statuses,
    group offsets and guest logs are informative, and a failure to write them is logged. NotAuthorized is raised until
    one of the kind was written.
    """

    def __init__(
        self,
        config: KafkaConfig,
        job: JobSpec,
        deployment: Deployment,
        jobs: JobTopic,
        write_report: Callable[[JobReport], None],
        status: StatusTopic,
        *,
        begins: Mapping[int, int],
        driver: str | None,
    ) -> None:
        """``begins``: the first offsets. ``driver``: commits for the group while it drives; None: the tasks commit."""
        self._job = job
        self._jobs = jobs
        self._write_report = write_report
        self._status = status
        self._driver = driver
        self._begins = begins
        self._groups = ConsumerGroups(config) if driver else None
        self._deployment = deployment
        self._state: State = "running"
        self._done: dict[int, tuple[Deployment, BatchStats]] = {}
        self._total = BatchStats()
        self._status_permission, self._log_permission = PermissionCheck(), PermissionCheck()
        self._group_permission = PermissionCheck()
        topics, self._topic = Topics(config), deployment.spec.input_topic
        begins, ends = topics.beginning_offsets(self._topic), topics.end_offsets(self._topic)
        before = {status.partition: status for status in status.of(job.job) if status.topic == self._topic}
        self._partitions = {
            partition: before.get(partition) or self._unread(partition, begin, ends.get(partition, begin))
            for partition, begin in begins.items()
        }
        self._batches: deque[BatchReport] = deque(
            maxlen=max(RECENT_BATCHES, MAX_REPORTED_OFFSETS // len(self._partitions))
        )
        self._write_statuses()

    def batch(self, batch_id: int, deployment: Deployment, stats: BatchStats) -> None:
        """Record the counts of a batch's tasks, before Spark commits the batch."""
        self._done[batch_id] = (deployment, stats)

    def follow(self, recent: Iterable[Any], *, paused: bool = False) -> bool:
        """Publish the batches that Spark committed since the last call; return whether there is anything to report."""
        moved = False
        for progress in recent:
            # While idle, Spark reports under the id of the next batch.
            if "addBatch" in progress["durationMs"] and progress["batchId"] in self._done:
                self._publish(json.loads(progress.json), *self._done.pop(progress["batchId"]))
                moved = True
        state: State = "paused" if paused else "running"
        if state != self._state:
            self._state, moved = state, True
            self._write_statuses()
        return moved

    def report(self, state: JobState, message: str = "", error: str | None = None) -> JobReport:
        """Write and return the current report; a final state is also written to every partition."""
        if state.final:
            self._state = "failed" if state is JobState.FAILED else "stopped"
            self._write_statuses()
        totals = plain(self.totals(None if state.final else RECENT_BATCHES))
        report = JobReport.now(self._job.job, self._job.run, state, message, error=error, result=totals)
        self._write_report(report)
        return report

    def totals(self, batches: int | None = None) -> StreamTotals:
        """Return the totals of this run so far, with its last ``batches`` (None: all that are kept)."""
        return StreamTotals(
            transform=self._deployment.spec.name,
            digest=self._deployment.spec.digest,
            generation=self._deployment.generation,
            partitions=len(self._partitions),
            records_in=self._total.records_in.total(),
            records_out=self._total.records_out.total(),
            dead_letters=self._total.reasons(),
            lost_offsets=self._total.lost_offsets.total(),
            batches=list(self._batches)[-batches if batches else 0 :],
        )

    def failed(
        self,
        batch_id: int,
        deployment: Deployment,
        stats: BatchStats,
        done: Mapping[int, tuple[int, int]],
        started_ms: int,
    ) -> None:
        """Publish the completed ranges of a failed batch."""
        known = self._partitions
        latest = {each: known[each].offset + known[each].lag for each in done if each in known}
        duration = {"triggerExecution": now_ms() - started_ms}
        self._add(deployment, stats, done, latest, duration, batch_id=batch_id, started_ms=started_ms)

    def _publish(self, progress: dict[str, Any], deployment: Deployment, stats: BatchStats) -> None:
        source = progress["sources"][0]
        start, end, latest = (
            _offsets(source[name], self._topic) for name in ("startOffset", "endOffset", "latestOffset")
        )
        started_ms = int(datetime.fromisoformat(progress["timestamp"]).timestamp() * 1000)
        done = {each: (start.get(each, self._begins.get(each, 0)), offset) for each, offset in end.items()}
        duration, number = progress["durationMs"], progress["batchId"]
        self._add(deployment, stats, done, latest, duration, batch_id=number, started_ms=started_ms)
        self._commit(end)

    def _add(
        self,
        deployment: Deployment,
        stats: BatchStats,
        done: Mapping[int, tuple[int, int]],
        latest: Mapping[int, int],
        duration_ms: dict[str, int],
        *,
        batch_id: int,
        started_ms: int,
    ) -> None:
        self._total += stats
        self._deployment = deployment
        seconds = max(duration_ms["triggerExecution"], 1) / 1000
        for partition, (begin, offset) in done.items():
            rate = round(stats.records_in[partition] / seconds, 1)
            newest = latest.get(partition, offset)
            self._partitions[partition] = self._read(partition, begin, offset, newest, rate, stats)
        self._batches.append(
            BatchReport(
                batch_id=batch_id,
                generation=deployment.generation,
                records_in=stats.records_in.total(),
                records_out=stats.records_out.total(),
                dead_letters=stats.reasons(),
                offsets={str(partition): bounds for partition, bounds in done.items()},
                started_ms=started_ms,
                duration_ms=duration_ms,
            )
        )
        self._write_statuses()
        self._write_logs(deployment, stats)

    def _unread(self, partition: int, begin: int, end: int) -> PartitionStatus:
        spec = self._deployment.spec
        return PartitionStatus(
            job=self._job.job,
            transform=spec.name,
            topic=self._topic,
            partition=partition,
            digest=spec.digest,
            generation=self._deployment.generation,
            state="running",
            offset=begin,
            lag=end - begin,
            rate=0.0,
            since_offset=begin,
            updated_ms=now_ms(),
        )

    def _read(
        self, partition: int, begin: int, end: int, latest: int, rate: float, batch: BatchStats
    ) -> PartitionStatus:
        before = self._partitions.get(partition)
        fresh = self._unread(partition, begin, latest)
        same = before is not None and before.is_of_generation(fresh) and before.offset <= begin
        base = before if before is not None and same else fresh
        letters = sum(count for (where, _), count in batch.dead_letters.items() if where == partition)
        return replace(
            fresh,
            offset=end,
            lag=max(0, latest - end),
            rate=rate,
            since_offset=base.since_offset,
            generation_records=base.generation_records + batch.records_in[partition],
            generation_dead_letters=base.generation_dead_letters + letters,
            records_in=self._total.records_in[partition],
            records_out=self._total.records_out[partition],
            hangs=self._total.hangs[partition],
            lost_offsets=self._total.lost_offsets[partition],
            host=self._total.hosts.get(partition, ""),
            dead_letters={
                label: count for (where, label), count in self._total.dead_letters.items() if where == partition
            },
        )

    def _commit(self, offsets: dict[int, int]) -> None:
        if self._groups is None:
            return
        group = self._job.group
        try:
            newest = self._jobs.last_claim(self._job.job)
            if newest is None or newest.driver != self._driver:
                log.warning("the offsets of group %s now belong to a newer driver", group)
                return
            self._groups.commit_offsets(
                group, {TopicPartition(self._topic, partition): offset for partition, offset in offsets.items()}
            )
            self._group_permission.passed()
        except KafkaError as error:
            if self._group_permission.is_missing(error):
                raise
            log.warning("the offsets of group %s, which lag tools read, are behind: %s", group, error)

    def _write_statuses(self) -> None:
        try:
            self._status.write(replace(status, state=self._state) for status in self._partitions.values())
            self._status_permission.passed()
        except KafkaError as error:
            if self._status_permission.is_missing(error):
                raise
            log.warning("the partition statuses of job %s are behind: %s", self._job.job, error)

    def _write_logs(self, deployment: Deployment, stats: BatchStats) -> None:
        if not stats.lines:
            return
        try:
            self._status.write_logs(deployment.spec.name, stats.lines)
            self._log_permission.passed()
        except KafkaError as error:
            if self._log_permission.is_missing(error):
                raise
            log.warning("%d log lines of %s are lost: %s", len(stats.logs), deployment.spec.name, error)


def _offsets(value: Any, topic: str) -> dict[int, int]:
    """Return Spark's offset JSON of one topic, ``{"topic": {"0": 5}}`` or its text; None is no offset yet."""
    parsed = json.loads(value) if isinstance(value, str) else value
    return {int(partition): offset for partition, offset in (parsed or {}).get(topic, {}).items()}
