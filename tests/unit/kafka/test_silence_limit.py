"""How long a reader waits for what does not come, by a clock of its own."""

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from wasmline.errors import BrokerUnavailable
from wasmline.kafka import topic_reader
from wasmline.kafka.topic_reader import IDLE_TIMEOUT_S, MAX_SILENCE_S, SilenceLimit


class Clock:
    now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(topic_reader, "time", clock)
    return clock


def limit(end: int | None) -> SilenceLimit:
    """Return the limit of a reader whose brokers have a partition up to ``end``; None: they do not answer."""

    def watermarks(*_: Any) -> tuple[int, int]:
        if end is None:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        return 0, end

    consumer: Any = SimpleNamespace(get_watermark_offsets=watermarks)
    return SilenceLimit(consumer, "orders", "kafka:9092")


@pytest.mark.parametrize("end", [None, 99], ids=["no answer", "no end"])
def test_silence_ends_a_read_of_what_the_brokers_do_not_have(clock: Clock, end: int | None) -> None:
    silence = limit(end)
    clock.now = IDLE_TIMEOUT_S
    silence.check({0: 100})
    clock.now += 1
    with pytest.raises(
        BrokerUnavailable, match=r"from orders on kafka:9092 for 31 s; still to read, up to: \{0: 100\}"
    ):
        silence.check({0: 100})


def test_brokers_that_have_the_end_are_given_longer(clock: Clock) -> None:
    silence = limit(100)
    while clock.now < MAX_SILENCE_S:
        clock.now += IDLE_TIMEOUT_S / 2
        silence.check({0: 100})
    clock.now += IDLE_TIMEOUT_S + 1
    with pytest.raises(BrokerUnavailable):
        silence.check({0: 100})


def test_what_comes_ends_the_silence(clock: Clock) -> None:
    silence = limit(None)
    for _ in range(10):
        clock.now += IDLE_TIMEOUT_S
        silence.check({0: 100})
        silence.end()
