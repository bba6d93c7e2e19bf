import functools
from collections.abc import Iterator, Sequence
from queue import SimpleQueue
from typing import Any

import pytest

from wasmline.consumer.handler_adapters import executor_for
from wasmline.consumer.options import ConsumerOptions
from wasmline.consumer.records import BatchResult, ConsumedRecord, Output
from wasmline.consumer.runtime.executors import Executor, Mailbox
from wasmline.consumer.state.work_manager import WorkManager
from wasmline.errors import HandlerBroken, InvalidConsumerOption, RecordsFailed
from wasmline.topic_partitions import TopicPartition

FAULT = OSError("refused")


def result(handler: Any, batch_size: int | None = None, records: int = 1) -> BatchResult | BaseException | None:
    """What becomes of one batch of records without keys in the engine that runs the handler."""
    options = ConsumerOptions(topics=("orders",), group_id="billing", batch_size=batch_size)
    work = WorkManager(options)
    work.assign({TopicPartition("orders", 0): None})
    work.add(ConsumedRecord("orders", 0, offset, None, b"%d" % offset) for offset in range(records))
    batch = work.take(0.0)
    assert batch is not None
    mailbox: Mailbox = SimpleQueue()
    workers: Executor = executor_for(handler, options, mailbox)
    try:
        workers.submit([batch])
        assert mailbox.get(timeout=30) is batch
        return batch.result
    finally:
        workers.close(30)


def outputs(outcome: BatchResult | BaseException | None) -> list[bytes | None]:
    assert isinstance(outcome, BatchResult), outcome
    assert not outcome.failures
    return [output.value for output in outcome.outputs]


def copy(record: ConsumedRecord) -> Output:
    return Output("out", record.value)


async def copy_async(record: ConsumedRecord) -> Output:
    return copy(record)


def twice(record: ConsumedRecord) -> Iterator[Output]:
    yield copy(record)
    yield copy(record)


class Callable:
    async def __call__(self, record: ConsumedRecord) -> list[Output]:
        return [copy(record)]

    async def method(self, record: ConsumedRecord) -> Output:
        return copy(record)


def prefixed(prefix: bytes, record: ConsumedRecord) -> Output:
    return Output("out", prefix + (record.value or b""))


async def prefixed_async(prefix: bytes, record: ConsumedRecord) -> Output:
    return prefixed(prefix, record)


@pytest.mark.parametrize(
    ("handler", "values"),
    [
        (lambda record: None, []),
        (copy, [b"0"]),
        (copy_async, [b"0"]),
        (twice, [b"0", b"0"]),
        (lambda record: (), []),
        (Callable(), [b"0"]),
        (Callable().method, [b"0"]),
        (functools.partial(prefixed, b"no "), [b"no 0"]),
        (functools.partial(prefixed_async, b"no "), [b"no 0"]),
    ],
    ids=["nothing", "one", "async", "generator", "empty", "object", "method", "partial", "async partial"],
)
def test_what_a_handler_returns_is_written(handler: Any, values: list[bytes]) -> None:
    assert outputs(result(handler)) == values


@pytest.mark.parametrize("returned", [True, {"value": 1}, "text", [b"value"], [("out", b"value")]])
def test_a_handler_that_returns_something_else_is_broken(returned: object) -> None:
    """It is no record's fault, so that none goes to the dead letters."""
    outcome = result(lambda record: returned)
    assert isinstance(outcome, HandlerBroken)
    assert "not Output" in str(outcome)


def test_a_handler_that_forgets_to_await_is_broken() -> None:
    outcome = result(lambda record: copy_async(record))
    assert isinstance(outcome, HandlerBroken)
    assert "coroutine" in str(outcome)


@pytest.mark.parametrize("batch_size", [1, 9])
def test_with_a_batch_size_a_handler_gets_a_sequence(batch_size: int) -> None:
    def handler(records: Sequence[ConsumedRecord]) -> list[Output]:
        return [copy(record) for record in records]

    async def handler_async(records: Sequence[ConsumedRecord]) -> list[Output]:
        return handler(records)

    expected = [b"0", b"1", b"2"][:batch_size]
    assert outputs(result(handler, batch_size, records=3)) == expected
    assert outputs(result(handler_async, batch_size, records=3)) == expected


def test_a_handler_of_several_says_which_failed_and_what_the_others_write() -> None:
    def handler(records: Sequence[ConsumedRecord]) -> None:
        raise RecordsFailed("one", failures={1: FAULT}, outputs=[copy(records[0])])

    async def handler_async(records: Sequence[ConsumedRecord]) -> None:
        handler(records)

    for each in (handler, handler_async):
        outcome = result(each, batch_size=9, records=2)
        assert isinstance(outcome, BatchResult)
        assert (dict(outcome.failures), [output.value for output in outcome.outputs]) == ({1: FAULT}, [b"0"])


def test_a_generator_that_fails_half_way_writes_nothing() -> None:
    def handler(record: ConsumedRecord) -> Iterator[Output]:
        yield copy(record)
        raise FAULT

    assert result(handler) is FAULT


