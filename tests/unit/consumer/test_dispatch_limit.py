"""How many calls an executor is given at a time."""

import pytest

from wasmline.consumer.health import Counters
from wasmline.consumer.runtime.dispatch_limit import MAX_QUEUED_CALLS, DispatchLimit


class Workers:
    def __init__(self, workers: int, *, takes_columns: bool = False) -> None:
        self.workers = workers
        self.room = 2 * workers
        self.takes_columns = takes_columns

    def submit(self, batches: object) -> None:
        raise AssertionError

    def close(self, timeout: float) -> int:
        raise AssertionError


def limit_after(workers: Workers, *means: float) -> int:
    """Return the limit after 100 calls of each mean duration in seconds, with an update after each hundred."""
    counters = Counters()
    limit = DispatchLimit(workers, counters)
    assert limit.calls == workers.room
    for mean in means:
        counters.batches += 100
        counters.handler_seconds += 100 * mean
        limit.update()
        limit.update()
    return limit.calls


@pytest.mark.parametrize(
    ("workers", "seconds", "expected"),
    [
        (100, 0.0, 100 + MAX_QUEUED_CALLS),
        (2, 0.0, 2 + MAX_QUEUED_CALLS),
        (2, 1e-5, 402),
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
