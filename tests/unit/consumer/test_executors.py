import asyncio
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar, copy_context
from queue import SimpleQueue

import pytest

from wasmline.consumer.options import ConsumerOptions
from wasmline.consumer.records import BatchResult, ConsumedRecord, Output
from wasmline.consumer.runtime.executors import AsyncioExecutor, Executor, Mailbox, ThreadExecutor
from wasmline.consumer.state.calls import Batch
from wasmline.consumer.state.work_manager import WorkManager
from wasmline.errors import HandlerCancelled
from wasmline.topic_partitions import TopicPartition

ORDERS = TopicPartition("orders", 0)
LONG = 30.0

Handle = Callable[[Sequence[ConsumedRecord]], BatchResult]


@pytest.fixture
def work() -> WorkManager:
    it = WorkManager(ConsumerOptions(topics=("orders",), group_id="billing", ordering="unordered"))  # type: ignore[arg-type]
    it.assign({ORDERS: None})
    it.add(ConsumedRecord("orders", 0, offset, None, b"") for offset in range(50))
    return it


def taken(work: WorkManager, count: int) -> list[Batch]:
    batches = [work.take(0.0) for _ in range(count)]
    assert all(batches)
    return [batch for batch in batches if batch]


def got(mailbox: Mailbox, count: int) -> list[Batch]:
    found = [mailbox.get(timeout=LONG) for _ in range(count)]
    return [batch for batch in found if isinstance(batch, Batch)]


def noting(offsets: list[int]) -> Handle:
    """Return a handler that notes the offset of each record."""

    def handle(records: Sequence[ConsumedRecord]) -> BatchResult:
        offsets.append(records[0].offset)
        return BatchResult()

    return handle


@pytest.fixture
def mailbox() -> Mailbox:
    return SimpleQueue()


@pytest.fixture(params=["threads", "asyncio"])
def start(request: pytest.FixtureRequest, mailbox: Mailbox) -> Iterator[Callable[[Handle, int], Executor]]:
    """Starts an engine of either kind around a function, which on the event loop runs in one piece."""
    engines: list[Executor] = []

    def make(handle: Handle, workers: int) -> Executor:
        async def handle_async(records: Sequence[ConsumedRecord]) -> BatchResult:
            return handle(records)

        if request.param == "threads":
            engines.append(ThreadExecutor(lambda: handle, workers, 2 * workers, mailbox))
        else:
            engines.append(AsyncioExecutor(handle_async, workers, 2 * workers, mailbox))
        return engines[-1]

    yield make
    for engine in engines:
        engine.close(LONG)


def test_every_batch_comes_back_once(
    start: Callable[[Handle, int], Executor], work: WorkManager, mailbox: Mailbox
) -> None:
    seen: list[int] = []
    engine = start(noting(seen), 4)
    batches = taken(work, 50)
    for first in range(0, 50, 10):
        engine.submit(batches[first : first + 10])
    assert set(got(mailbox, 50)) == set(batches)
    assert sorted(seen) == list(range(50))


@pytest.mark.parametrize("error", [OSError("refused"), SystemExit(3), KeyboardInterrupt()])
def test_whatever_a_handler_raises_comes_back_and_the_worker_lives_on(
    start: Callable[[Handle, int], Executor], work: WorkManager, mailbox: Mailbox, error: BaseException
) -> None:
    errors = [error]

    def handle(records: Sequence[ConsumedRecord]) -> BatchResult:
        if errors:
            raise errors.pop()
        return BatchResult()

    engine = start(handle, 1)
    engine.submit(taken(work, 2))
    first, second = got(mailbox, 2)
    assert first.result is error
    assert second.result == BatchResult()


def test_a_batch_of_a_held_partition_is_not_begun(
    start: Callable[[Handle, int], Executor], work: WorkManager, mailbox: Mailbox
) -> None:
    calls: list[int] = []
    batches = taken(work, 2)
    work.hold([ORDERS])
    start(noting(calls), 2).submit(batches)
    assert [batch.result for batch in got(mailbox, 2)] == [None, None]
    assert not calls


