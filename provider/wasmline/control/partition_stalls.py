"""Finds the partitions of a job that make no progress between two readings of its status. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from wasmline.control.job_status import JobStatus
from wasmline.partition_status import PartitionStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStall:
    """A partition with records to read at ``offset`` that none were read of; ``reason`` as far as its status says."""

    job: str
    topic: str
    partition: int
    offset: int
    lag: int
    reason: str


def partition_stalls(before: JobStatus, after: JobStatus) -> Iterator[PartitionStall]:
    """Yield the partitions of one run that had records to read in both statuses, and made no progress between them."""
    if before.order.spec.run != after.order.spec.run:
        return
    earlier = {(each.topic, each.partition): each for each in before.partitions}
    for each in after.partitions:
        last = earlier.get((each.topic, each.partition))
        if last is not None and last.lag > 0 and each.lag > 0 and _progress(last) == _progress(each):
            yield PartitionStall(
                job=each.job,
                topic=each.topic,
                partition=each.partition,
                offset=each.offset,
                lag=each.lag,
                reason=_reason(each),
            )


def _progress(status: PartitionStatus) -> tuple[int, int, int]:
    return status.offset, status.records_in, status.lost_offsets


def _reason(status: PartitionStatus) -> str:
    if status.state != "running":
        return f"its state is {status.state}"
    if status.stuck_keys:
        return f"{status.stuck_keys} keys are stuck, after {status.retries} retries"
    return "no batch or lease has read it"
