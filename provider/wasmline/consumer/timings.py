"""Waits and time limits of a consumer. They are no options: tests set others."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Timings:
    """Seconds that the parts of a consumer wait, at most or between two attempts."""

    # -- the control loop --------------------------------------------------------------------------------------------

    result_linger_s: float = 0.001
    """Seconds in which results accumulate while no worker waits for them."""

    busy_poll_interval_s: float = 0.01
    """Seconds between two polls for records while results are awaited."""

    idle_poll_timeout_s: float = 0.2
    """Seconds that a consumer without any work waits in a poll; it answers no other thread meanwhile."""

    health_timeout_s: float = 1.0
    """Seconds that a request for the health waits for the control loop."""

    check_interval_s: float = 0.25
    """Seconds between two checks for timed-out calls and stalled partitions, and for which a call may exceed its limit
    before it counts as timed out."""

    # -- the end of a partition, or of the consumer ------------------------------------------------------------------

    last_commit_timeout_s: float = 30.0
    """Seconds that the last commit of a partition may take."""

    last_commit_retry_s: float = 5.0
    """Seconds in which the last commit of a partition is retried: a group during a rebalance rejects it."""

    last_commit_retry_interval_s: float = 0.05
    """Seconds between two such attempts."""

    handler_shutdown_s: float = 2.0
    """Seconds that handlers have to return once their results are no longer awaited."""

    # -- the opening of partitions -----------------------------------------------------------------------------------

    retry_backoff_s: float = 1.0
    """Seconds until a partition whose progress could not be read or written is reopened."""

    max_error_duration_s: float = 60.0
    """Seconds after which an error that is not known to be transient, without a commit since, ends the consumer."""

    opening_timeout_s: float = 60.0
    """Seconds to wait for the opening of a partition that is being closed: longer than its requests may take."""

    # -- backends ----------------------------------------------------------------------------------------------------

    request_timeout_s: float = 10.0
    """Seconds that one request of a source may take, and that a read of offsets waits for open transactions."""

    statistics_interval_s: float = 5.0
    """Seconds between two reports of a client about its connections."""

    transactions_open_timeout_s: float = 30.0
    """Maximum seconds of each step of opening a partition in a delivery with transactions."""


DEFAULT_TIMINGS = Timings()
"""The timings of every consumer, except in tests."""
