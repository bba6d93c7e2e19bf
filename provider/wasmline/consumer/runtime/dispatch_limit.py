"""Limits the calls that are dispatched to an executor at a time, by the duration of those that have returned."""

from __future__ import annotations

from wasmline.consumer.health import Counters
from wasmline.consumer.runtime.executors import Executor

QUEUED_S = 0.002
"""Seconds of work that should wait in an executor's queue: twice the linger of the control loop."""

MAX_QUEUED_CALLS = 1_000
"""Maximum of calls that wait in an executor's queue because they are short."""


class DispatchLimit:
    """How many calls an executor is given: those that its ``room`` is for, and more while they are short.

    An iteration of the control loop costs as much as many calls of a handler that returns at once. Records do not wait
    longer for that, since all workers of an executor serve one queue.
    """

    def __init__(self, executor: Executor, counters: Counters) -> None:
        self.calls = executor.room
        """Maximum of calls that the executor holds, including those that run."""
        self._executor = executor
        self._counters = counters
        self._returned = 0
        self._seconds = 0.0
        self._mean_s: float | None = None

    def update(self) -> None:
        """Take the calls into account that have returned since the last update."""
        returned = self._counters.batches - self._returned
        if not returned or self._executor.takes_columns:  # columns are as many as a call has time for
            return
        mean_s = (self._counters.handler_seconds - self._seconds) / returned
        self._returned, self._seconds = self._counters.batches, self._counters.handler_seconds
        self._mean_s = mean_s if self._mean_s is None else (self._mean_s + mean_s) / 2
        workers = self._executor.workers
        queued = min(MAX_QUEUED_CALLS, int(workers * QUEUED_S / max(self._mean_s, 1e-6)))
        self.calls = max(self._executor.room, workers + queued)
