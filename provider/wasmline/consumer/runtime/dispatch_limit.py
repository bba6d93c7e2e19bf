"""Limits the calls in flight by the mean duration and the most outputs of recent calls."""

from __future__ import annotations

from wasmline.consumer.health import Counters
from wasmline.consumer.options import ConsumerOptions
from wasmline.consumer.records import BatchResult
from wasmline.consumer.runtime.executors import Executor
from wasmline.consumer.state.calls import MAX_FOLLOWED_CALL_S, followed_outputs

TARGET_QUEUE_S = 0.002
"""Seconds of work to keep queued for each worker, if calls take as long as recent ones: twice the linger of the control
loop."""

MAX_QUEUED_CALLS = 500
"""Maximum of calls that wait in an executor's queue because they are short."""

MAX_FOLLOWERS = 15
"""Maximum of records of the same key that run directly after one, so that none of them waits for the control loop."""

MIN_FOLLOWED_RATIO = 0.5
"""Part of the calls after which a worker continues: with fewer, most records that follow would be queued again."""

NO_RETURN_S = 0.02
"""If no call returns for so many seconds, calls are assumed to take at least as long."""


class DispatchLimit:
    """How many calls an executor is given: those that its ``room`` is for, and more while they are short.

    An iteration of the control loop costs as much as many calls of a handler that returns at once. As soon as calls are
    longer, or have many or large outputs, the limit is lower, and what no worker has begun is to be recalled: queued in
    the executor, it would delay retries and the records of quieter partitions.
    """

    def __init__(self, executor: Executor, counters: Counters, options: ConsumerOptions) -> None:
        self.max_in_flight = executor.room
        """Maximum of calls that the executor holds, including those that run."""
        self._executor = executor
        self._counters = counters
        self._outputs = _Budget(options.buffer_records)
        self._output_bytes = _Budget(options.buffer_bytes)
        self._seconds = _Budget(executor.workers * TARGET_QUEUE_S)
        self._followed_outputs = followed_outputs(options, MAX_FOLLOWERS)
        self._followed = 0
        """Calls, since the last update, after which a worker continues with any of MAX_FOLLOWERS."""
        self._followed_ratio = 1.0
        """Their part of all calls: a moving average."""
        self._most_outputs = self._most_bytes = 0
        """Outputs of one call, since the last update."""
        self._handler_seconds = 0.0
        self._returned = 0
        self._last_return = 0.0
        """The last time at which calls had returned, or none was in flight."""

    def count(self, seconds: float, result: BatchResult) -> None:
        """Count a call that has returned, with its duration and its outputs."""
        outputs = size = 0
        if result.outputs:
            outputs, size = len(result.outputs), sum(output.size for output in result.outputs)
            self._most_outputs = max(self._most_outputs, outputs)
            self._most_bytes = max(self._most_bytes, size)
        most, most_bytes = self._followed_outputs
        self._followed += seconds <= MAX_FOLLOWED_CALL_S and outputs <= most and size <= most_bytes

    def update(self, now: float, in_flight: int) -> None:
        """Take the calls into account that have returned since the last update, and those that have not."""
        if self._executor.takes_columns:  # columns are as many as a call has time for
            return
        if returned := self._counters.batches - self._returned:
            self._returned = self._counters.batches
            self._seconds.update((self._counters.handler_seconds - self._handler_seconds) / returned)
            self._handler_seconds = self._counters.handler_seconds
            self._followed_ratio = (self._followed_ratio + self._followed / returned) / 2
            self._followed = 0
            # These may grow at once, and what is in flight by then cannot be stopped.
            for budget, most in ((self._outputs, self._most_outputs), (self._output_bytes, self._most_bytes)):
                budget.update(most)
                budget.raise_to(most)
            self._most_outputs = self._most_bytes = 0
            self._last_return = now
        elif not in_flight:
            self._last_return = now
            return
        elif not self._returned or now - self._last_return < NO_RETURN_S:
            return
        else:
            self._seconds.raise_to(now - self._last_return)
        queued = min(each.affordable_calls for each in (self._seconds, self._outputs, self._output_bytes))
        self.max_in_flight = max(self._executor.room, self._executor.workers + min(queued, MAX_QUEUED_CALLS))

    @property
    def followers(self) -> int:
        """Maximum of records of the same key that run directly after one: so many that ``Batch.follow`` continues."""
        if self._followed_ratio >= MIN_FOLLOWED_RATIO:
            return MAX_FOLLOWERS
        if self._seconds.average > MAX_FOLLOWED_CALL_S:
            return 0
        calls = min(self._outputs.affordable_calls, self._output_bytes.affordable_calls)
        return min(MAX_FOLLOWERS, calls // self._executor.workers)


class _Budget:
    """A resource of which the calls that are queued may use so much together."""

    def __init__(self, limit: float) -> None:
        self.average = 0.0
        """Use of a call: a moving average, in which each update has a weight of one half."""
        self._limit = limit
        self._has_average = False

    def update(self, latest: float) -> None:
        self.average = (self.average + latest) / 2 if self._has_average else latest
        self._has_average = True

    def raise_to(self, use: float) -> None:
        self.average = max(self.average, use)

    @property
    def affordable_calls(self) -> int:
        """Calls that the limit is enough for."""
        return int(self._limit / max(self.average, 1e-9))