def test_outputs_of_a_single_record_are_its_own_and_those_of_several_are_nobodys() -> None:
    outcome = BatchResult((Output("out", b""),))
    assert (outcome.row(0, 1), outcome.row(0, 2)) == (0, None)
    assert BatchResult((Output("out", b""),), rows=(1,)).row(0, 2) == 1


class Made:
    """Makes a handler that does what it is told."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle

    def make(self) -> Any:
        if isinstance(self._handle, Exception):
            raise self._handle
        return self._handle


def partly(records: Sequence[ConsumedRecord]) -> None:
    raise RecordsFailed("one", failures={1: FAULT}, outputs=[copy(records[0])])


def test_what_the_handler_of_a_thread_returns_is_what_any_may_return() -> None:
    assert outputs(result(Made(lambda records: None))) == []
    assert outputs(result(Made(lambda records: [copy(each) for each in records]), 9, 2)) == [b"0", b"1"]
    assert outputs(result(Made(lambda records: BatchResult((copy(records[0]),))))) == [b"0"]
    outcome = result(Made(partly), 9, 2)
    assert isinstance(outcome, BatchResult)
    assert dict(outcome.failures) == {1: FAULT}
    assert isinstance(result(Made(lambda records: "text")), HandlerBroken)


class Unprintable(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


def test_whatever_its_error_says_a_handler_that_cannot_be_made_is_no_records_fault() -> None:
    outcome = result(Made(Unprintable()))
    assert isinstance(outcome, HandlerBroken)
    assert "Unprintable" in str(outcome)


def test_a_handler_that_cannot_be_made_is_no_records_fault() -> None:
    outcome = result(Made(OSError("the database is down")))
    assert isinstance(outcome, HandlerBroken)
    assert "OSError: the database is down" in str(outcome)
    assert result(Made(HandlerBroken("said so"))).args == ("said so",)  # type: ignore[union-attr]


def test_a_class_is_no_handler() -> None:
    with pytest.raises(InvalidConsumerOption, match="class Made: pass an instance"):
        result(Made)


@pytest.mark.parametrize(
    "failures",
    [{3: FAULT}, {-1: FAULT}, {0: FAULT, 3: FAULT}, {"0": FAULT}, {0: "why"}, {0: SystemExit()}, {}, [0], None],
    ids=repr,
)
@pytest.mark.parametrize("kind", ["sync", "async", "made"])
def test_failures_that_name_no_record_break_the_handler_rather_than_lose_one(failures: Any, kind: str) -> None:
    def handler(records: Sequence[ConsumedRecord]) -> None:
        raise RecordsFailed("some", failures=failures)

    async def handler_async(records: Sequence[ConsumedRecord]) -> None:
        handler(records)

    handlers = {"sync": handler, "async": handler_async, "made": Made(handler)}
    assert isinstance(result(handlers[kind], 9, 3), HandlerBroken)


def test_a_handler_of_side_effects_names_its_failures_alone() -> None:
    def handler(records: Sequence[ConsumedRecord]) -> None:
        raise RecordsFailed("one", failures={0: FAULT})

    outcome = result(handler, 9, 3)
    assert isinstance(outcome, BatchResult)
    assert (dict(outcome.failures), tuple(outcome.outputs)) == ({0: FAULT}, ())


@pytest.mark.parametrize("rows", [(), (3,), (-1,), (0, 1), ("a",), (0.0,), 5, "0"], ids=repr)
def test_rows_that_name_no_record_break_the_handler(rows: tuple[int, ...]) -> None:
    outcome = result(Made(lambda records: BatchResult((copy(records[0]),), rows=rows)), 9, 3)
    assert isinstance(outcome, HandlerBroken)


@pytest.mark.parametrize("written", [None, 5, "text", [None], [b"value"]], ids=repr)
@pytest.mark.parametrize("kind", ["a result", "failures"])
def test_outputs_that_are_none_break_the_handler(written: Any, kind: str) -> None:
    def handler(records: Sequence[ConsumedRecord]) -> BatchResult:
        if kind == "a result":
            return BatchResult(written)
        raise RecordsFailed("one", failures={0: FAULT}, outputs=written)

    assert isinstance(result(Made(handler), 9, 3), HandlerBroken)


@pytest.mark.parametrize("failures", [None, [0], {"0": FAULT}, {3: FAULT}, {0: "why"}], ids=repr)
def test_a_result_with_failures_that_are_none_breaks_the_handler(failures: Any) -> None:
    assert isinstance(result(Made(lambda records: BatchResult((), failures)), 9, 3), HandlerBroken)


def test_outputs_of_a_result_may_come_from_a_generator() -> None:
    def handler(records: Sequence[ConsumedRecord]) -> BatchResult:
        return BatchResult((copy(each) for each in records), rows=(row for row in range(3)))  # type: ignore[arg-type]

    outcome = result(Made(handler), 9, 3)
    assert outputs(outcome) == [b"0", b"1", b"2"]
    assert isinstance(outcome, BatchResult)
    assert [outcome.row(number, 3) for number in range(3)] == [0, 1, 2]
