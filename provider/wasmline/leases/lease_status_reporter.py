"""Reports the statuses of a lease's partitions while they are processed."""

from __future__ import annotations

import logging
import socket
import threading
import uuid
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

from wasmline.background_call import BackgroundCall
from wasmline.clock import now_ms
from wasmline.consumer import ConsumerHealth
from wasmline.consumer.health import PartitionHealth
from wasmline.control import Deployment, StatusTopic
from wasmline.errors import KafkaError
from wasmline.job_specs import JobSpec
from wasmline.kafka import KafkaConfig
from wasmline.kafka.permission_check import PermissionCheck
from wasmline.leases.lease import Lease
from wasmline.partition_status import PartitionStatus
from wasmline.pipeline.batch_stats import BatchStats

logger = logging.getLogger(__name__)

CLOSE_TIMEOUT_S = 5.0
"""Maximum seconds of writing the last statuses; after that they are dropped."""

NOTHING: Mapping[int, int] = MappingProxyType({})

_permissions: dict[tuple[str, str], PermissionCheck] = defaultdict(PermissionCheck)
"""This process's permissions to write statuses and log lines, by cluster."""

_logs: dict[str, StatusTopic] = {}
"""This process's status log, by cluster: a new connection would take half a second for its identity."""


def unread(job: JobSpec, deployment: Deployment | None, topic: str, partition: int) -> PartitionStatus:
    """Return the status of a partition without any records read."""
    stream = job.stream
    return PartitionStatus(
        job=job.job,
        transform=stream.function.function if stream and stream.function else stream.transform if stream else "",
        topic=topic,
        partition=partition,
        digest=deployment.spec.digest if deployment else "",
        generation=deployment.generation if deployment else 0,
        state="running",
        offset=0,
        lag=0,
        rate=0.0,
        since_offset=0,
        updated_ms=now_ms(),
    )


class LeaseProgress(NamedTuple):
    """Progress of a lease, for observers only: the rows of a failed attempt are lost."""

    epoch: int
    partitions: str
    records: int
    in_flight: int


class LeaseStatusReporter:
    """Writes partition statuses to the status topic, in its own thread, without delaying other work.

    The counts of a run continue from lease to lease. Statuses that cannot be written are logged; ``denied`` is the
    error if an ACL is missing for them. Once the lease is not ``held``, its partitions are another attempt's to report.
    """

    def __init__(self, config: KafkaConfig, lease: Lease, held: Callable[[], bool]) -> None:
        self.denied: KafkaError | None = None
        self._config = config
        self._lease = lease
        self._held = held
        self._attempt = uuid.uuid4().hex
        self._log: StatusTopic | None = None
        self._base: dict[int, PartitionStatus] = {}
        """The statuses at the time when the consumer began to count."""
        self._last: dict[int, PartitionStatus] = {}
        self._lines = BatchStats()
        self._lines_lock = threading.Lock()
        self._writing = BackgroundCall(self._open)

    def add_logs(self, lines: BatchStats) -> None:
        """Take log lines of a guest, to be written with the next statuses. Any thread may call this."""
        with self._lines_lock:
            self._lines += lines

    def begin(self) -> None:
        """Expect a consumer that counts from 0."""
        self._base |= self._last

    def publish(self, health: ConsumerHealth) -> LeaseProgress:
        """Write changes since the last call, unless a write is still running; return a summary."""
        if self._writing.wait(0):
            if self._log is None and self.denied is None:
                self._writing = BackgroundCall(self._open)
            else:
                self._write(health)
        return LeaseProgress(
            self._lease.epoch,
            ",".join(map(str, self._lease.partitions)),
            sum(each.counts.records for each in health.partitions),
            sum(each.in_flight for each in health.partitions),
        )

    def close(self, health: ConsumerHealth | None, left: Mapping[int, int]) -> None:
        """Write the last statuses, and end. ``left``: the final offsets of partitions, as far as known."""
        self._writing.wait(CLOSE_TIMEOUT_S)
        if health is not None:
            self._write(health, left)
            self._writing.wait(CLOSE_TIMEOUT_S)

    def _open(self) -> None:
        cluster = self._config.to_json()
        try:
            log = _logs[cluster] = _logs.get(cluster) or StatusTopic(self._config)
            self._base |= {each.partition: each for each in log.of(self._lease.job.job)}
            log.close_reader()
            self._log = log
        except KafkaError as error:
            self._warn("statuses", error)

    def _write(self, health: ConsumerHealth, left: Mapping[int, int] = NOTHING) -> None:
        if not self._held():
            return
        statuses = self._last | {each.partition.partition: self._status(each) for each in health.partitions}
        reported = [replace(status, committed=left.get(number)) for number, status in statuses.items()]
        changed = [status for status in reported if not _same(status, self._last.get(status.partition))]
        self._last |= {status.partition: status for status in changed}
        with self._lines_lock:
            lines, self._lines = self._lines.lines, BatchStats()
        if (changed or lines) and self._log is not None:
            self._writing = BackgroundCall(partial(self._write_to_topic, self._log, changed, lines))

    def _write_to_topic(self, log: StatusTopic, statuses: Collection[PartitionStatus], lines: Sequence[str]) -> None:
        what, cluster = "statuses", self._config.to_json()
        try:
            log.write(statuses)
            _permissions[cluster, what].passed()
            if lines:
                what = "log lines"
                log.write_logs(self._lease.stream.transform, lines)
                _permissions[cluster, what].passed()
        except KafkaError as error:
            self._warn(what, error)

    def _status(self, health: PartitionHealth) -> PartitionStatus:
        number, counts = health.partition.partition, health.counts
        fresh = unread(self._lease.job, self._lease.deployment, self._lease.topic, number)
        base = self._base.get(number, fresh)
        last = self._last.get(number, base)
        offset = last.offset if health.next_commit is None else health.next_commit
        reasons = base.dead_letters.keys() | counts.dead_letters.keys()
        records_in = base.records_in + counts.records
        letters = {each: base.dead_letters.get(each, 0) + counts.dead_letters[each] for each in sorted(reasons)}
        same = last.is_of_generation(fresh)
        now = now_ms()
        return replace(
            fresh,
            offset=offset,
            lag=last.lag if health.lag is None else health.lag,
            rate=round(max(0, records_in - last.records_in) * 1_000 / max(1, now - last.updated_ms), 1),
            since_offset=last.since_offset if same else self._lease.progress[number],
            generation_records=last.generation_records * same + max(0, records_in - last.records_in),
            generation_dead_letters=last.generation_dead_letters * same
            + max(0, sum(letters.values()) - sum(last.dead_letters.values())),
            updated_ms=now,
            records_in=records_in,
            records_out=base.records_out + counts.outputs - counts.dead_letters.total(),
            dead_letters=letters,
            in_flight=health.in_flight,
            retries=base.retries + counts.retries,
            hangs=base.hangs + counts.hangs,
            stuck_keys=health.stuck_keys,
            lost_offsets=base.lost_offsets + counts.lost_offsets,
            host=socket.gethostname(),
            lease=self._lease.name,
            attempt=self._attempt,
        )

    def _warn(self, what: str, error: KafkaError) -> None:
        if _permissions[self._config.to_json(), what].is_missing(error):
            self.denied = error
        logger.warning("the %s of job %s are behind: %s", what, self._lease.job.job, error)


def _same(status: PartitionStatus, last: PartitionStatus | None) -> bool:
    return last is not None and replace(status, updated_ms=0) == replace(last, updated_ms=0)
