"""What the log says of handlers that fail, and what it keeps of them."""

import gc
import weakref
from collections.abc import Sequence

import pytest

from wasmline.consumer import ConsumedRecord, ConsumerOptions, Output, ParallelConsumer, RetryPolicy
from wasmline.consumer.backends.memory import MemoryBackend, MemoryCluster
from wasmline.consumer.runtime import failure_log
from wasmline.consumer.runtime.failure_log import FailureLog
from wasmline.errors import RecordsFailed

SECRET = b"the value of a record"


def failed(offset: int) -> ConsumedRecord:
    return ConsumedRecord("orders", 2, offset, b"key", SECRET)


def raised(error: Exception) -> Exception:
    try:
        raise error
    except Exception as caught:
        return caught


def nested() -> Exception:
    try:
        try:
            raise KeyError("the cause")
        except KeyError as cause:
            raise ValueError("what came of it") from cause
    except ValueError as error:
        return error


def test_the_first_of_a_kind_has_its_traceback_and_its_causes(caplog: pytest.LogCaptureFixture) -> None:
    log = FailureLog()
    for offset in range(3):
        log.retried(failed(offset), nested(), 10.0)
    first, second, third = caplog.messages
    assert first.startswith(
        "orders-2@0 failed at attempt 1, retrying: ValueError('what came of it')\nTraceback (most recent"
    )
    assert ", in nested\n" in first
    assert 'raise ValueError("what came of it") from cause' in first
    assert "caused by KeyError(\"'the cause'\")" in first
    assert second == "orders-2@1 failed at attempt 1, retrying: ValueError('what came of it')"
    assert third.startswith("orders-2@2")
    assert SECRET.decode() not in caplog.text


def test_a_traceback_comes_again_after_a_while_and_for_another_place(caplog: pytest.LogCaptureFixture) -> None:
    log = FailureLog()
    for now in (10.0, 69.0, 70.5):
        log.retried(failed(0), nested(), now)
    log.retried(failed(0), raised(ValueError("elsewhere")), 70.5)
    assert ["Traceback" in message for message in caplog.messages] == [True, False, True, True]


def test_a_flood_of_failures_is_counted_and_not_written_out(caplog: pytest.LogCaptureFixture) -> None:
    log = FailureLog()
    for offset in range(10_000):
        log.retried(failed(offset), OSError("down"), 10.0)
    assert len(caplog.messages) == failure_log.LINES_PER_S
    log.retried(failed(0), OSError("down"), 11.5)
    assert caplog.messages[-2:] == [
        f"{10_000 - failure_log.LINES_PER_S} more attempts failed, retrying",
        "orders-2@0 failed at attempt 1, retrying: OSError('down')",
    ]


class Unprintable(Exception):
    """Has no text, and is its own cause."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


class Unlinked(Exception):
    """Has attributes of its own by the names of Python's."""

    __context__ = __suppress_context__ = __traceback__ = "text"  # type: ignore[assignment]

    @property
    def __cause__(self) -> Exception:  # type: ignore[override]
        raise RuntimeError("no cause")


def test_whatever_an_exception_is_it_can_be_logged_on_printable_lines(caplog: pytest.LogCaptureFixture) -> None:
    log = FailureLog()
    own = Unprintable()
    own.__cause__ = own
    for error in (own, Unlinked(), ValueError("x" * 2_000_000), ValueError("\ud800\x1b[31m\nforged line")):
        log.retried(failed(0), raised(error), 10.0)
        log.dead_lettered(failed(0), raised(error), 100.0)
    assert max(map(len, caplog.messages)) < 5_000
    assert "\x1b" not in caplog.text
    assert "\nforged" not in caplog.text
    caplog.text.encode()


def run(handler: object, batch_size: int | None = None) -> ParallelConsumer:
    """Run a handler on three records, of which the last one stops the consumer."""
    cluster = MemoryCluster()
    cluster.create("orders")
    for number in range(3):
        cluster.write(Output("orders", SECRET, b"%d" % number))
    options = ConsumerOptions(
        topics=("orders",),
        group_id="g",
        batch_size=batch_size,
        max_concurrency=1,
        retry=RetryPolicy(delay_ms=3_600_000, max_delay_ms=3_600_000),
    )
    consumer = ParallelConsumer(options, MemoryBackend(cluster, options))

    def handle(given: object) -> object:
        if batch_size or given.offset == 2:  # type: ignore[attr-defined]
            consumer.stop(drain=False)
        return handler(given)  # type: ignore[operator]

    consumer.run(handle)  # type: ignore[arg-type]
    return consumer


def test_a_handlers_own_frames_are_logged_and_ours_are_not(caplog: pytest.LogCaptureFixture) -> None:
    def breaks(record: ConsumedRecord) -> None:
        raise OSError("down")

    run(breaks)
    assert caplog.text.count("Traceback") == 1
    assert "in breaks\n" in caplog.text
    assert "executors.py" not in caplog.text
    assert SECRET.decode() not in caplog.text


def test_failures_that_a_handler_of_several_names_are_logged_too(caplog: pytest.LogCaptureFixture) -> None:
    def breaks(records: Sequence[ConsumedRecord]) -> None:
        raise RecordsFailed("one", failures={0: raised(OSError("down"))})

    run(breaks, batch_size=3)
    assert "orders-0@0 failed at attempt 1, retrying: OSError('down')\nTraceback" in caplog.text


class Large:
    """A variable of a handler."""


def test_what_a_failed_handler_had_in_its_variables_is_let_go_of() -> None:
    kept: list[weakref.ref[Large]] = []
    waiting: list[int] = []

    def breaks(record: ConsumedRecord) -> None:
        gc.collect()
        waiting.append(sum(each() is not None for each in kept))
        large = Large()
        kept.append(weakref.ref(large))
        raise OSError("down")

    consumer = run(breaks)
    gc.collect()
    assert consumer.health().partitions[0].failing_keys == 3
    assert [each() for each in kept] == [None] * 3


def test_the_frames_of_an_error_with_attributes_of_its_own_are_let_go_of() -> None:
    error = raised(Unlinked())
    trace = vars(BaseException)["__traceback__"]
    assert trace.__get__(error) is not None
    failure_log.forget_frames(error)
    assert trace.__get__(error) is None


class UnlistedGroup(ExceptionGroup[Exception]):
    """Has other members than its own."""

    @property
    def exceptions(self) -> tuple[Exception, ...]:
        raise RuntimeError("no members")

    def __bool__(self) -> bool:
        raise RuntimeError("neither true nor false")


def test_a_group_with_attributes_of_its_own_fails_its_record_and_no_other(caplog: pytest.LogCaptureFixture) -> None:
    def breaks(record: ConsumedRecord) -> None:
        raise UnlistedGroup("several", [nested()])

    consumer = run(breaks)
    assert consumer.health().partitions[0].failing_keys == 3
    assert caplog.text.count("UnlistedGroup('several (1 sub-exception)')") == 3


def test_nothing_is_kept_of_an_error_its_causes_or_the_members_of_a_group() -> None:
    group = raised(ExceptionGroup("several", [nested(), raised(ExceptionGroup("more", [nested()]))]))
    group.__context__ = raised(OSError("before"))
    failure_log.forget_frames(group)
    left: list[BaseException | None] = [group]
    while left:
        if (error := left.pop()) is not None:
            assert error.__traceback__ is None
            left += [error.__cause__, error.__context__, *getattr(error, "exceptions", ())]
