"""How many calls an executor is given at a time."""

from dataclasses import replace

import pytest

from wasmline.consumer.health import Counters
from wasmline.consumer.options import ConsumerOptions
from wasmline.consumer.records import BatchResult, ConsumedRecord, Output
from wasmline.consumer.runtime.dispatch_limit import MAX_FOLLOWERS, MAX_QUEUED_CALLS, DispatchLimit
from wasmline.consumer.state.calls import MAX_FOLLOWED_CALL_S, Call
from wasmline.consumer.state.work_manager import WorkManager
from wasmline.topic_partitions import TopicPartition

OPTIONS = ConsumerOptions(topics=("orders",), group_id="billing", buffer_records=10_000, buffer_bytes=1_000_000)


class Workers:
    def __init__(self, workers: int, *, takes_columns: bool = False) -> None:
        self.workers = workers
        self.room = 2 * workers
        self.takes_columns = takes_columns

    def submit(self, batches: object) -> None:
        raise AssertionError

    def recall(self) -> Call | None:
        raise AssertionError

    def close(self, timeout: float) -> int:
        raise AssertionError


def limit_after(workers: Workers, *means: float) -> int:
    """Return the limit after 100 calls of each mean duration in seconds, with an update after each hundred."""
    counters = Counters()
    limit = DispatchLimit(workers, counters, OPTIONS)
    assert limit.max_in_flight == workers.room
    for mean in means:
        counters.batches += 100
        counters.handler_seconds += 100 * mean
        limit.update(0.0, 1)
        limit.update(0.0, 1)
    return limit.max_in_flight


@pytest.mark.parametrize(
    ("workers", "seconds", "expected"),
    [
        (100, 0.0, 100 + MAX_QUEUED_CALLS),
        (2, 0.0, 2 + MAX_QUEUED_CALLS),
        (2, 1e-5, 402),
        (2, 4e-6, 2 + MAX_QUEUED_CALLS),
        (100, 0.001, 300),
        (100, 0.002, 200),
        (100, 1.0, 200),
        (2, 0.001, 6),
    ],
)
def test_the_shorter_calls_are_the_more_of_them_wait_for_workers(workers: int, seconds: float, expected: int) -> None:
    assert limit_after(Workers(workers), seconds) == expected


def test_one_slow_call_among_a_hundred_is_enough_for_fewer() -> None:
    assert limit_after(Workers(100), 0.0, 1.0 / 100) == 200


def test_without_news_nothing_changes_and_columns_follow_their_own_rule() -> None:
    assert limit_after(Workers(2)) == 4
    assert limit_after(Workers(2, takes_columns=True), 0.0) == 4


def test_calls_that_do_not_return_are_long() -> None:
    counters = Counters()
    limit = DispatchLimit(Workers(4), counters, OPTIONS)
    counters.batches = 100
    limit.update(10.0, 1)
    assert limit.max_in_flight == 4 + MAX_QUEUED_CALLS
    limit.update(10.019, 900)
    assert limit.max_in_flight == 4 + MAX_QUEUED_CALLS
    limit.update(10.021, 900)
    assert limit.max_in_flight == 8


def test_an_idle_executor_has_no_long_calls() -> None:
    counters = Counters()
    limit = DispatchLimit(Workers(4), counters, OPTIONS)
    counters.batches = 100
    limit.update(10.0, 1)
    limit.update(20.0, 0)
    limit.update(20.01, 900)
    assert limit.max_in_flight == 4 + MAX_QUEUED_CALLS


def test_outputs_of_one_call_that_are_large_are_enough_for_fewer() -> None:
    counters = Counters()
    limit = DispatchLimit(Workers(4), counters, OPTIONS)
    for size in (0, 10_000, 0, 0):
        for number in range(100):
            limit.count(0.0, BatchResult([Output("out", b"x" * (0 if number else size))]))
        counters.batches += 100
        limit.update(0.0, 1)
        if size:
            assert limit.max_in_flight == 4 + 100
    assert limit.max_in_flight == 4 + 400, "large ones count at once, and small ones by and by"


@pytest.mark.parametrize(
    ("outputs", "expected"),
    [
        ([Output("out", b"x")], 4 + MAX_QUEUED_CALLS),
        ([Output("out", b"x" * 10_000)], 4 + 100),
        ([Output("out", b"x" * 10_000_000)], 8),
        ([Output("out", b"")] * 100, 4 + 100),
    ],
)
def test_calls_with_many_or_large_outputs_do_not_wait_by_the_hundred(outputs: list[Output], expected: int) -> None:
    counters = Counters()
    limit = DispatchLimit(Workers(4), counters, OPTIONS)
    for _ in range(2):
        for _ in range(100):
            limit.count(0.0, BatchResult(outputs))
        counters.batches += 100
        limit.update(0.0, 1)
    assert limit.max_in_flight == expected


def followers_after(workers: int, *calls: tuple[float, list[Output]]) -> int:
    """Return the followers after ten updates, in each of which these calls have returned: seconds and outputs."""
    counters = Counters()
    limit = DispatchLimit(Workers(workers), counters, replace(OPTIONS, max_concurrency=workers))
    assert limit.followers == MAX_FOLLOWERS
    for _ in range(10):
        for seconds, outputs in calls:
            limit.count(seconds, BatchResult(outputs))
            counters.batches += 1
            counters.handler_seconds += seconds
        limit.update(0.0, 1)
    return limit.followers


@pytest.mark.parametrize(
    ("workers", "seconds", "outputs", "expected"),
    [
        (4, 0.0, [], MAX_FOLLOWERS),
        (4, MAX_FOLLOWED_CALL_S, [], MAX_FOLLOWERS),
        (4, MAX_FOLLOWED_CALL_S + 0.001, [], 0),
        (1_000, 0.0, [Output("out", b"x")], 10),
        (1_000, 0.0, [Output("out", b"x"), Output("out", b"x")], 5),
        (4, 0.0, [Output("out", b"x" * 25_000)], 10),
        (4, 0.0, [Output("out", b"x" * 250_001)], 0),
    ],
)
def test_no_more_records_follow_than_a_worker_continues_with(
    workers: int, seconds: float, outputs: list[Output], expected: int
) -> None:
    assert followers_after(workers, (seconds, outputs)) == expected


@pytest.mark.parametrize(
    "rare", [(0.06, []), (0.0, [Output("out", b"x" * 500_000)]), (0.0, [Output("out", b"")] * 200)]
)
def test_long_calls_and_large_outputs_that_are_rare_end_no_other_sequence(rare: tuple[float, list[Output]]) -> None:
    assert followers_after(64, *[(0.0, [])] * 4, rare) == MAX_FOLLOWERS


@pytest.mark.parametrize("outputs", [[Output("out", b"x")], [Output("out", b"x" * 99)] * 7])
def test_a_worker_continues_where_outputs_are_as_those_before(outputs: list[Output]) -> None:
    counters = Counters()
    options = replace(OPTIONS, max_concurrency=1_000)
    limit = DispatchLimit(Workers(1_000), counters, options)
    for _ in range(10):
        limit.count(0.0, BatchResult(outputs))
        counters.batches += 1
        limit.update(0.0, 1)
    work = WorkManager(options)
    work.assign({TopicPartition("orders", 0): None})
    work.add(ConsumedRecord("orders", 0, offset, b"a", b"") for offset in range(20))
    first = work.take(0.0, limit.followers)
    assert first is not None
    first.set_result(BatchResult(outputs), 0.0)
    assert first.follow() is first.next is not None