def test_threads_run_as_many_batches_at_once_as_there_are_workers(work: WorkManager, mailbox: Mailbox) -> None:
    meeting = threading.Barrier(3, timeout=LONG)

    def handle(records: Sequence[ConsumedRecord]) -> BatchResult:
        meeting.wait()
        return BatchResult()

    engine = ThreadExecutor(lambda: handle, 3, 6, mailbox)
    engine.submit(taken(work, 6))
    assert [batch.result for batch in got(mailbox, 6)] == [BatchResult()] * 6
    engine.close(LONG)


class Session:
    """A handler that belongs to its thread."""

    def __init__(self, closed: list[int]) -> None:
        self.thread = threading.get_ident()
        self.closed = closed

    def __call__(self, records: Sequence[ConsumedRecord]) -> BatchResult:
        assert threading.get_ident() == self.thread
        return BatchResult()

    def close(self) -> None:
        assert threading.get_ident() == self.thread
        self.closed.append(self.thread)


def test_each_thread_makes_its_own_handler_and_closes_it(work: WorkManager, mailbox: Mailbox) -> None:
    closed: list[int] = []
    engine = ThreadExecutor(lambda: Session(closed), 3, 6, mailbox)
    engine.submit(taken(work, 20))
    assert {str(batch.result) for batch in got(mailbox, 20)} == {str(BatchResult())}
    engine.close(LONG)
    assert 1 <= len(set(closed)) == len(closed) <= 3


def test_a_thread_whose_handler_does_not_return_is_left_and_named(
    work: WorkManager, mailbox: Mailbox, caplog: pytest.LogCaptureFixture
) -> None:
    begun, release = threading.Event(), threading.Event()

    def handle(records: Sequence[ConsumedRecord]) -> BatchResult:
        begun.set()
        release.wait(LONG)
        return BatchResult()

    engine = ThreadExecutor(lambda: handle, 1, 2, mailbox)
    engine.submit(taken(work, 1))
    assert begun.wait(LONG)
    assert engine.close(0.0) == 1
    release.set()
    assert "wasmline-handler-0" in caplog.text
    got(mailbox, 1)


def test_a_thread_that_ends_late_counts_as_no_call_that_lasts(work: WorkManager, mailbox: Mailbox) -> None:
    release = threading.Event()

    class Closing(Session):
        def close(self) -> None:
            release.wait(LONG)

    engine = ThreadExecutor(lambda: Closing([]), 1, 2, mailbox)
    engine.submit(taken(work, 1))
    got(mailbox, 1)
    assert engine.close(0.0) == 0
    release.set()


def test_no_more_coroutines_run_at_once_than_there_are_workers(work: WorkManager, mailbox: Mailbox) -> None:
    running: list[int] = []
    most: list[int] = []

    async def handle(records: Sequence[ConsumedRecord]) -> BatchResult:
        running.append(records[0].offset)
        most.append(len(running))
        for _ in range(5):
            await asyncio.sleep(0)
        running.remove(records[0].offset)
        return BatchResult()

    engine = AsyncioExecutor(handle, 4, 8, mailbox)
    for batch in taken(work, 20):
        engine.submit([batch])
    got(mailbox, 20)
    engine.close(LONG)
    assert max(most) <= 4


def test_a_handler_that_was_cancelled_by_somebody_else_failed(work: WorkManager, mailbox: Mailbox) -> None:
    async def handle(records: Sequence[ConsumedRecord]) -> BatchResult:
        raise asyncio.CancelledError("by a time-out group")

    engine = AsyncioExecutor(handle, 1, 2, mailbox)
    engine.submit(taken(work, 2))
    first, second = got(mailbox, 2)
    assert isinstance(first.result, HandlerCancelled)
    assert isinstance(second.result, HandlerCancelled)
    engine.close(LONG)


