"""What a topic takes of a batch, by its settings."""

import threading
import time
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from confluent_kafka import Producer

from wasmline.consumer import Output
from wasmline.consumer.backends.kafka import producer_batch_limiter as topic_limits
from wasmline.errors import BrokerUnavailable, OutputRefused
from wasmline.kafka import KafkaConfig
from wasmline.local.process import wait_until

HOUR = 3_600_000
SETTINGS = {
    "max.message.bytes": "1000",
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": str(HOUR),
    "message.timestamp.after.max.ms": str(HOUR),
}


def at(milliseconds: int) -> Output:
    return Output("out", b"value", timestamp=int(time.time() * 1_000) + milliseconds)


@pytest.mark.parametrize(("ahead", "setting"), [(2 * HOUR, "after"), (-2 * HOUR, "before")])
def test_a_time_that_the_topic_does_not_take_is_refused_by_its_setting(ahead: int, setting: str) -> None:
    with pytest.raises(OutputRefused, match=rf"message\.timestamp\.{setting}\.max\.ms={HOUR}"):
        topic_limits._limits(SETTINGS).require_timestamp(at(ahead))


@pytest.mark.parametrize("ahead", [0, HOUR - 1_000, -HOUR + 1_000, HOUR + 30_000, -HOUR - 30_000])
def test_what_clocks_may_differ_by_is_for_the_broker_to_judge(ahead: int) -> None:
    topic_limits._limits(SETTINGS).require_timestamp(at(ahead))


@pytest.mark.parametrize(
    "settings",
    [
        None,
        SETTINGS | {"message.timestamp.type": "LogAppendTime"},
        {"max.message.bytes": "1000"},
        SETTINGS | dict.fromkeys(("message.timestamp.before.max.ms", "message.timestamp.after.max.ms"), str(2**63 - 1)),
    ],
    ids=["hidden", "the broker's own times", "not told", "no limit"],
)
def test_a_topic_without_limits_of_time_takes_any(settings: dict[str, str] | None) -> None:
    for timestamp in (None, 0, 2**62):
        topic_limits._limits(settings).require_timestamp(Output("out", b"value", timestamp=timestamp))


def test_a_transaction_waits_for_the_limits_that_another_one_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def settings(names: Collection[str]) -> dict[str, dict[str, str]]:
        asked.set()
        assert answered.wait(30)
        return dict.fromkeys(names, SETTINGS)

    asked, answered = threading.Event(), threading.Event()
    monkeypatch.setattr(topic_limits, "Topics", lambda _: SimpleNamespace(settings=settings))
    shared = topic_limits.ProducerBatchLimiter(KafkaConfig({"bootstrap.servers": "nowhere:1"}))
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(shared._read_limits, "out")
        assert asked.wait(30)
        second = threads.submit(shared._read_limits, "out")
        wait_until(second.done, 0.2)
        answered.set()
        assert first.result().size == second.result().size == 1_000


def test_brokers_that_do_not_answer_are_asked_for_limits_once_and_hold_no_other_output_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []

    def settings(names: Collection[str]) -> dict[str, dict[str, str]]:
        asked.append(names)
        raise BrokerUnavailable("away", bootstrap_servers="nowhere:1")

    monkeypatch.setattr(topic_limits, "Topics", lambda _: SimpleNamespace(settings=settings))
    limiter = topic_limits.ProducerBatchLimiter(KafkaConfig({"bootstrap.servers": "nowhere:1"}))
    client = Producer({"bootstrap.servers": "nowhere:1", "log_level": 0})
    waiting: dict[str, int] = {}
    assert all(limiter.flush_if_full(client, at(0), waiting, 1.0) for _ in range(100))
    assert asked == [["out"]]
