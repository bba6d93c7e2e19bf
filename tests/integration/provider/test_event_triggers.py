"""Event triggers as the triggerer runs them, on a real broker: they fire, survive failures, and are killed."""

from __future__ import annotations

import asyncio
import json
import random
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest
from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from wasmline.errors import InvalidJob, InvalidTrainSpec
from wasmline.job_specs import SliceRequest
from wasmline.kafka import Topics, produce_all
from wasmline.offset_ranges import ranges_of, union_of
from wasmline.testing.kafka import RunningKafka
from wasmline.training.run_slice import topic_offsets
from wasmline.training.slice_decision import decide_slice
from wasmline.training.slice_log import SliceLog
from wasmline_provider.triggers.daemon_thread import call_in_thread
from wasmline_provider.triggers.new_records import STATE_KEY, NewRecordsTrigger
from wasmline_provider.triggers.retrain import RetrainTrigger

CONNECTION = "kafka_events"

Payload = dict[str, Any]


class AssetState:
    """What Airflow keeps for an asset, in memory."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}

    async def aget(self, key: str) -> Any:
        return self.values.get(key)

    async def aset(self, key: str, value: Any) -> None:
        self.values[key] = json.loads(json.dumps(value))


@pytest.fixture
def connect(kafka: RunningKafka, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """A function that makes the connection."""
    extra = {"bootstrap.servers": kafka.bootstrap_servers}
    name = f"AIRFLOW_CONN_{CONNECTION.upper()}"
    return lambda: monkeypatch.setenv(name, json.dumps({"conn_type": "kafka", "extra": extra}))


def restarted(trigger: BaseEventTrigger) -> Any:
    """Return a trigger as another triggerer makes it."""
    path, arguments = trigger.serialize()
    assert path == f"{type(trigger).__module__}.{type(trigger).__name__}"
    again = type(trigger)(**json.loads(json.dumps(arguments)))
    assert again.serialize() == trigger.serialize()
    return again


def progress(topic: str, **options: Any) -> NewRecordsTrigger:
    return NewRecordsTrigger(topic=topic, kafka_conn_id=CONNECTION, poll_seconds=0.05, **options)


def retrain(topic: str, models: Path, **options: Any) -> RetrainTrigger:
    conditions = {"new_records": 10, "cooldown_seconds": 0, **options}
    return RetrainTrigger(
        model="eta", models=str(models), topic=topic, kafka_conn_id=CONNECTION, poll_seconds=0.05, **conditions
    )


async def payload(events: AsyncIterator[TriggerEvent]) -> Payload:
    found: Payload = json.loads(json.dumps((await anext(events)).payload))
    return found


def write(kafka: RunningKafka, topic: str, records: int) -> None:
    produce_all(kafka.config, topic, ((uuid.uuid4().bytes, b"{}", None, None) for _ in range(records)))


def ends(kafka: RunningKafka, topic: str) -> dict[str, int]:
    return {str(partition): end for partition, end in sorted(Topics(kafka.config).end_offsets(topic).items())}


async def until_polled(trigger: NewRecordsTrigger) -> None:
    while trigger._last is None:
        await asyncio.sleep(0.02)


def test_a_growing_topic_gives_events_with_the_offsets_that_are_new(
    kafka: RunningKafka, connect: Callable[[], None]
) -> None:
    topic = kafka.topic(2)
    write(kafka, topic, 7)
    connect()
    state = AssetState()

    async def scene() -> tuple[list[Payload], list[dict[str, int]]]:
        trigger = restarted(progress(topic, every_records=10))
        trigger.asset_state_store = state
        events = trigger.run()
        found, seen = [], [ends(kafka, topic)]
        pending = asyncio.ensure_future(payload(events))
        await until_polled(trigger)
        for records in (9, 1, 10):
            await asyncio.to_thread(write, kafka, topic, records)
            if records != 9:
                found.append(await pending)
                seen.append(await asyncio.to_thread(ends, kafka, topic))
                pending = asyncio.ensure_future(payload(events))
        pending.cancel()
        return found, seen

    (first, second), (before, between, after) = asyncio.run(scene())
    assert (first["records"], second["records"]) == (10, 10)
    assert (first["until"], second["until"]) == (between, after)
    for event, start, end in ((first, before, between), (second, between, after)):
        assert event["offsets"] == {p: [start[p], end[p]] for p in end if start[p] < end[p]}
    assert state.values[STATE_KEY]["ends"] in (between, after)


def test_a_restarted_triggerer_continues_where_the_last_event_ended(
    kafka: RunningKafka, connect: Callable[[], None]
) -> None:
    topic = kafka.topic()
    connect()
    state = AssetState()
    state.values[STATE_KEY] = {"topic_id": Topics(kafka.config).describe(topic).id, "ends": {"0": 3}, "at_ms": 1}
    write(kafka, topic, 8)

    async def scene() -> Payload:
        trigger = progress(topic, every_records=5)
        trigger.asset_state_store = state  # type: ignore[assignment]
        return await payload(aiter(trigger.run()))

    assert asyncio.run(scene())["offsets"] == {"0": [3, 8]}


def test_a_slow_topic_gives_an_event_after_some_seconds(kafka: RunningKafka, connect: Callable[[], None]) -> None:
    topic = kafka.topic()
    connect()

    async def scene() -> Payload:
        trigger = progress(topic, every_seconds=0.1)
        event = asyncio.ensure_future(payload(aiter(trigger.run())))
        await until_polled(trigger)
        await asyncio.to_thread(write, kafka, topic, 1)
        return await event

    assert asyncio.run(scene())["records"] == 1


def test_a_trigger_waits_for_its_connection_its_topic_and_its_registry(
    kafka: RunningKafka, connect: Callable[[], None], tmp_path: Path
) -> None:
    topic, models = f"test-{uuid.uuid4()}", tmp_path / "models"
    models.write_text("no folder")

    async def scene() -> Payload:
        event = asyncio.ensure_future(payload(aiter(restarted(retrain(topic, models)).run())))
        await asyncio.sleep(0.1)
        connect()
        await asyncio.sleep(0.5)
        models.unlink()
        await asyncio.sleep(0.1)
        await asyncio.to_thread(Topics(kafka.config).create, topic, 1)
        await asyncio.to_thread(write, kafka, topic, 10)
        return await event

    found = asyncio.run(scene())
    assert found["why"] == "10 new records, at least 10"
    assert found["reasons"] == [
        {"condition": "new records", "text": found["why"], "figures": {"records": 10}},
    ]
    assert (found["until"], found["slice"], found["model"]) == ({"0": 10}, 0, "eta")


def test_a_triggerer_killed_a_hundred_times_leaves_no_gap_and_no_overlap(
    kafka: RunningKafka, connect: Callable[[], None], tmp_path: Path
) -> None:
    topic, chance = kafka.topic(3), random.Random(7)
    connect()
    topics, log = Topics(kafka.config), SliceLog(str(tmp_path))
    events: list[dict[str, int]] = []

    async def kill_after(seconds: float) -> None:
        async def listen() -> None:
            async for event in restarted(retrain(topic, tmp_path)).run():
                events.append(event.payload["until"])

        running = asyncio.ensure_future(listen())
        await asyncio.sleep(seconds)
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running

    def run(request: SliceRequest) -> None:
        history = log.history("eta")
        now = topic_offsets(topics, topic, request)
        new = decide_slice(request, history, now)
        if new.offsets:
            assert log.append("eta", len(history), new, request=request, topic=now)

    async def kill_ten() -> None:
        await asyncio.gather(*(kill_after(chance.uniform(0, 0.5)) for _ in range(10)))

    for night in range(10):
        write(kafka, topic, chance.randrange(10, 50))
        asyncio.run(kill_ten())
        chance.shuffle(events)
        for number in range(chance.randrange(3)):
            if events:
                run(SliceRequest(run=f"{night}.{number}", until=events.pop()))
    assert log.history("eta"), "events started runs"
    run(SliceRequest(run="last"))
    slices = log.history("eta")  # raises where two overlap
    written = ends(kafka, topic)
    assert union_of(each.offsets for each in slices) == {p: (0, end) for p, end in written.items()}
    assert sum(end - start for each in slices for _, start, end in ranges_of(each.offsets)) == sum(written.values())


def test_a_call_that_blocks_holds_up_neither_the_loop_nor_its_end_and_has_the_callers_context() -> None:
    log_of: ContextVar[str] = ContextVar("log_of")

    async def scene() -> list[str]:
        heard: list[str] = []
        blocked = [asyncio.ensure_future(call_in_thread(lambda: asyncio.run(asyncio.sleep(3600)))) for _ in range(50)]
        heard.append(await call_in_thread(lambda: "done"))
        heard.append(await asyncio.to_thread(lambda: "done too"))
        log_of.set("trigger 1")
        heard.append(await call_in_thread(log_of.get))
        for each in blocked:
            each.cancel()
        with pytest.raises(ZeroDivisionError):
            await call_in_thread(lambda: 1 / 0)
        return heard

    assert asyncio.run(scene()) == ["done", "done too", "trigger 1"]


def test_a_trigger_keeps_no_secret_and_rejects_what_could_never_fire(tmp_path: Path) -> None:
    for trigger in (progress("features", every_records=1), retrain("features", tmp_path)):
        assert "bootstrap" not in str(trigger.serialize())
    for limits in ({}, {"every_records": -5}, {"every_seconds": float("nan")}):
        with pytest.raises(InvalidJob, match="every_records or every_seconds must be set, and above 0"):
            progress("features", **limits)
    with pytest.raises(InvalidJob, match="poll_seconds must be above 0, got -1"):
        NewRecordsTrigger(topic="features", every_records=1, poll_seconds=-1)
    with pytest.raises(InvalidTrainSpec):
        retrain("features", tmp_path, new_records=None)
