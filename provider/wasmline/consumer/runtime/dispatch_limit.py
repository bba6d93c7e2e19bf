"""Limits the calls that are dispatched to an executor at a time, by what those were like that have returned."""

from __future__ import annotations

from wasmline.consumer.health import Counters
from wasmline.consumer.options import ConsumerOptions
from wasmline.consumer.records import BatchResult
from wasmline.consumer.runtime.executors import Executor

QUEUED_S = 0.002
"""Seconds of work that waits in an executor's queue, as long as calls last what they did: twice the linger of the
control loop."""

MAX_QUEUED_CALLS = 500
"""Maximum of calls that wait in an executor's queue because they are short."""

STALLED_S = 0.02
"""Seconds without a call that returns, after which calls count as long as that."""


class DispatchLimit:
    """How many calls an executor is given: those that its ``room`` is for, and more while they are short.

    An iteration of the control loop costs as much as many calls of a handler that returns at once. As soon as calls are
    longer, or have many or large outputs, the limit is lower, and what no worker has begun is to be recalled: it would
    wait before retries and before records of partitions that have fewer.
    """

    def __init__(self, executor: Executor, counters: Counters, options: ConsumerOptions) -> None:
        self.most = executor.room
        """Maximum of calls that the executor holds, including those that run."""
        self._executor = executor
        self._counters = counters
        self._outputs = _Mean(options.buffer_records)
        self._output_bytes = _Mean(options.buffer_bytes)
        self._seconds = _Mean(executor.workers * QUEUED_S)
        self._handler_seconds = 0.0
        self._returned = 0
        self._latest = 0.0
        """The last time at which calls had returned, or none was in flight."""

    def add(self, result: BatchResult) -> None:
        """Count the outputs of a call that has returned."""
        if result.outputs:
            self._outputs.sum += len(result.outputs)
            self._output_bytes.sum += sum(output.size for output in result.outputs)

    def update(self, now: float, in_flight: int) -> None:
        """Take the calls into account that have returned since the last update, and those that have not."""
        if self._executor.takes_columns:  # columns are as many as a call has time for
            return
        if returned := self._counters.batches - self._returned:
            self._returned = self._counters.batches
            self._seconds.sum = self._counters.handler_seconds - self._handler_seconds
            self._handler_seconds = self._counters.handler_seconds
            for mean in (self._seconds, self._outputs, self._output_bytes):
                mean.update(returned)
            self._latest = now
        elif not in_flight:
            self._latest = now
            return
        elif not self._returned or now - self._latest < STALLED_S:
            return
        else:
            self._seconds.value = max(self._seconds.value, now - self._latest)
        queued = min(MAX_QUEUED_CALLS, *(mean.calls for mean in (self._seconds, self._outputs, self._output_bytes)))
        self.most = max(self._executor.room, self._executor.workers + queued)


class _Mean:
    """What calls take of something on average, of which there is so much ``supply`` for those that wait."""

    def __init__(self, supply: float) -> None:
        self.sum = 0.0
        """What the calls since the last update took."""
        self.value = 0.0
        self._supply = supply
        self._is_first = True

    def update(self, calls: int) -> None:
        mean = self.sum / calls
        self.value = mean if self._is_first else (self.value + mean) / 2
        self.sum, self._is_first = 0.0, False

    @property
    def calls(self) -> int:
        """The calls that the supply is enough for."""
        return int(self._supply / self.value) if self.value * MAX_QUEUED_CALLS > self._supply else MAX_QUEUED_CALLS
