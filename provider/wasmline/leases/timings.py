"""Time limits of a lease."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTimings:
    """How long a lease, its last work and its silence may be. The process that runs the lease decides."""

    min_lease_s: float = 5.0
    """Minimum seconds of a lease, whatever this machine's clock says is left: if that clock is ahead of the planner's,
    no lease would otherwise be processed."""

    drain_timeout_s: float = 30.0
    """Maximum seconds for records in flight once a lease is over."""

    last_commit_timeout_s: float = 30.0
    """Seconds after that in which the last commits are made."""

    renewal_timeout_s: float = 10.0
    """Seconds without a heartbeat after which the partitions may have been assigned to another process. A worker sends
    one every ``lease_worker.POLL_INTERVAL_S``: 40 of them in this time."""

    @property
    def end_timeout_s(self) -> float:
        """Maximum seconds from the end of a lease to the end of its work."""
        return self.drain_timeout_s + self.last_commit_timeout_s


DEFAULT_TIMINGS = LeaseTimings()
