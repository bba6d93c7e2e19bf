"""Reads and writes the status topic: partition statuses, and log lines of guests."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import NamedTuple

from wasmline.control import control_topics
from wasmline.documents import decode, encode
from wasmline.errors import UnsupportedSpecVersion
from wasmline.kafka import CompactedTopic, KafkaConfig, RecordWriter, read_to_end
from wasmline.partition_status import PartitionStatus
from wasmline.printable import bounded_line

logger = logging.getLogger(__name__)


class StatusTopic:
    """Partition statuses by job and partition, and guest log lines by transform."""

    def __init__(self, config: KafkaConfig) -> None:
        control_topics.ensure(config)
        self._topic = CompactedTopic(config, control_topics.STATUS)
        self._writer = RecordWriter(config)

    def write(self, statuses: Iterable[PartitionStatus]) -> None:
        """Write one status per partition; returns when every in-sync replica has them."""
        self._writer.write(
            control_topics.STATUS,
            ((f"{status.job}/{status.partition}".encode(), encode(status), [], None) for status in statuses),
        )

    def all(self) -> list[PartitionStatus]:
        """Return the last status of every partition of every job, sorted by job and partition."""
        return self._read(b"")

    def of(self, job: str) -> list[PartitionStatus]:
        """Return the last status of every partition of the topic that a job read last, sorted by partition."""
        known = self._read(f"{job}/".encode())
        topic = max(known, key=attrgetter("updated_ms")).topic if known else ""
        return [status for status in known if status.topic == topic]

    def write_logs(self, transform: str, lines: Iterable[str]) -> None:
        """Append guest log lines of ``transform``."""
        self._writer.write(control_topics.LOGS, ((transform.encode(), line.encode(), [], None) for line in lines))

    def _read(self, prefix: bytes) -> list[PartitionStatus]:
        statuses = [
            status
            for key, value in self._topic.read().items()
            if key.startswith(prefix) and (status := _decoded(key, value)) is not None
        ]
        return sorted(statuses, key=lambda status: (status.job, status.partition))

    def close_reader(self) -> None:
        """Close the reading connection, which polls; the next read opens another."""
        self._topic.close()

    def close(self) -> None:
        """Close the Kafka clients."""
        self._writer.close()
        self._topic.close()


class _Report(NamedTuple):
    """What a status says of a partition under a lease: see PartitionStatus."""

    attempt: str
    committed: int | None


class LeftOffset(NamedTuple):
    """The offset at which a lease left a partition committed, or the least one if not ``is_exact``."""

    offset: int
    is_exact: bool


def left_offsets(config: KafkaConfig, job: str, lease: str, *, delivery: str) -> dict[int, LeftOffset]:
    """Return where a lease left its partitions, of those of which the last statuses of its attempts are certain."""
    reports: dict[int, list[_Report]] = defaultdict(list)
    for message in read_to_end(config, control_topics.STATUS):
        key, value = message.key() or b"", message.value()
        if value is None or lease.encode() not in value:
            continue
        status = _decoded(key, value)
        if status is not None and (status.job, status.lease) == (job, lease):
            reports[status.partition].append(_Report(status.attempt, status.committed))
    is_fenced = delivery == "exactly_once"
    left = {partition: _left(of_partition, is_fenced=is_fenced) for partition, of_partition in reports.items()}
    return {partition: found for partition, found in left.items() if found is not None}


def _left(reports: Sequence[_Report], *, is_fenced: bool) -> LeftOffset | None:
    """Return where the attempts at a lease left a partition; None if that is not certain.

    An attempt that says no offset works still or was killed. Exactly once, one that began later has fenced it, and the
    highest offset counts: an attempt that was replaced may be the last to say its own, and know of less. At least once,
    its commits may still arrive, and set the group back, too.
    """
    last = {each.attempt: each.committed for each in reports}  # in the order in which they began
    ended = [committed for committed in last.values() if committed is not None]
    if not ended or (len(last) > 1 and not is_fenced):
        return None
    has_newest_ended = list(last.values())[-1] is not None
    return LeftOffset(max(ended), has_newest_ended)


def _decoded(key: bytes, value: bytes) -> PartitionStatus | None:
    try:
        return decode(PartitionStatus, value)
    except UnsupportedSpecVersion as error:
        logger.warning("the status %s is skipped: %s", bounded_line(key.decode(errors="replace")), error)
        return None
