"""The key-parallel consumer: concurrency beyond the number of partitions, with the records of each key in order."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from dataclasses import replace
from queue import SimpleQueue

from wasmline.consumer.backends.base import Backend
from wasmline.consumer.handler_adapters import Handler, HandlerFactory, executor_for
from wasmline.consumer.health import ConsumerHealth, Counters, State
from wasmline.consumer.options import ConsumerOptions
from wasmline.consumer.runtime.control_loop import ControlLoop
from wasmline.consumer.runtime.executors import Executor, Mailbox
from wasmline.consumer.timings import DEFAULT_TIMINGS, Timings
from wasmline.errors import ConsumerError, CorruptRecord
from wasmline.offset_maps import DEFAULT_LIMITS, OffsetMapLimits


class ParallelConsumer:
    """Runs a handler on the records of some topics: many at a time, those of one key in order, each at least once.

    ``backend`` is the cluster; None is the one that the options name. ``run`` makes the calling thread the control
    loop; every other method may be called from any thread, a signal handler included.
    """

    def __init__(
        self,
        options: ConsumerOptions,
        backend: Backend | None = None,
        *,
        _timings: Timings = DEFAULT_TIMINGS,
        _map_limits: OffsetMapLimits = DEFAULT_LIMITS,
    ) -> None:
        self._options = options
        self._backend = backend
        self._timings = _timings
        self._map_limits = _map_limits
        self._mailbox: Mailbox = SimpleQueue()
        self._lock = threading.Lock()
        self._state = State.NEW
        self.stuck = 0
        """Calls of the handler that had not returned some time after the end. They still process their records."""
        self._thread: int | None = None
        """The control loop, while it runs."""
        self._paused = self._stopping = self._drain = False
        self._ends_at: float | None = None
        self._health_requests: SimpleQueue[Future[ConsumerHealth]] = SimpleQueue()
        self._last = ConsumerHealth(state=State.NEW, counters=Counters())

    def run(self, handler: Handler | HandlerFactory) -> None:
        """Run until ``stop``, or until an error that a retry does not resolve, which is raised.

        ``handler`` is a function of one record, or of several with a ``batch_size``; a coroutine function runs on an
        event loop, any other in ``max_concurrency`` threads. Completed records are committed, however the run ends.
        """
        with self._lock:
            if self._state is not State.NEW:
                raise ConsumerError("a consumer runs once: create another one")
            self._state = State.RUNNING
        self._thread = threading.get_ident()
        try:
            self._run(handler)
        except BaseException as error:
            self._end(State.FAILED, error)
            raise
        self._end(State.CLOSED, None)

    def stop(self, *, drain: bool = True) -> None:
        """End ``run``: with ``drain``, once all records read are done; without, once all records in flight are.

        Both wait at most ``drain_wait_ms`` for handlers, and then commit. Records not done by then are processed by
        the next consumer of the group. A second call without ``drain`` ends the draining that the first began.
        """
        self._drain = drain
        self._stopping = True
        self._mailbox.put(None)

    def pause(self) -> None:
        """Dispatch no record until ``resume``; the consumer stays a member of its group, and commits.

        A worker may still run up to 15 records that follow one of their key, while each takes up to 10 ms.
        """
        self._paused = True

    def resume(self) -> None:
        """Dispatch records again."""
        self._paused = False
        self._mailbox.put(None)

    def health(self) -> ConsumerHealth:
        """Describe the consumer now; its last known state, if it has ended or does not answer within a second."""
        if self._thread in (None, threading.get_ident()):
            return self._last
        asked: Future[ConsumerHealth] = Future()
        self._health_requests.put(asked)
        self._mailbox.put(None)
        with suppress(TimeoutError):
            return asked.result(timeout=self._timings.health_timeout_s)
        return self._last

    def _run(self, handler: Handler | HandlerFactory) -> None:
        backend = self._backend or _kafka_backend(self._options, self._timings)
        executor = executor_for(handler, self._options, self._mailbox)
        if executor.takes_columns:
            backend.use_columns()
        loop = ControlLoop(self._options, backend, executor, self._mailbox, self._timings, self._map_limits)
        try:
            backend.source.open(loop)
            try:
                self._run_until_stopped(loop)
            except BaseException:
                loop.finish(self._deadline(), is_interrupted=True)
                raise
            loop.finish(self._deadline())
        finally:
            with ExitStack() as stack:
                stack.callback(self._close, executor)
                stack.callback(backend.transactions.close)
                stack.callback(backend.sink.close)
                stack.callback(backend.source.close)
                loop.release()
                self._last = loop.health(self._state)
        if loop.failure is not None:  # of the last commits, while the member left
            raise loop.failure

    def _close(self, executor: Executor) -> None:
        self.stuck = executor.close(self._timings.handler_shutdown_s)

    def _run_until_stopped(self, loop: ControlLoop) -> None:
        try:
            while not self._stopping:
                loop.paused = self._paused
                loop.run_once()
                self._answer_health_requests(loop)
        except CorruptRecord:
            self._drain_loop(loop)  # what is to be skipped then begins at the corrupt batch
            raise
        if self._drain:
            self._drain_loop(loop)

    def _drain_loop(self, loop: ControlLoop) -> None:
        """Process all records read, until a call of ``stop`` without ``drain``."""
        self._state = State.DRAINING
        loop.paused = False
        loop.drain()
        deadline = self._deadline()
        while (self._drain or not self._stopping) and not loop.is_idle and time.monotonic() < deadline:
            loop.run_once()
            self._answer_health_requests(loop)

    def _deadline(self) -> float:
        """Return the moment until which handlers are awaited: fixed by the first call."""
        if self._ends_at is None:
            self._ends_at = time.monotonic() + self._options.drain_wait_ms / 1_000
        return self._ends_at

    def _answer_health_requests(self, loop: ControlLoop) -> None:
        if self._health_requests.empty():
            return
        state = State.PAUSED if self._paused else self._state
        self._last = loop.health(state)
        while not self._health_requests.empty():
            self._health_requests.get().set_result(self._last)

    def _end(self, state: State, failure: BaseException | None) -> None:
        self._state = state
        self._last = replace(self._last, state=state, failure=failure)
        self._thread = None
        while not self._health_requests.empty():
            self._health_requests.get().set_result(self._last)


def _kafka_backend(options: ConsumerOptions, timings: Timings) -> Backend:
    from wasmline.consumer.backends.kafka import KafkaBackend

    return KafkaBackend(options, _timings=timings)
