"""A client whose last broker shuts down and names none, on librdkafka's own cluster in this process."""

from __future__ import annotations

import ctypes
import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from weakref import ref

import confluent_kafka
import pytest
from confluent_kafka import Producer, cimpl

from wasmline.kafka import KafkaConfig, producer
from wasmline.kafka.bounded_admin_client import BoundedAdminClient
from wasmline.kafka.detached_consumer import detached_consumer
from wasmline.kafka.librdkafka_ctypes import Librdkafka
from wasmline.kafka.reconnecting_clients import ReconnectingClient
from wasmline.local.process import wait_until

TOPIC = "topic"

TIMEOUT_S = 30.0
"""Seconds after which a client has not found the brokers."""

LOG = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p)


class Cluster:
    """A cluster of one broker, whose answers may stop to name it."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(cimpl.__file__)
        self._owner = Producer({"test.mock.num.brokers": "1", "log_level": "0"})
        cluster = self._library.rd_kafka_handle_mock_cluster
        cluster.restype, cluster.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
        self._cluster = ctypes.c_void_p(cluster(Librdkafka().handle(self._owner)))
        servers = self._library.rd_kafka_mock_cluster_bootstraps
        servers.restype = ctypes.c_char_p
        self.config = KafkaConfig({"bootstrap.servers": servers(self._cluster).decode(), "debug": "broker,metadata"})
        self._call("topic_create", TOPIC.encode(), 1, 1)

    def _call(self, name: str, *arguments: object) -> None:
        function = getattr(self._library, f"rd_kafka_mock_{name}")
        assert function(self._cluster, *arguments) == 0

    @contextmanager
    def logging_to(self, client: Any, log: Callable[[str], None]) -> Iterator[None]:
        """Pass the client's log lines to ``log``, on the thread of the client that writes them."""
        callback = LOG(lambda handle, level, facility, text: log(text.decode()))
        set_logger = self._library.rd_kafka_set_logger
        set_logger.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        handle = Librdkafka().handle(client)
        set_logger(handle, ctypes.cast(callback, ctypes.c_void_p))
        try:
            yield
        finally:
            set_logger(handle, None)

    def shut_down_before(self, client: Any) -> None:
        """Let the broker answer that there is none, and disconnect before the client has read that."""
        is_down, is_held = threading.Event(), threading.Event()

        def hold(text: str) -> None:
            if "/1: Broker changed state UP -> DOWN" in text:
                is_down.set()
            elif "===== Received metadata" in text and not is_held.is_set():
                is_held.set()
                self._call("broker_set_down", 1)
                is_down.wait(TIMEOUT_S)

        assert client.list_topics(TOPIC, timeout=TIMEOUT_S).brokers
        assert wait_until(lambda: client.list_topics(TOPIC, timeout=TIMEOUT_S).orig_broker_id == 1, TIMEOUT_S)
        self._call("broker_remove_from_metadata", 1)
        self._call("set_controller_id", -1)
        with self.logging_to(client, hold):
            assert not client.list_topics(TOPIC, timeout=TIMEOUT_S).brokers
        assert is_down.is_set()

    def start_another(self) -> None:
        """Start a broker that leads the topic; the first can be asked for it again."""
        self._call("broker_set_up", 1)
        self._call("broker_add", 2)
        self._call("set_controller_id", 2)
        self._call("partition_set_leader", TOPIC.encode(), 0, 2)


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def consumer(config: KafkaConfig) -> confluent_kafka.Consumer:
    return detached_consumer(config, "group")


def admin(config: KafkaConfig) -> Any:
    return BoundedAdminClient(config, TIMEOUT_S).client


@pytest.mark.parametrize("make", [producer, consumer, admin])
def test_a_client_finds_the_brokers_again_after_the_last_one_named_none(
    cluster: Cluster, make: Callable[[KafkaConfig], Any]
) -> None:
    client = make(cluster.config)
    cluster.shut_down_before(client)
    cluster.start_another()
    assert 2 in client.list_topics(TOPIC, timeout=TIMEOUT_S).brokers


def test_a_record_is_delivered_after_the_last_broker_named_none(cluster: Cluster) -> None:
    client = producer(cluster.config)
    cluster.shut_down_before(client)
    cluster.start_another()
    errors: list[object] = []
    client.produce(TOPIC, b"value", on_delivery=lambda error, _: errors.append(error))
    assert client.flush(TIMEOUT_S) == 0
    assert errors == [None]


def test_a_client_that_is_closed_is_not_touched(cluster: Cluster) -> None:
    client = consumer(cluster.config)
    assert isinstance(client, ReconnectingClient)
    client.close()
    client.check(Librdkafka())


def test_the_watch_keeps_no_client(cluster: Cluster) -> None:
    client = ref(producer(cluster.config))
    gc.collect()
    assert wait_until(lambda: client() is None, TIMEOUT_S)