def test_a_coroutine_that_does_not_return_is_cancelled_at_the_end(
    work: WorkManager, mailbox: Mailbox, caplog: pytest.LogCaptureFixture
) -> None:
    begun, cancelled = threading.Event(), threading.Event()

    async def handle(records: Sequence[ConsumedRecord]) -> BatchResult:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return BatchResult()

    engine = AsyncioExecutor(handle, 1, 2, mailbox)
    engine.submit(taken(work, 1))
    assert begun.wait(LONG)
    engine.close(0.0)
    assert cancelled.wait(LONG)
    assert "cancelled" in caplog.text


def test_a_coroutine_that_returns_while_its_engine_ends_is_waited_for_and_no_longer(
    work: WorkManager, mailbox: Mailbox, caplog: pytest.LogCaptureFixture
) -> None:
    begun = threading.Event()

    async def handle(records: Sequence[ConsumedRecord]) -> BatchResult:
        begun.set()
        while len(asyncio.all_tasks()) < 2:  # until the engine's own, which ends it
            await asyncio.sleep(0)
        for _ in range(3):  # and has begun to wait
            await asyncio.sleep(0)
        return BatchResult()

    engine = AsyncioExecutor(handle, 1, 2, mailbox)
    engine.submit(taken(work, 1))
    assert begun.wait(LONG)
    engine.close(5.0)
    assert [batch.result for batch in got(mailbox, 1)] == [BatchResult()]
    assert not [entry for entry in caplog.records if entry.levelno >= logging.WARNING]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_handler_that_has_its_own_task_cancelled_costs_no_worker_and_no_other_record(
    workers: int, work: WorkManager, mailbox: Mailbox
) -> None:
    """A cancel scope that fires as its call returns, while the next record of the worker waits."""
    handled: list[int] = []

    async def handle(records: Sequence[ConsumedRecord]) -> BatchResult:
        await asyncio.sleep(0)  # it would meet a cancellation of the call before
        handled.append(records[0].offset)
        if records[0].offset % 2 == 0:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
        return BatchResult()

    engine = AsyncioExecutor(handle, workers, 4, mailbox)
    for _ in range(6):
        engine.submit(taken(work, 2))
        assert [type(batch.result) for batch in got(mailbox, 2)] == [BatchResult, BatchResult]
    engine.submit(taken(work, 8))
    assert {type(batch.result) for batch in got(mailbox, 8)} == {BatchResult}
    assert engine.close(LONG) == 0
    assert sorted(handled) == list(range(20))


def test_a_handler_that_has_its_own_task_cancelled_later_costs_no_worker(work: WorkManager, mailbox: Mailbox) -> None:
    """A timer of a handler that is not stopped as its call returns."""
    cancelled = threading.Event()

    def cancel(task: asyncio.Task[None] | None) -> None:
        assert task is not None
        task.cancel()
        cancelled.set()

    async def handle(_: Sequence[ConsumedRecord]) -> BatchResult:
        asyncio.get_running_loop().call_later(0.05, cancel, asyncio.current_task())
        return BatchResult()

    engine = AsyncioExecutor(handle, 1, 4, mailbox)
    for _ in range(3):
        engine.submit(taken(work, 1))
        assert [type(batch.result) for batch in got(mailbox, 1)] == [BatchResult]
        assert cancelled.wait(LONG)
        cancelled.clear()
    assert engine.close(LONG) == 0


VARIABLE: ContextVar[int] = ContextVar("VARIABLE", default=-1)


def test_no_record_sees_the_context_variables_of_another(
    start: Callable[[Handle, int], Executor], work: WorkManager, mailbox: Mailbox
) -> None:
    seen: list[int] = []

    def handle(records: Sequence[ConsumedRecord]) -> BatchResult:
        seen.append(VARIABLE.get())
        VARIABLE.set(records[0].offset)
        return BatchResult()

    start(handle, 1).submit(taken(work, 5))
    got(mailbox, 5)
    assert seen == [-1] * 5


