"""What a user writes, as what an engine runs."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Protocol, runtime_checkable

from wasmline.consumer.engines import AsyncBatchHandler, AsyncioEngine, BatchHandler, Engine, Mailbox, ThreadEngine
from wasmline.consumer.options import ConsumerOptions
from wasmline.consumer.records import ConsumedRecord, Outcome, Output
from wasmline.errors import RecordsFailed, TerminalFailure

Returned = Iterable[Output] | Output | None
"""What a handler may return: nothing, a record to write, or several in order."""

Handler = Callable[[Any], Returned] | Callable[[Any], Awaitable[Returned]]
"""Takes a ConsumedRecord; with a ``batch_size``, a sequence of them. A sync handler runs in threads, an async one on an
event loop. An exception fails the record; of several, RecordsFailed says which."""


AHEAD = 32
"""Records that wait in an engine at least, so that its workers need not wait for the owner after each."""

NOTHING = Outcome()


@runtime_checkable
class PerThread(Protocol):
    """A handler of which each worker thread has its own, because it is not made for two: a Wasm instance, a session."""

    def make(self) -> BatchHandler:
        """Return the handler of the calling thread. Its ``close``, if it has one, is called when the thread ends."""


def engine(handler: Handler | PerThread, options: ConsumerOptions, mailbox: Mailbox) -> Engine:
    """Return an engine that runs ``handler`` as ``options`` say."""
    workers = options.max_concurrency
    single = options.batch_size is None
    room = max(2 * workers, workers + AHEAD) if single else 2 * workers
    if isinstance(handler, PerThread):
        return ThreadEngine(handler.make, workers, room, mailbox)
    if inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(type(handler).__call__):
        return AsyncioEngine(_asynchronous(handler, single), workers, room, mailbox)
    handle = _synchronous(handler, single)
    return ThreadEngine(lambda: handle, workers, room, mailbox)


def _synchronous(handler: Callable[[Any], Any], single: bool) -> BatchHandler:
    def one(records: Sequence[ConsumedRecord]) -> Outcome:
        return _outcome(handler(records[0]))

    def several(records: Sequence[ConsumedRecord]) -> Outcome:
        try:
            return _outcome(handler(records))
        except RecordsFailed as error:
            return Outcome(tuple(error.outputs), error.failures)

    return one if single else several


def _asynchronous(handler: Callable[[Any], Any], single: bool) -> AsyncBatchHandler:
    async def one(records: Sequence[ConsumedRecord]) -> Outcome:
        return _outcome(await handler(records[0]))

    async def several(records: Sequence[ConsumedRecord]) -> Outcome:
        try:
            return _outcome(await handler(records))
        except RecordsFailed as error:
            return Outcome(tuple(error.outputs), error.failures)

    return one if single else several


def _outcome(returned: Returned) -> Outcome:
    """Return the outcome of a call, having run what a generator still had to do."""
    if returned is None:
        return NOTHING
    outputs = (returned,) if isinstance(returned, Output) or not isinstance(returned, Iterable) else tuple(returned)
    for output in outputs:
        if not isinstance(output, Output):
            text = f"the handler returned {type(output).__name__}, not Output: return None, an Output or several"
            raise TerminalFailure(text)
    return Outcome(outputs)
