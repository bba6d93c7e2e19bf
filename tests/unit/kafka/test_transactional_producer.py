"""Producers with a transactional id."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from wasmline.errors import BrokerUnavailable
from wasmline.kafka import KafkaConfig, transactional_producer
from wasmline.kafka.committed_offset_store import LibrdkafkaOffsetStore
from wasmline.kafka.transactional_producer import SendingOffsets
from wasmline.topic_partitions import CommittedOffset, TopicPartition

IDS = [f"id-{number}" for number in range(64)]


def test_each_id_is_fenced_however_long_another_takes(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    in_time = set()

    def create(config: KafkaConfig, name: str, settings: Mapping[str, Any], deadline: float) -> None:
        if name == "id-0":
            time.sleep(max(0.0, deadline - time.monotonic()))
            raise BrokerUnavailable("its coordinator is away", bootstrap_servers="nowhere:1")
        time.sleep(0.2)
        if time.monotonic() < deadline:
            in_time.add(name)

    monkeypatch.setattr(transactional_producer, "create_fencing_producer", create)
    config = KafkaConfig({"bootstrap.servers": "nowhere:1"})
    transactional_producer.abort_open_transactions(config, IDS, {}, 5.0)
    assert in_time == set(IDS) - {"id-0"}
    assert caplog.messages == ["cannot abort transactions that may be open, of 1 ids: id-0: its coordinator is away"]


@pytest.fixture
def sending(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[float], Any], float], SendingOffsets]:
    """Begins to send an offset by a call that gets the remaining seconds."""

    def begin(send: Callable[[float], Any], timeout: float) -> SendingOffsets:
        store = LibrdkafkaOffsetStore()
        monkeypatch.setattr(store, "send_offsets", lambda producer, group, offsets, left: send(left))
        offsets = {TopicPartition("orders", 0): CommittedOffset(1)}
        return SendingOffsets(store, Producer({"log_level": "0"}), b"", offsets, timeout)

    return begin


def test_offsets_whose_call_never_returns_are_given_up_by_the_limit_since_they_were_sent(
    sending: Callable[[Callable[[float], Any], float], SendingOffsets], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = time.monotonic()
    silent = sending(lambda _: threading.Event().wait(), 1.0)
    time.sleep(1.0)
    with pytest.raises(KafkaException, match="offsets of orders-0 were not answered within 1 s") as caught:
        silent.wait()
    assert caught.value.args[0].code() == KafkaError._TIMED_OUT
    assert 1.5 <= time.monotonic() - begun < 2.5


def test_offsets_are_sent_again_after_an_error_that_is_retriable(
    sending: Callable[[Callable[[float], Any], float], SendingOffsets],
) -> None:
    errors = [KafkaError(KafkaError.COORDINATOR_LOAD_IN_PROGRESS, retriable=True)] * 3
    left = []

    def send(seconds: float) -> None:
        left.append(seconds)
        if errors:
            raise KafkaException(errors.pop())

    sending(send, 30.0).wait()
    assert len(left) == 4
    assert 0 < min(left) <= max(left) <= 30


def test_an_error_of_sent_offsets_that_is_not_retriable_is_raised(
    sending: Callable[[Callable[[float], Any], float], SendingOffsets],
) -> None:
    def send(_: float) -> None:
        raise KafkaException(KafkaError(KafkaError.OFFSET_METADATA_TOO_LARGE))

    with pytest.raises(KafkaException, match="OFFSET_METADATA_TOO_LARGE"):
        sending(send, 30.0).wait()
