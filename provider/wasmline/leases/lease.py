"""A lease: some partitions of a job for a while. Who gives leases out, Spark or another, does not matter here.

All that a lease leaves behind is in Kafka: outputs, the group's progress, statuses. A lease that is run again, or after
it is over, or by two at a time, is therefore one that has less to do, or nothing: docs/protocols/leases.md.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from wasmline import clock
from wasmline.control import Deployment, DriverClaim, JobControlState
from wasmline.jobs import JobSpec, StreamSpec, stream_of

RENEWAL_TIMEOUT_S = 10.0
"""Seconds without a sign of life after which somebody else may have been given the partitions."""


def lease_name(driver: str, epoch: int) -> str:
    """Return the name of a round of leases."""
    return f"{driver}.{epoch}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """Some partitions of a job's topic, for a while.

    job: the order that is carried out. deployment: what is run; None where the order names a function.
    driver, epoch: whose lease it is, and which of his; a newer one ends it.
    until: when it is over, in Unix seconds; who runs it again has the rest of that time.
    control: the next offsets of the control topics: what is written from there on may end the lease.
    progress: the partitions, and how far each had come: whoever opens it finds that or more.
    ends: where those partitions that hold anything begin and end, for a job that ends when it has caught up.
    keeps_maps: whether offset maps can be kept on this cluster.
    """

    job: JobSpec
    deployment: Deployment | None
    driver: str
    epoch: int
    topic: str
    until: float
    control: Mapping[str, int]
    progress: Mapping[int, int]
    ends: Mapping[int, tuple[int, int]] | None = None
    keeps_maps: bool = True

    @property
    def name(self) -> str:
        """What tells it from every other lease of the job; those of one round share it."""
        return lease_name(self.driver, self.epoch)

    @property
    def partitions(self) -> tuple[int, ...]:
        """Which they are."""
        return tuple(self.progress)

    @property
    def stream(self) -> StreamSpec:
        return stream_of(self.job)

    def superseded(self, control: JobControlState) -> str | None:
        """Return why the lease is over by what was written since it was given out, or None."""
        order, claim, withdrawal, deployment = control.order, control.claim, control.withdrawal, control.deployment
        if order and (order.wanted == "stopped" or order.spec.run != self.job.run):
            return "a stop is wanted"
        if order and order.spec.stream != self.job.stream:
            return "the order was changed"
        if claim and self.is_taken_by(claim):
            return "the job was claimed anew"
        if withdrawal and withdrawal.driver == self.driver and withdrawal.epoch >= self.epoch:
            return "it was withdrawn"
        if deployment and self.deployment and deployment.generation != self.deployment.generation:
            return f"generation {deployment.generation} is deployed"
        if deployment and deployment.state == "paused":
            return "the deployment is paused"
        return None

    def is_taken_by(self, claim: DriverClaim) -> bool:
        """Say whether a claim gives the partitions to another lease."""
        return claim.driver != self.driver or claim.batch_id > self.epoch


class LeaseValidity:
    """Whether a lease may still be worked on: until its time is over, and only as long as it is renewed.

    Where a process did not run for a while, others may have been given its partitions; it must not go on as if nothing
    had happened. Any thread may ask.
    """

    def __init__(self, until: float) -> None:
        self._until = until
        self._renewed = clock.uptime()
        self._lost = False

    def renew(self) -> None:
        """Say that this process is alive; too late, that changes nothing."""
        if self.held():
            self._renewed = clock.uptime()

    def lose(self) -> None:
        """Hear that the partitions are somebody else's."""
        self._lost = True

    def held(self) -> bool:
        """Say whether the partitions are this process's to work on."""
        self._lost = self._lost or clock.uptime() - self._renewed > RENEWAL_TIMEOUT_S or time.time() > self._until
        return not self._lost
