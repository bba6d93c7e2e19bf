"""A lease: some partitions of a job for a time. Independent of the scheduler that plans leases, Spark or another.

All effects of a lease are in Kafka (outputs, the group's progress, statuses), so running it again, late, or twice at
once is safe: the second run finds less to do, or nothing. See docs/protocols/leases.md.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from wasmline import clock
from wasmline.control import Deployment, DriverClaim, JobControlState
from wasmline.job_specs import JobSpec, StreamSpec, stream_of
from wasmline.leases.timings import DEFAULT_TIMINGS, LeaseTimings


def lease_name(driver: str, epoch: int) -> str:
    """Return the name of a round of leases."""
    return f"{driver}.{epoch}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """Some partitions of a job's topic, for a time.

    job: the order. deployment: the one to run; None where the order names a function.
    driver, epoch: the driver of the lease, and the number of its round; a newer round ends the lease.
    until: the end of the lease, in Unix seconds; an attempt that runs it again has the rest of that time.
    control_offsets: the next offsets of the control topics: records from there on may end the lease.
    progress: the partitions, with their committed offsets at the start: an opening finds these or higher ones.
    bounds: begin and end of those partitions that have records, for a job that ends when it has caught up.
    keeps_maps: whether offset maps can be stored on this cluster. client: the release of confluent-kafka with which the
        driver has tested that.
    """

    job: JobSpec
    deployment: Deployment | None
    driver: str
    epoch: int
    topic: str
    until: float
    control_offsets: Mapping[str, int]
    progress: Mapping[int, int]
    bounds: Mapping[int, tuple[int, int]] | None = None
    keeps_maps: bool = True
    client: str = ""

    @property
    def name(self) -> str:
        """The lease's name, unique in the job; leases of one round share it."""
        return lease_name(self.driver, self.epoch)

    @property
    def partitions(self) -> tuple[int, ...]:
        """The partitions' numbers."""
        return tuple(self.progress)

    @property
    def stream(self) -> StreamSpec:
        return stream_of(self.job)

    def superseded(self, control: JobControlState) -> str | None:
        """Return the reason for which later control records end the lease, or None."""
        order, claim, withdrawal, deployment = control.order, control.claim, control.withdrawal, control.deployment
        if order and (order.wanted == "stopped" or order.spec.run != self.job.run):
            return "a stop is wanted"
        if order and order.spec.stream != self.job.stream:
            return "the order was changed"
        if order and order.paused:
            return "the job is paused"
        if claim and self.is_taken_by(claim):
            return "the job was claimed again"
        if withdrawal and withdrawal.driver == self.driver and withdrawal.epoch >= self.epoch:
            return "it was withdrawn"
        if deployment and self.deployment and deployment.generation != self.deployment.generation:
            return f"generation {deployment.generation} is deployed"
        if deployment and deployment.state == "paused":
            return "the deployment is paused"
        return None

    def is_taken_by(self, claim: DriverClaim) -> bool:
        """Return whether a claim gives the partitions to another lease."""
        return claim.driver != self.driver or claim.batch_id > self.epoch


class LeaseValidity:
    """Tracks whether a lease is valid: until its end, and only as long as it is renewed.

    After a suspension of its process, its partitions may have a new owner, so it must not continue. Any thread may
    call this.
    """

    def __init__(self, until: float, timings: LeaseTimings = DEFAULT_TIMINGS) -> None:
        self._until = until
        self._timeout_s = timings.renewal_timeout_s
        self._renewed = clock.uptime()
        self._lost = False

    def renew(self) -> None:
        """Record a heartbeat of this process; too late, it has no effect."""
        if self.held():
            self._renewed = clock.uptime()

    def lose(self) -> None:
        """Record that the partitions have a new owner."""
        self._lost = True

    def held(self) -> bool:
        """Return whether this process still has the partitions."""
        self._lost = self._lost or clock.uptime() - self._renewed > self._timeout_s or time.time() > self._until
        return not self._lost
