"""Time limits of a stream job's driver."""

from __future__ import annotations

from dataclasses import dataclass

from wasmline.consumer.backends.kafka import REQUEST_TIMEOUT_S
from wasmline.job_offsets.offset_renewal import MAX_RENEWAL_INTERVAL_S
from wasmline.job_specs import HEARTBEAT_INTERVAL_S

POLL_INTERVAL_S = 0.5
"""Seconds between two polls: of the query and the job's order, and of a paused deployment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamTimings:
    """How long a driver waits for others."""

    heartbeat_timeout_s: float = 3 * HEARTBEAT_INTERVAL_S
    """Seconds without a report after which a run stops waiting for the driver of an earlier run."""

    open_transaction_wait_s: float = 2.0
    """Seconds to wait for open transactions before they are ended: those of a driver at work take less, and those of a
    dead one do not end by themselves for a minute."""

    stable_read_timeout_s: float = REQUEST_TIMEOUT_S
    """Seconds to wait for open transactions once those of other drivers are ended."""

    task_start_timeout_s: float = 60.0
    """Seconds that a task may wait for a slot, for example while an executor is replaced."""

    max_renewal_interval_s: float = MAX_RENEWAL_INTERVAL_S
    """Maximum seconds between two renewals of committed offsets, in micro-batches with exactly-once."""


DEFAULT_TIMINGS = StreamTimings()
