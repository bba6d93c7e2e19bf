"""The thread that follows the cluster of the page."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from wasmline.control import ClusterState
from wasmline.errors import BrokerUnavailable
from wasmline.local.process import wait_until
from wasmline.restart_policy import RestartPolicy
from wasmline_provider.plugin import cluster_reader
from wasmline_provider.plugin.cluster_reader import ClusterReader


class FakeFollower:
    """A follower whose polls may fail or hang."""

    def __init__(self) -> None:
        self.state = ClusterState()
        self.lock = threading.Lock()
        self.polls = 0
        self.error: Exception | None = None
        self.ends_error: Exception | None = None
        self.gate = threading.Event()
        self.gate.set()
        self.closed = False

    def poll(self) -> None:
        self.gate.wait()
        self.polls += 1
        if self.error is not None:
            raise self.error

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def followers(monkeypatch: pytest.MonkeyPatch) -> list[FakeFollower]:
    monkeypatch.setattr(cluster_reader, "POLL_INTERVAL_S", 0.01)
    monkeypatch.setattr(cluster_reader, "DELAYS", RestartPolicy(first_delay_s=0.01, max_delay_s=0.01))
    monkeypatch.setattr(cluster_reader, "IDLE_TIMEOUT_S", 0.5)
    return []


@pytest.fixture
def reader(followers: list[FakeFollower]) -> ClusterReader:
    def open_follower() -> Any:
        followers.append(FakeFollower())
        return followers[-1]

    return ClusterReader(open_follower)


def identity(reader: ClusterReader) -> str:
    with reader.state() as (identity, _):
        return identity


def test_it_begins_with_the_first_request_and_ends_without_any(
    reader: ClusterReader, followers: list[FakeFollower]
) -> None:
    assert followers == []
    assert reader.reading.state == "starting"
    assert wait_until(lambda: reader.reading.state == "connected", 10)
    first = identity(reader)
    assert wait_until(lambda: followers[0].closed, 10)
    assert reader.reading.state == "starting"
    assert wait_until(lambda: identity(reader) != first, 10)
    assert len(followers) == 2


def test_a_cluster_that_is_away_keeps_its_last_state(reader: ClusterReader, followers: list[FakeFollower]) -> None:
    assert wait_until(lambda: reader.reading.state == "connected", 10)
    before, read_ms = identity(reader), reader.reading.read_ms
    followers[0].error = BrokerUnavailable("no broker", bootstrap_servers="s")
    assert wait_until(lambda: reader.reading.state == "away" or len(followers) > 1, 10)
    assert wait_until(lambda: reader.reading.state == "connected" and identity(reader) != before, 10)
    assert followers[0].closed
    assert (reader.reading.read_ms or 0) >= (read_ms or 0)


def test_a_cluster_that_does_not_answer_is_away(
    reader: ClusterReader, followers: list[FakeFollower], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_reader, "SILENCE_S", 0.05)
    assert wait_until(lambda: reader.reading.state == "connected", 10)
    followers[0].gate.clear()
    assert wait_until(lambda: reader.reading.state == "away", 10)
    assert "has not answered" in reader.reading.error
    before = identity(reader)
    followers[0].gate.set()
    assert wait_until(lambda: reader.reading.state == "connected", 10)
    assert identity(reader) == before
