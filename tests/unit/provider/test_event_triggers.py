"""Event triggers whose state cannot be read or written, or is that of another triggerer."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any, cast

import pytest
from airflow.sdk import Asset
from airflow.sdk.execution_time.context import AssetStateStoreAccessors
from airflow.triggers.base import BaseEventTrigger

from wasmline.kafka import KafkaConfig
from wasmline.local.process import wait_until
from wasmline.new_records import TopicEnds
from wasmline_provider.hooks.wasmline import Locations
from wasmline_provider.triggers import polling
from wasmline_provider.triggers.new_records import STATE_KEY, NewRecordsTrigger
from wasmline_provider.triggers.polling import Poller
from wasmline_provider.triggers.retrain import RetrainTrigger


class Growing(NewRecordsTrigger):
    """Polls a topic in memory that grows by ten records between two polls, and fires at every fifth poll."""

    def poller(self, config: KafkaConfig, locations: Locations) -> Poller:
        def poll() -> dict[str, Any] | None:
            last = self._last.ends["0"] if self._last else 0
            now = TopicEnds(topic_id="t1", ends={"0": last + 10}, at_ms=1)
            self._last = now
            return {"until": now.ends} if now.ends["0"] % 50 == 0 else None

        return Poller(poll)


class AssetState:
    """What Airflow keeps for an asset, in memory; ``failures`` are raised first."""

    def __init__(self, stored: Any = None, *, failures: int = 0) -> None:
        self.written: list[Any] = []
        self.stored = stored
        self.failures = failures

    async def aget(self, key: str) -> Any:
        assert key == STATE_KEY
        if self.failures:
            self.failures -= 1
            raise RuntimeError("the API server restarts")
        return self.stored

    async def aset(self, key: str, value: Any) -> None:
        self.written.append(json.loads(json.dumps(value)))


@pytest.fixture(autouse=True)
def connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(
        "AIRFLOW_CONN_KAFKA_DEFAULT", json.dumps({"conn_type": "kafka", "extra": {"bootstrap.servers": "b:1"}})
    )


def first_event(state: Any) -> Any:
    trigger = Growing(topic="features", every_records=1, poll_seconds=0.001)
    trigger.asset_state_store = state

    async def scene() -> Any:
        return (await asyncio.wait_for(anext(aiter(trigger.run())), 60)).payload

    return asyncio.run(scene())


def test_equal_triggers_of_two_assets_are_one_to_airflow_and_fire_without_a_state(
    capsys: pytest.CaptureFixture[str],
) -> None:
    one, other = (NewRecordsTrigger(topic="features", every_records=1) for _ in range(2))
    assert BaseEventTrigger.hash(*one.serialize()) == BaseEventTrigger.hash(*other.serialize())
    assert first_event(AssetStateStoreAccessors([Asset("features"), Asset("predictions")])) == {"until": {"0": 50}}
    told = capsys.readouterr().out
    assert [told.count(f"cannot {what} its state, and goes on") for what in ("read", "store")] == [1, 1]


@pytest.mark.parametrize("state", [AssetState(failures=1), AssetState("no ends"), AssetState({"ends": 7})])
def test_a_state_that_cannot_be_read_is_begun_anew(state: AssetState) -> None:
    assert first_event(state) == {"until": {"0": 50}}


def test_the_ends_of_the_first_poll_are_stored_so_that_a_restart_before_the_first_event_loses_nothing() -> None:
    state = AssetState({"topic_id": "t1", "ends": {"0": 20}, "at_ms": 1})
    assert first_event(state) == {"until": {"0": 50}}
    assert [each["ends"]["0"] for each in state.written] == [30, 40]


def test_a_connection_that_changes_while_polls_fail_is_connected_to_with_the_same_state(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A rotated password, or another broker: the clients of the old ones would fail for ever."""

    closed: list[str] = []

    class Rotated(Growing):
        def poller(self, config: KafkaConfig, locations: Locations) -> Poller:
            poll, servers = super().poller(config, locations).poll, config.bootstrap_servers

            def authenticated() -> dict[str, Any] | None:
                if servers == "b:1":
                    extra = {"bootstrap.servers": "c:1"}
                    connection = json.dumps({"conn_type": "kafka", "extra": extra})
                    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_DEFAULT", connection)
                    raise RuntimeError("not authenticated any more")
                return poll()

            return Poller(authenticated, lambda: closed.append(servers))

    trigger = Rotated(topic="features", every_records=1, poll_seconds=0.001)
    trigger.asset_state_store = cast(Any, AssetState({"topic_id": "t1", "ends": {"0": 20}, "at_ms": 1}))

    async def scene() -> Any:
        return (await asyncio.wait_for(anext(aiter(trigger.run())), 60)).payload

    assert asyncio.run(scene()) == {"until": {"0": 50}}
    assert closed == ["b:1"]


@pytest.mark.parametrize("during", ["poll", "connect"])
def test_the_clients_of_a_trigger_that_is_cancelled_are_closed_once_its_thread_has_left_them(during: str) -> None:
    begun, goes_on, events = threading.Event(), threading.Event(), list[str]()

    def wait(what: str) -> None:
        if what == during:
            begun.set()
            assert goes_on.wait(60)
        events.append(what)

    class Slow(NewRecordsTrigger):
        def poller(self, config: KafkaConfig, locations: Locations) -> Poller:
            wait("connect")
            return Poller(lambda: wait("poll"), lambda: events.append("closed"))

    trigger = Slow(topic="features", every_records=1, poll_seconds=0.001)
    trigger.asset_state_store = cast(Any, AssetState())

    async def fire() -> None:
        await anext(aiter(trigger.run()))

    async def scene() -> None:
        running = asyncio.create_task(fire())
        assert await asyncio.to_thread(begun.wait, 60)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await trigger.cleanup()
        goes_on.set()

    asyncio.run(scene())
    assert wait_until(lambda: "closed" in events, 60)
    assert events == (["connect", "poll", "closed"] if during == "poll" else ["connect", "closed"])


@pytest.mark.parametrize(("interval_s", "event"), [(0.0, "/new"), (60.0, "/old")])
def test_a_location_that_changes_while_polls_succeed_is_polled_from_the_next_check_on(
    monkeypatch: pytest.MonkeyPatch, interval_s: float, event: str
) -> None:
    def connect(models: str) -> None:
        connection = {"conn_type": "wasmline", "extra": {"models": models}}
        monkeypatch.setenv("AIRFLOW_CONN_WASMLINE_DEFAULT", json.dumps(connection))

    class Watched(RetrainTrigger):
        polls = 0

        def poller(self, config: KafkaConfig, locations: Locations) -> Poller:
            def poll() -> dict[str, Any] | None:
                connect("/new")
                self.polls += 1
                return {"models": locations.models} if self.polls > 2 else None

            return Poller(poll)

    monkeypatch.setattr(polling, "CONNECTION_CHECK_INTERVAL_S", interval_s)
    connect("/old")
    trigger = Watched(model="eta", topic="features", new_records=1, poll_seconds=0.001)

    async def scene() -> Any:
        return (await asyncio.wait_for(anext(aiter(trigger.run())), 60)).payload

    assert asyncio.run(scene()) == {"models": event}
