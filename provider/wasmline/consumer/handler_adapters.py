"""Adapts the kinds of handlers that users write to the executors that run them."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from wasmline.consumer.options import ConsumerOptions, RetryPolicy
from wasmline.consumer.records import BatchResult, ConsumedRecord, Output
from wasmline.consumer.runtime.executors import (
    AsyncBatchHandler,
    AsyncioExecutor,
    BatchHandler,
    Executor,
    Mailbox,
    ThreadExecutor,
)
from wasmline.dead_letters import reason_of
from wasmline.errors import HandlerBroken, InvalidConsumerOption, RecordsFailed

if TYPE_CHECKING:
    from wasmline.consumer.columns import ColumnResult, RecordColumns

Returned = Iterable[Output] | Output | None
"""What a handler may return: nothing, a record to write, or several in order."""

Handler = Callable[[Any], Returned] | Callable[[Any], Awaitable[Returned]]
"""Takes a ConsumedRecord; with a ``batch_size``, a sequence of them. A sync handler runs in threads, an async one on an
event loop. An exception fails the record; with several records, RecordsFailed names those that failed."""


MIN_QUEUED_RECORDS = 32
"""Minimum of records queued in an executor, so that its workers need not wait for the control loop after each."""

NOTHING = BatchResult()


@runtime_checkable
class HandlerFactory(Protocol):
    """Makes the handler of each worker thread, where one is not thread-safe: a Wasm instance, a session.

    With the attribute ``takes_columns``, its handlers have ``handle_columns``, too: from RecordColumns to a
    ColumnResult, whose failures no policy retries.
    """

    def make(self) -> Callable[[Sequence[ConsumedRecord]], Returned | BatchResult]:
        """Return the handler of the calling thread. It takes a list; its ``close`` is called as the thread ends.

        An exception here is not the fault of a record, and ends the consumer.
        """


def executor_for(handler: Handler | HandlerFactory, options: ConsumerOptions, mailbox: Mailbox) -> Executor:
    """Return an executor that runs ``handler`` with ``options``. Raises InvalidConsumerOption for a class."""
    if isinstance(handler, type):
        text = f"the handler is the class {handler.__name__}: pass an instance of it"
        raise InvalidConsumerOption(text, option="handler")
    workers = options.max_concurrency
    single = options.batch_size is None
    room = max(2 * workers, workers + MIN_QUEUED_RECORDS) if single else 2 * workers
    if isinstance(handler, HandlerFactory):
        # A policy of the user's own may retry a record that fails; columns have no order between a record and others.
        takes_columns = (
            not single and isinstance(options.retry, RetryPolicy) and getattr(handler, "takes_columns", False)
        )
        return ThreadExecutor(partial(_ThreadHandler, handler), workers, room, mailbox, takes_columns=takes_columns)
    if inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(type(handler).__call__):
        limit = None if options.handler_timeout_ms is None else options.handler_timeout_ms / 1_000
        return AsyncioExecutor(_asynchronous(handler, single), workers, room, mailbox, limit)
    handle = _synchronous(handler, single)
    return ThreadExecutor(lambda: handle, workers, room, mailbox)


class _ThreadHandler:
    """The handler of one thread, created and checked."""

    def __init__(self, handler: HandlerFactory) -> None:
        try:
            self._handle = handler.make()
        except HandlerBroken:
            raise
        except Exception as error:
            text = f"a thread's handler cannot be created: {type(error).__name__}: {reason_of(error)}"
            raise HandlerBroken(text) from error
        self._call = _synchronous(self._handle, single=False)

    def __call__(self, records: Sequence[ConsumedRecord]) -> BatchResult:
        return self._call(records)

    def handle_columns(self, columns: RecordColumns) -> ColumnResult:
        """Return the result of records as columns."""
        from wasmline.consumer.columns import require_valid

        return require_valid(self._handle.handle_columns(columns), len(columns))  # type: ignore[attr-defined]

    def close(self) -> None:
        if close := getattr(self._handle, "close", None):
            close()


def _synchronous(handler: Callable[[Any], Any], single: bool) -> BatchHandler:
    def one(records: Sequence[ConsumedRecord]) -> BatchResult:
        return _result(handler(records[0]), 1)

    def several(records: Sequence[ConsumedRecord]) -> BatchResult:
        try:
            return _result(handler(records), len(records))
        except RecordsFailed as error:
            return _partial_result(error, len(records))

    return one if single else several


def _asynchronous(handler: Callable[[Any], Any], single: bool) -> AsyncBatchHandler:
    async def one(records: Sequence[ConsumedRecord]) -> BatchResult:
        return _result(await handler(records[0]), 1)

    async def several(records: Sequence[ConsumedRecord]) -> BatchResult:
        try:
            return _result(await handler(records), len(records))
        except RecordsFailed as error:
            return _partial_result(error, len(records))

    return one if single else several


def _result(returned: Returned | BatchResult, records: int) -> BatchResult:
    """Return the result of a call, after running a returned generator to its end. Raises HandlerBroken."""
    if returned is None:
        return NOTHING
    if isinstance(returned, BatchResult):
        return _checked(returned.outputs, returned.failures, returned.rows, records)
    return _checked((returned,) if isinstance(returned, Output) else returned, {}, None, records)


def _partial_result(error: RecordsFailed, records: int) -> BatchResult:
    """Return the result of a call in which some records failed. Raises HandlerBroken."""
    if not error.failures:
        raise HandlerBroken(f"RecordsFailed names no failed record: {reason_of(error)}") from error
    return _checked(error.outputs, error.failures, None, records)


def _checked(outputs: object, failures: object, rows: object, records: int) -> BatchResult:
    """Return the result of this number of records. Raises HandlerBroken for another: it is not the fault of a record.

    A generator is run to its end.
    """
    written = tuple(outputs) if isinstance(outputs, Iterable) else (outputs,)
    for output in written:
        if not isinstance(output, Output):
            if inspect.iscoroutine(output):
                output.close()
            text = f"the handler returned {type(output).__name__}, not Output: return None, an Output or several"
            raise HandlerBroken(text)
    if not isinstance(failures, Mapping):
        raise HandlerBroken(f"the handler reports failures as {type(failures).__name__}, not as a mapping by place")
    for place, failure in failures.items():
        if not isinstance(place, int) or not 0 <= place < records or not isinstance(failure, Exception):
            text = f"the handler reports that record {place!r} of {records} failed with {type(failure).__name__}: "
            raise HandlerBroken(f"{text}places count from 0, and failures are exceptions")
    return BatchResult(written, failures, None if rows is None else _rows(rows, len(written), records))


def _rows(rows: Any, outputs: int, records: int) -> Sequence[int | None]:
    """Return the record of each output. Raises HandlerBroken."""
    try:
        found = [None if row is None else operator.index(row) for row in rows]
    except TypeError:
        found = [-1]
    if len(found) != outputs or not all(row is None or 0 <= row < records for row in found):
        raise HandlerBroken(f"rows must hold, for each output, the place of a record from 0 to {records - 1} or None")
    return found
