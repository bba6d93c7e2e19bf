"""A client whose last broker shuts down and names none, on librdkafka's own cluster in this process."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any
from weakref import ref

import confluent_kafka
import pytest

from support.mock_cluster import LOGGED, TIMEOUT_S, TOPIC, MockCluster, lent_cluster
from wasmline.kafka import KafkaConfig, producer
from wasmline.kafka.bounded_admin_client import BoundedAdminClient
from wasmline.kafka.detached_consumer import detached_consumer
from wasmline.kafka.librdkafka_ctypes import Librdkafka
from wasmline.kafka.reconnecting_clients import ReconnectingClient
from wasmline.local.process import wait_until


@pytest.fixture
def cluster() -> Iterator[MockCluster]:
    yield from lent_cluster(debug=LOGGED)


def consumer(config: KafkaConfig) -> confluent_kafka.Consumer:
    return detached_consumer(config, "group")


def admin(config: KafkaConfig) -> Any:
    return BoundedAdminClient(config, TIMEOUT_S).client


@pytest.mark.parametrize("make", [producer, consumer, admin])
def test_a_client_finds_the_brokers_again_after_the_last_one_named_none(
    cluster: MockCluster, make: Callable[[KafkaConfig], Any]
) -> None:
    client = make(cluster.config)
    cluster.shut_down_before(client)
    cluster.start_another()
    assert 2 in client.list_topics(TOPIC, timeout=TIMEOUT_S).brokers


def test_a_record_is_delivered_after_the_last_broker_named_none(cluster: MockCluster) -> None:
    client = producer(cluster.config)
    cluster.shut_down_before(client)
    cluster.start_another()
    errors: list[object] = []
    client.produce(TOPIC, b"value", on_delivery=lambda error, _: errors.append(error))
    assert client.flush(TIMEOUT_S) == 0
    assert errors == [None]


def test_a_client_that_is_closed_is_not_touched(cluster: MockCluster) -> None:
    client = consumer(cluster.config)
    assert isinstance(client, ReconnectingClient)
    client.close()
    client.check(Librdkafka())


def test_the_watch_keeps_no_client(cluster: MockCluster) -> None:
    client = ref(producer(cluster.config))
    gc.collect()
    assert wait_until(lambda: client() is None, TIMEOUT_S)


def test_a_client_that_cannot_be_checked_leaves_the_others_watched(
    cluster: MockCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken, client = producer(cluster.config), producer(cluster.config)
    monkeypatch.setattr(broken, "check", lambda _: [].pop())
    cluster.shut_down_before(client)
    cluster.start_another()
    assert 2 in client.list_topics(TOPIC, timeout=TIMEOUT_S).brokers
