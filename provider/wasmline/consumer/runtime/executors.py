"""Runs handlers in threads or in one asyncio loop. Calls go in, and return with their results through one mailbox.

An executor does not change the work: of a call it reads the records, and whether its partition is ``held``, and it
returns every call with its result, unless it is recalled. The same worker runs what ``Call.follow`` returns
directly after a call.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Sequence
from contextlib import suppress
from contextvars import Context, copy_context
from functools import partial
from queue import SimpleQueue
from typing import Any, Protocol, TypeVar, cast

from wasmline.consumer.records import BatchResult, ConsumedRecord
from wasmline.consumer.runtime import event_loop
from wasmline.consumer.state.calls import Batch, Call
from wasmline.errors import HandlerCancelled, HandlerTimeout

logger = logging.getLogger(__name__)

CANCEL_TIMEOUT_S = 1.0
"""Seconds that a coroutine has to end once it is cancelled."""


Mailbox = SimpleQueue[Call | None]
"""Calls that return to the control loop; None only wakes it."""

BatchHandler = Callable[[Sequence[ConsumedRecord]], BatchResult]
T = TypeVar("T")
AsyncBatchHandler = Callable[[Sequence[ConsumedRecord]], Coroutine[Any, Any, BatchResult]]


class Executor(Protocol):
    """Runs calls of the handler. Its methods are called by the control loop only."""

    workers: int
    """Maximum of calls that run at the same time."""

    room: int
    """Maximum of calls that it holds, including those that run."""

    takes_columns: bool
    """Whether records should be read as columns: its handlers have ``handle_columns``."""

    def submit(self, calls: Sequence[Call]) -> None:
        """Run these, in this order as workers become free."""

    def recall(self) -> Call | None:
        """Return the call that was submitted last, if no worker has begun it: it does not run then."""

    def close(self, timeout: float) -> int:
        """End the workers after their current work; return the number of calls that last beyond ``timeout`` s."""


class ThreadExecutor:
    """Runs each call in one of up to ``workers`` threads. Each thread creates its own handler, once, and closes it."""

    def __init__(
        self,
        make: Callable[[], BatchHandler],
        workers: int,
        room: int,
        mailbox: Mailbox,
        *,
        takes_columns: bool = False,
    ) -> None:
        self.workers = workers
        self.room = room
        self.takes_columns = takes_columns
        self._make = make
        self._mailbox = mailbox
        self._calls: deque[Call] = deque()
        self._wakeups: SimpleQueue[bool] = SimpleQueue()
        """One for each call that was submitted, and False for the end of a thread."""
        self._threads: list[threading.Thread] = []
        self._latest: dict[str, Call] = {}
        """The last call that each thread began, by the thread's name."""

    def submit(self, calls: Sequence[Call]) -> None:
        self._calls.extend(calls)
        for _ in calls:
            self._wakeups.put(True)
        for number in range(len(self._threads), min(self.workers, len(self._threads) + len(calls))):
            thread = threading.Thread(target=self._work, name=f"wasmline-handler-{number}", daemon=True)
            thread.start()
            self._threads.append(thread)

    def recall(self) -> Call | None:
        return _last(self._calls)

    def close(self, timeout: float) -> int:
        for _ in self._threads:
            self._wakeups.put(False)
        deadline = time.monotonic() + timeout
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        # An idle thread may still be about to end.
        if left := [name for name, call in list(self._latest.items()) if call.result is None]:
            logger.warning("left running, because their handlers do not return: %s", ", ".join(left))
        return len(left)

    def _work(self) -> None:
        handle: BatchHandler | None = None
        calls, wakeups, mailbox, clock = self._calls, self._wakeups, self._mailbox, time.monotonic
        following: Call | None = None
        latest, name = self._latest, threading.current_thread().name
        while following is not None or wakeups.get():
            call = following or _first(calls)
            if call is None:
                continue  # it was recalled
            following = None
            if call.is_wanted:
                latest[name] = call
                call.began = begin = clock()
                try:
                    if handle is None:
                        handle = self._make()
                    result = copy_context().run(call.run, handle)
                    call.set_result(result, clock() - begin)
                    following = call.follow()
                except BaseException as error:
                    call.set_result(error, clock() - begin)
            mailbox.put(call)
        if handle is not None and (close := getattr(handle, "close", None)):
            close()


