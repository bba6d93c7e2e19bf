"""Outputs that the client of a cluster has no room for."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError

from support.consumers.column_handlers import output_columns
from wasmline.consumer import Output
from wasmline.consumer.backends.kafka.producer_batch_limiter import TopicLimits
from wasmline.consumer.backends.kafka.sink import KafkaSink, delivery_error
from wasmline.kafka.config import KafkaConfig

ROOM = 2


class Client:
    """A producer whose queue has little room, and whose records are delivered when the test says."""

    def __init__(self) -> None:
        self.queue: list[tuple[bytes, Any]] = []
        self.delivered: list[bytes] = []
        self.answers = False

    def produce(self, topic: str, *, value: bytes, on_delivery: Any, **_: Any) -> None:
        if len(self.queue) == ROOM:
            raise BufferError
        self.queue.append((value, on_delivery))

    def poll(self, timeout: float) -> int:
        if not self.answers:
            return 0
        queue, self.queue = self.queue, []
        for value, done in queue:
            self.delivered.append(value)
            done(None, None)
        return len(queue)

    def flush(self, timeout: float) -> int:
        self.poll(timeout)
        return len(self.queue)

    def __len__(self) -> int:
        return len(self.queue)


@pytest.fixture
def client() -> Client:
    return Client()


@pytest.fixture
def sink(client: Client, monkeypatch: pytest.MonkeyPatch) -> KafkaSink:
    sink = KafkaSink(KafkaConfig({"bootstrap.servers": "127.0.0.1:1"}))
    monkeypatch.setitem(vars(sink), "_producer", client)
    sink._batches._limits["out"] = TopicLimits(size=1_000_000)
    return sink


def test_outputs_wait_in_their_order_for_room_and_their_writer_does_not(client: Client, sink: KafkaSink) -> None:
    answers: list[Exception | None] = []
    for number in range(7):
        sink.write(Output("out", b"%d" % number), answers.append)
    assert sink.is_full
    assert sink.flush(0.0) == 7
    assert answers == []
    client.answers = True
    for _ in range(4):
        sink.poll()
    assert not sink.is_full
    assert answers == [None] * 7
    assert client.delivered == [b"%d" % number for number in range(7)]


def test_a_flush_writes_what_waits_for_room_too(client: Client, sink: KafkaSink) -> None:
    answers: list[Exception | None] = []
    for number in range(7):
        sink.write(Output("out", b"%d" % number), answers.append)
    client.answers = True
    assert sink.flush(30.0) == 0
    assert answers == [None] * 7


def test_a_flush_counts_the_outputs_whose_answers_it_has_not_passed_on(
    client: Client, sink: KafkaSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[tuple[int, int, Exception | None]] = []
    sink._batches._limits["out"] = TopicLimits()
    sink.write_columns(output_columns([Output("out", b"", timestamp=0)], [0]), lambda *each: answers.append(each))
    pass_on = sink._answer_columns

    def delivered_just_after() -> None:
        pass_on()
        client.answers = True
        client.poll(0)

    monkeypatch.setattr(sink, "_answer_columns", delivered_just_after)
    assert sink.flush(0.0) == 1
    assert answers == []
    assert sink.flush(0.0) == 0
    assert answers == [(1, 0, None)]


def test_a_batch_under_way_that_is_not_taken_keeps_the_next_output_waiting(client: Client, sink: KafkaSink) -> None:
    """Topics that take less than a batch of the client's."""
    sink._batches._limits["out"] = TopicLimits(size=500)
    answers: list[Exception | None] = []
    for _ in range(3):
        sink.write(Output("out", b"x" * 300), answers.append)
    assert len(client.queue) == 1
    assert sink.is_full
    client.answers = True
    assert sink.flush(30.0) == 0
    assert answers == [None] * 3


def test_an_output_that_no_topic_takes_is_answered_while_others_wait(client: Client, sink: KafkaSink) -> None:
    answers: list[Exception | None] = []
    for number in range(ROOM + 1):
        sink.write(Output("out", b"%d" % number), answers.append)
    sink.write(Output("out", {"no": "bytes"}), lambda error: answers.append(error))  # type: ignore[arg-type]
    client.produce = _checked(client.produce)  # type: ignore[method-assign]
    client.answers = True
    assert sink.flush(30.0) == 0
    refusals = [each for each in answers if each is not None]
    assert [type(each).__name__ for each in refusals] == ["OutputRefused"]


def _checked(produce: Any) -> Any:
    def checked(topic: str, *, value: Any, **others: Any) -> None:
        if not isinstance(value, bytes):
            raise TypeError(value)
        produce(topic, value=value, **others)

    return checked


def test_a_delivery_that_fails_is_told_of(client: Client, sink: KafkaSink) -> None:
    answers: list[Exception | None] = []
    sink.write(Output("out", b""), answers.append)
    ((_, done),) = client.queue
    done(KafkaError(KafkaError._MSG_TIMED_OUT), None)
    assert [type(each).__name__ for each in answers] == ["BrokerUnavailable"]


def test_the_error_of_a_delivery_keeps_nothing_of_its_callers() -> None:
    config = KafkaConfig({"bootstrap.servers": "127.0.0.1:1"})
    error: BaseException | None = delivery_error(config, "out", KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
    chain = list[BaseException]()
    while error is not None:
        chain.append(error)
        error = error.__cause__ or error.__context__
    assert len(chain) == 2
    assert [each.__traceback__ for each in chain] == [None, None]