class Incomparable:
    """A value such as an array, which has no truth value where it is compared."""

    def __eq__(self, other: object) -> bool:
        raise ValueError("ambiguous")

    __hash__ = object.__hash__


def test_values_of_context_variables_need_not_be_comparable(work: WorkManager, mailbox: Mailbox) -> None:
    variable: ContextVar[Incomparable] = ContextVar("variable")
    first, seen = Incomparable(), []

    async def handle(records: Sequence[ConsumedRecord]) -> BatchResult:
        seen.append(variable.get() is first)
        variable.set(Incomparable())
        return BatchResult()

    def run() -> None:
        variable.set(first)
        engine = AsyncioExecutor(handle, 1, 8, mailbox)
        engine.submit(taken(work, 3))
        got(mailbox, 3)
        assert engine.close(LONG) == 0

    copy_context().run(run)
    assert seen == [True] * 3


def test_a_coroutine_keeps_its_context_variables_while_it_waits(work: WorkManager, mailbox: Mailbox) -> None:
    kept: list[bool] = []

    async def handle(records: Sequence[ConsumedRecord]) -> BatchResult:
        VARIABLE.set(records[0].offset)
        await asyncio.sleep(0.001)
        kept.append(VARIABLE.get() == records[0].offset)
        return BatchResult()

    engine = AsyncioExecutor(handle, 2, 8, mailbox)
    engine.submit(taken(work, 6))
    got(mailbox, 6)
    assert engine.close(LONG) == 0
    assert kept == [True] * 6


def recalled(it: Executor, most: int) -> list[Batch]:
    found = [it.recall() for _ in range(most)]
    return [batch for batch in found if isinstance(batch, Batch)]


def test_a_batch_runs_or_is_recalled_and_not_both(
    start: Callable[[Handle, int], Executor], work: WorkManager, mailbox: Mailbox
) -> None:
    seen: list[int] = []
    it = start(noting(seen), 4)
    taken_back = 0
    for _ in range(100):
        batches = taken(work, 50)
        it.submit(batches)
        back = recalled(it, 20)
        taken_back += len(back)
        assert back == batches[: -len(back) - 1 : -1], "those that were submitted last, the last one first"
        for batch in back:
            work.put_back(batch)
        for batch in got(mailbox, 50 - len(back)):
            work.put_back(batch)  # to be taken again: the state of a record is not what this is about
        assert work.calls_in_flight == 0
    assert len(seen) + taken_back == 100 * 50
    assert it.recall() is None


def test_what_was_recalled_holds_nobody_up(
    start: Callable[[Handle, int], Executor], work: WorkManager, mailbox: Mailbox
) -> None:
    it = start(lambda records: BatchResult(), 2)
    first, second, third = taken(work, 3)
    it.submit([first, second])
    back = recalled(it, 2)
    it.submit([third])
    expected = {batch.first_offset for batch in (first, second, third)} - {batch.first_offset for batch in back}
    assert {batch.first_offset for batch in got(mailbox, len(expected))} == expected


class Immeasurable(Output):
    """Has no size."""

    @property
    def size(self) -> int:
        raise RuntimeError("no size")


def test_a_call_comes_back_failed_if_it_cannot_be_told_whether_another_may_follow(
    start: Callable[[Handle, int], Executor], mailbox: Mailbox
) -> None:
    it = WorkManager(ConsumerOptions(topics=("orders",), group_id="billing"))
    it.assign({ORDERS: None})
    it.add(ConsumedRecord("orders", 0, offset, b"a", b"") for offset in range(2))
    first = it.take(0.0, ahead=1)
    assert first is not None
    start(lambda records: BatchResult([Immeasurable("out", b"")]), 1).submit([first])
    assert got(mailbox, 1) == [first]
    assert isinstance(first.result, RuntimeError)
    assert first.followed_by is None
