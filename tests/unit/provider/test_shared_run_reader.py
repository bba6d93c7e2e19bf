"""One reader for many followers: one thread, errors that end nothing, and no thread without followers."""

import queue
import threading
from collections.abc import Callable, Collection, Mapping
from typing import Any

import pytest

from wasmline.control import RunReading
from wasmline.errors import BrokerUnavailable
from wasmline.local.process import wait_until
from wasmline.reading_gaps import SLOW_READING_S
from wasmline.restart_policy import RestartPolicy
from wasmline_provider.shared_run_reader import SharedRunReader, cluster_clients

READING = RunReading()
WAIT_S = 10.0
AT_ONCE = RestartPolicy(first_delay_s=0.001, max_delay_s=0.001)


class Source:
    """A source whose readings are ``outcomes``: each is called, and may raise; afterwards it reads without errors."""

    def __init__(self, outcomes: list[Callable[[], None]] | None = None) -> None:
        self.outcomes = outcomes or []
        self.opened = 0
        self.open_now = 0
        self.threads: set[threading.Thread] = set()
        self.asked: list[frozenset[tuple[str, str]]] = []

    def open(self) -> "Source":
        self.opened += 1
        self.open_now += 1
        return self

    def read(self, runs: Collection[tuple[str, str]]) -> Mapping[tuple[str, str], RunReading]:
        self.threads.add(threading.current_thread())
        self.asked.append(frozenset(runs))
        if self.outcomes:
            self.outcomes.pop(0)()
        return dict.fromkeys(runs, READING)

    def close(self) -> None:
        self.open_now -= 1

    @property
    def has_ended(self) -> bool:
        return self.open_now == 0 and not any(thread.is_alive() for thread in self.threads)


class Follower:
    """A follower that keeps what it is told."""

    def __init__(self) -> None:
        self.told: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def on_reading(self, reading: RunReading) -> None:
        self.told.put("reading")

    def on_interruption(self) -> None:
        self.told.put("interruption")

    def on_error(self, error: Exception) -> None:
        self.told.put(error)

    def next(self) -> Any:
        return self.told.get(timeout=WAIT_S)


class Broken(Follower):
    """A follower that fails."""

    def on_reading(self, reading: RunReading) -> None:
        raise ValueError("broken")


def fail() -> None:
    raise BrokerUnavailable("no broker answered", bootstrap_servers="nowhere:1")


def test_a_hundred_followers_share_a_source_and_a_thread_which_end_with_the_last() -> None:
    source = Source()
    reader = SharedRunReader(source.open)
    followers = [Follower() for _ in range(100)]
    followings = [
        reader.follow(f"job-{number}", "run", each, interval_s=0.001) for number, each in enumerate(followers)
    ]
    for each in followers:
        assert each.next() == "interruption"
        assert each.next() == "reading"
    assert len(source.threads) == 1
    assert len(source.asked[-1]) == 100
    for following in followings:
        following.stop()
        following.stop()
    assert wait_until(lambda: source.open_now == 0, WAIT_S)
    assert wait_until(lambda: source.has_ended, WAIT_S)
    assert source.opened == 1


def test_after_the_last_follower_another_one_is_read_again() -> None:
    source = Source()
    reader = SharedRunReader(source.open)
    for _ in range(3):
        follower = Follower()
        following = reader.follow("job", "run", follower, interval_s=3_600)
        assert [follower.next(), follower.next()] == ["interruption", "reading"]
        following.stop()
    assert wait_until(lambda: source.open_now == 0, WAIT_S)


def test_a_new_follower_does_not_wait_for_the_interval_of_another() -> None:
    reader = SharedRunReader(Source().open)
    first, second = Follower(), Follower()
    followings = [reader.follow("job", "run", first, interval_s=3_600)]
    assert [first.next(), first.next()] == ["interruption", "reading"]
    followings.append(reader.follow("job", "run", second, interval_s=3_600))
    assert [second.next(), second.next()] == ["interruption", "reading"]
    for following in followings:
        following.stop()


def test_a_source_that_cannot_be_opened_or_read_is_tried_again_for_ever() -> None:
    attempts = 0
    source = Source(outcomes=[fail, fail])

    def open_source() -> Source:
        nonlocal attempts
        attempts += 1
        if attempts <= 50:
            fail()
        return source.open()

    follower = Follower()
    following = SharedRunReader(open_source, delays=AT_ONCE).follow("job", "run", follower, interval_s=0.001)
    told = [follower.next() for _ in range(54)]
    following.stop()
    assert [type(each) for each in told[:52]] == [BrokerUnavailable] * 52
    assert told[52:] == ["interruption", "reading"]
    assert wait_until(lambda: source.open_now == 0, WAIT_S)
    assert source.opened == 3, "a source that failed is closed, and another one opened"


def test_an_interruption_is_told_before_the_next_reading_and_only_then() -> None:
    now = 0.0

    def pass_time() -> None:
        nonlocal now
        now += SLOW_READING_S + 1

    source = Source(outcomes=[lambda: None, lambda: None, pass_time, lambda: None])
    follower = Follower()
    following = SharedRunReader(source.open, clock=lambda: now).follow("job", "run", follower, interval_s=0.5)
    told = [follower.next() for _ in range(6)]
    following.stop()
    assert told == ["interruption", "reading", "reading", "interruption", "reading", "reading"]


def test_a_follower_that_fails_leaves_the_others_their_readings(caplog: pytest.LogCaptureFixture) -> None:
    reader = SharedRunReader(Source().open)
    broken, follower = Broken(), Follower()
    followings = [reader.follow("job", "run", each, interval_s=0.001) for each in (broken, follower)]
    assert [follower.next() for _ in range(3)] == ["interruption", "reading", "reading"]
    for following in followings:
        following.stop()
    assert "a follower of a run failed" in caplog.text


def test_the_last_follower_ends_the_wait_for_a_cluster_that_is_away() -> None:
    source = Source(outcomes=[fail])
    reader = SharedRunReader(source.open, delays=RestartPolicy(first_delay_s=3_600, max_delay_s=3_600))
    follower = Follower()
    following = reader.follow("job", "run", follower, interval_s=1)
    assert isinstance(follower.next(), BrokerUnavailable)
    following.stop()
    assert wait_until(lambda: source.has_ended, WAIT_S)


def test_equal_settings_are_one_cluster() -> None:
    settings = {"bootstrap.servers": "a:1", "sasl.password": "s"}
    assert cluster_clients(settings) is cluster_clients(dict(reversed(settings.items())))
    assert cluster_clients(settings) is not cluster_clients({**settings, "sasl.password": "mended"})
