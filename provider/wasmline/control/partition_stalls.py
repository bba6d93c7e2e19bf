"""Finds the partitions of a job that make no progress between two readings of its status. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from wasmline.control.deployment_spec import Deployment
from wasmline.control.job_status import JobStatus
from wasmline.control.job_topic import JobOrder
from wasmline.job_specs import JobState
from wasmline.partition_status import PartitionStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStall:
    """A partition of which no record was done although ``lag`` are there, from ``offset`` on."""

    job: str
    topic: str
    partition: int
    offset: int
    lag: int
    reason: str


def partition_stalls(
    before: JobStatus, after: JobStatus, deployment: Deployment | None = None
) -> Iterator[PartitionStall]:
    """Yield the partitions that had records to read in both statuses, and made no progress between them.

    Only of a run that was running at both moments: one that starts shows the statuses of the run before.
    ``deployment`` is the current one of the job's transform: if it is paused, that is the reason.
    """
    if before.order.spec.run != after.order.spec.run or not (_is_running(before) and _is_running(after)):
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
                reason=_reason(each, after.order, deployment),
            )


def _is_running(status: JobStatus) -> bool:
    return status.report is not None and status.report.state is JobState.RUNNING


def _progress(status: PartitionStatus) -> tuple[int, int, int]:
    return status.offset, status.records_in, status.lost_offsets


def _reason(status: PartitionStatus, order: JobOrder, deployment: Deployment | None) -> str:
    if order.paused:
        return f"the job is paused: {order.pause_reason or 'no reason was given'}"
    if deployment is not None and deployment.state == "paused":
        return f"deployment {deployment.spec.name} is paused: {deployment.reason or 'no reason was given'}"
    if status.state != "running":
        return f"its state is {status.state}"
    if status.stuck_keys:
        return f"{status.stuck_keys} keys are stuck, after {status.retries} retries"
    return "no batch or lease has read it"
