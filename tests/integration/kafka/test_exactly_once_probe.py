"""The probe for exactly-once on a real Kafka, whose coordinator ends a transaction that is open for too long."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Mapping
from typing import Any

import pytest
from confluent_kafka import Producer

from wasmline.consumer.backends.kafka import exactly_once_probe
from wasmline.consumer.backends.kafka.lazy_offset_store import LazyOffsetStore
from wasmline.errors import BrokerUnavailable
from wasmline.kafka import KafkaConfig
from wasmline.kafka.committed_offset_store import LibrdkafkaOffsetStore
from wasmline.kafka.transactional_producer import create_fencing_producer
from wasmline.testing.kafka import RunningKafka
from wasmline.topic_partitions import CommittedOffset, TopicPartition


class SlowStore(LibrdkafkaOffsetStore):
    """Its first ``times`` transactions are open for too long: their producer is fenced, as by the coordinator."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.times = times
        self.opened: tuple[Any, ...] = ()

    def open(self, *arguments: Any) -> Producer:
        self.opened = arguments
        return create_fencing_producer(*arguments)

    def send_offsets(
        self,
        producer: Producer,
        group_metadata: Any,
        offsets: Mapping[TopicPartition, CommittedOffset],
        timeout: float = 15.0,
    ) -> None:
        super().send_offsets(producer, group_metadata, offsets, timeout)
        if self.times:
            self.times -= 1
            config, name, settings, _ = self.opened
            create_fencing_producer(config, name, settings, time.monotonic() + 30)


class SilentStore(SlowStore):
    """Never returns from sending offsets, as librdkafka does where the group's coordinator has left the cluster."""

    def send_offsets(self, *_: Any) -> None:
        threading.Event().wait()


def probe(kafka: RunningKafka, store: SlowStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exactly_once_probe, "create_fencing_producer", store.open)
    config: KafkaConfig = kafka.config
    group = f"g-{uuid.uuid4()}"
    partition = TopicPartition(kafka.topic(), 0)
    exactly_once_probe.require_exactly_once(config, group, partition, LazyOffsetStore(config, group, store))


@pytest.mark.parametrize("times", [0, 1])
def test_the_probe_is_repeated_where_its_transaction_timed_out(
    kafka: RunningKafka, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    probe(kafka, SlowStore(times), monkeypatch)


def test_a_cluster_whose_transactions_always_time_out_is_unavailable(
    kafka: RunningKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(BrokerUnavailable, match="transactions of the self-test time out"):
        probe(kafka, SlowStore(2), monkeypatch)


def test_a_client_that_never_returns_from_sending_offsets_holds_up_no_start(
    kafka: RunningKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exactly_once_probe, "OPEN_TIMEOUT_S", 5.0)
    with pytest.raises(BrokerUnavailable, match="not answered within 5 s"):
        probe(kafka, SilentStore(0), monkeypatch)