class AsyncioExecutor:
    """Runs up to ``workers`` calls at a time on the event loop that all such executors of a process share.

    A call that takes longer than ``limit`` seconds is cancelled, and fails with HandlerTimeout if that ends it.
    """

    def __init__(
        self, handle: AsyncBatchHandler, workers: int, room: int, mailbox: Mailbox, limit: float | None = None
    ) -> None:
        self.workers = workers
        self.room = room
        self.takes_columns = False
        self._limit = limit
        self._handle = handle
        self._mailbox = mailbox
        self._calls: deque[Batch] = deque()
        self._idle: list[asyncio.Future[None]] = []
        self._ending = False
        self._loop = event_loop.event_loop()
        self._context = copy_context()
        """The initial context variables of each record's handler."""
        self._tasks: list[asyncio.Task[None]] = []

    def submit(self, calls: Sequence[Call]) -> None:
        self._calls.extend(cast("Sequence[Batch]", calls))
        self._loop.call_soon_threadsafe(self._wake)

    def recall(self) -> Call | None:
        return _last(self._calls)

    def close(self, timeout: float) -> int:
        try:
            return asyncio.run_coroutine_threadsafe(self._finish(timeout), self._loop).result(
                timeout + CANCEL_TIMEOUT_S + 1
            )
        except TimeoutError:
            logger.warning("left running, because a handler blocks the event loop: %d handlers", len(self._tasks))
            event_loop.abandon()
            return len(self._tasks)

    def _wake(self) -> None:
        """Wake idle workers, and start one more if all workers are busy."""
        waiting = len(self._calls)
        while waiting and self._idle:
            future = self._idle.pop()
            if not future.done():
                future.set_result(None)
                waiting -= 1
        for _ in range(min(waiting, self.workers - len(self._tasks))):
            self._tasks.append(self._begin())

    def _begin(self, call: Batch | None = None) -> asyncio.Task[None]:
        context = self._context.copy()
        return self._loop.create_task(self._work(context, call), context=context)

    async def _finish(self, timeout: float) -> int:
        self._ending = True
        for future in self._idle:
            future.cancel()
        pending = await _done(self._tasks, timeout)
        for task in pending:
            task.cancel()
        if pending:
            logger.warning("cancelled, because they do not return: %d handlers", len(pending))
        return len(await _done(pending, CANCEL_TIMEOUT_S))

    async def _wait(self, task: asyncio.Task[None]) -> None:
        """Wait for calls, or for the end of the executor, which cancels the wait."""
        future = self._loop.create_future()
        self._idle.append(future)
        try:
            await future
        except asyncio.CancelledError:
            if self._ending:
                raise
            await _absorb(task)

    async def _work(self, context: Context, following: Batch | None) -> None:
        calls, mailbox, clock, clean = self._calls, self._mailbox, time.monotonic, self._context
        handle = self._handle if self._limit is None else partial(_limited, self._handle, self._limit)
        task = cast("asyncio.Task[None]", asyncio.current_task())
        while True:
            call = following or _first(calls)
            if call is None:
                if self._ending:
                    return
                await self._wait(task)
                continue
            following = None
            if call.is_wanted:
                call.began = begin = clock()
                try:
                    result = await handle(call.records)
                    call.set_result(result, clock() - begin)
                    following = call.follow()
                except BaseException as error:
                    if self._ending and isinstance(error, asyncio.CancelledError):
                        raise
                    call.set_result(_handler_error(error), clock() - begin)
                if task.cancelling() and not self._ending:
                    await _absorb(task)
            mailbox.put(call)
            try:
                is_clean = context == clean
            except Exception:  # values that cannot be compared count as different
                is_clean = False
            if not is_clean and not self._ending:
                # No record sees the context variables of another, and they cannot be unset.
                self._tasks[self._tasks.index(task)] = self._begin(following)
                return


# A queue of calls loses its first to the workers and its last to the control loop, in different threads.


def _first(calls: deque[T]) -> T | None:
    try:
        return calls.popleft()
    except IndexError:
        return None


def _last(calls: deque[T]) -> T | None:
    try:
        return calls.pop()
    except IndexError:
        return None


def _handler_error(error: BaseException) -> BaseException:
    """Return the error of a call; a cancellation by the handler itself is an error like others."""
    if isinstance(error, asyncio.CancelledError):
        return HandlerCancelled(f"the handler was cancelled, and not by the consumer: {error}")
    return error


async def _limited(handle: AsyncBatchHandler, limit: float, records: Sequence[ConsumedRecord]) -> BatchResult:
    """Call the handler, and cancel the call after ``limit`` seconds. Raises HandlerTimeout."""
    try:
        async with asyncio.timeout(limit) as scope:
            return await handle(records)
    except TimeoutError as error:
        if not scope.expired():
            raise
        limit_ms = limit * 1_000
        text = f"the handler took longer than {limit_ms:g} ms, its handler_timeout_ms, and was cancelled"
        raise HandlerTimeout(text, limit_ms=limit_ms) from error


async def _absorb(task: asyncio.Task[Any]) -> None:
    """Discard a handler's cancellation of its own task, also after its return: others' handlers run in it, too."""
    with suppress(asyncio.CancelledError):
        await asyncio.sleep(0)  # a pending cancellation is delivered here
    while task.cancelling():
        task.uncancel()


async def _done(tasks: Collection[asyncio.Task[None]], timeout: float) -> set[asyncio.Task[None]]:
    """Wait for tasks; return those that are not done after ``timeout`` seconds."""
    return (await asyncio.wait(tasks, timeout=timeout))[1] if tasks else set()
