"""A cluster of one broker in this process, librdkafka's own: on demand, it does what a real one does at bad moments."""

from __future__ import annotations

import ctypes
import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import KafkaError, Producer, cimpl

from wasmline.kafka import KafkaConfig
from wasmline.kafka.librdkafka_ctypes import Librdkafka
from wasmline.local.process import wait_until

TOPIC = "topic"

TIMEOUT_S = 30.0
"""Seconds after which a client has not found the brokers."""

PRODUCE, FETCH, METADATA, INIT_PRODUCER_ID, ADD_PARTITIONS, END_TXN = 0, 1, 3, 22, 24, 26
"""Keys of kinds of requests."""

SILENT_MS = 600_000

LOGGED = "broker,metadata"
"""The setting ``debug`` of clients that ``shut_down_before`` listens to."""

VALUE_TOPIC, VALUE_VALUE, VALUE_FLAGS, VALUE_HEADER, COPY = 1, 4, 7, 9, 2
"""Kinds of the arguments of ``rd_kafka_producev``, and the flag that librdkafka copies the value."""

LOG = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p)


class MockCluster:
    """A cluster with a topic of one partition; ``settings`` are of its clients."""

    def __init__(self, **settings: str) -> None:
        self._library = ctypes.CDLL(cimpl.__file__)
        self._owner = Producer({"test.mock.num.brokers": "1", "log_level": "0"})
        cluster = self._library.rd_kafka_handle_mock_cluster
        cluster.restype, cluster.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
        self._cluster = ctypes.c_void_p(cluster(Librdkafka().handle(self._owner)))
        servers = self._library.rd_kafka_mock_cluster_bootstraps
        servers.restype = ctypes.c_char_p
        self.config = KafkaConfig({"bootstrap.servers": servers(self._cluster).decode(), **settings})
        self._callbacks: list[object] = []
        """Of ``logging_to``: a thread of the client may be in one after it was unset."""
        self._call("topic_create", TOPIC.encode(), 1, 1)

    def _call(self, name: str, *arguments: object) -> None:
        function = getattr(self._library, f"rd_kafka_mock_{name}")
        assert function(self._cluster, *arguments) == 0

    def ignore(self, api_key: int) -> None:
        """Let the broker not answer the next request of this kind, and stay connected."""
        errors_and_delays = (ctypes.c_int(0), ctypes.c_int(SILENT_MS))
        self._call("broker_push_request_error_rtts", 1, ctypes.c_int16(api_key), ctypes.c_size_t(1), *errors_and_delays)

    def deny(self, api_key: int) -> None:
        """Let the broker answer the next request of this kind that the cluster is denied to the client."""
        self.fail(api_key, KafkaError.CLUSTER_AUTHORIZATION_FAILED)

    def fail(self, api_key: int, *codes: int, delay_ms: int = 0) -> None:
        """Let the broker answer the next requests of this kind with these error codes, each after ``delay_ms``."""
        errors_and_delays = [ctypes.c_int(number) for code in codes for number in (code, delay_ms)]
        number = ctypes.c_size_t(len(codes))
        self._call("broker_push_request_error_rtts", 1, ctypes.c_int16(api_key), number, *errors_and_delays)

    def produce(self, value: bytes, header: bytes) -> None:
        """Write a record with a header of this name, which confluent-kafka takes as text only."""
        producer = Producer(self.config.client())
        number, size = ctypes.c_int, ctypes.c_size_t
        arguments = (
            *(number(VALUE_TOPIC), ctypes.c_char_p(TOPIC.encode())),
            *(number(VALUE_VALUE), ctypes.c_char_p(value), size(len(value))),
            *(number(VALUE_FLAGS), number(COPY)),
            *(number(VALUE_HEADER), ctypes.c_char_p(header), ctypes.c_char_p(b"x"), size(1)),
        )
        handle = ctypes.c_void_p(Librdkafka().handle(producer))
        assert self._library.rd_kafka_producev(handle, *arguments, number(0)) == 0
        assert producer.flush(TIMEOUT_S) == 0

    @contextmanager
    def logging_to(self, client: Any, log: Callable[[str], None]) -> Iterator[None]:
        """Pass the client's log lines to ``log``, on the thread of the client that writes them.

        That thread has locks of the client, and waits for the interpreter's. So no method of the client that takes
        those without releasing that one may be called meanwhile, such as ``list_topics``: both would wait for ever.
        """
        callback = LOG(lambda handle, level, facility, text: log(text.decode()))
        self._callbacks.append(callback)
        set_logger = self._library.rd_kafka_set_logger
        set_logger.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        handle = Librdkafka().handle(client)
        set_logger(handle, ctypes.cast(callback, ctypes.c_void_p))
        try:
            yield
        finally:
            set_logger(handle, None)

    def shut_down_before(self, client: Any) -> None:
        """Let the broker answer that there is none, and disconnect before the client has read that.

        Its setting ``debug`` is ``LOGGED``.
        """
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
        self.name_no_broker()
        with self.logging_to(client, hold):
            assert self._known_brokers(client) == 0
        assert is_down.is_set()

    def name_no_broker(self) -> None:
        """Let the broker answer from now on that there is none."""
        self._call("broker_remove_from_metadata", 1)
        self._call("set_controller_id", -1)

    def _known_brokers(self, client: Any) -> int:
        """Return how many brokers the cluster's answer to this client names, without the interpreter's lock."""
        answer = ctypes.POINTER(ctypes.c_int)()
        """An ``rd_kafka_metadata``, which begins with the number of brokers."""
        timeout_ms = ctypes.c_int(int(TIMEOUT_S * 1_000))
        handle = ctypes.c_void_p(Librdkafka().handle(client))
        assert self._library.rd_kafka_metadata(handle, 1, None, ctypes.byref(answer), timeout_ms) == 0
        try:
            return answer.contents.value
        finally:
            self._library.rd_kafka_metadata_destroy(answer)

    def shut_down_beside_another(self, client: Any) -> None:
        """Let the broker that leads the topic, as the client knows, accept no connection; another one answers."""
        self._call("broker_add", 2)
        self._call("partition_set_leader", TOPIC.encode(), 0, 1)
        assert len(client.list_topics(TOPIC, timeout=TIMEOUT_S).brokers) == 2
        self._call("broker_set_down", 1)

    def start_another(self) -> None:
        """Start a broker that leads the topic; the first can be asked for it again."""
        self._call("broker_set_up", 1)
        self._call("broker_add", 2)
        self.elect(2)

    def elect(self, broker: int) -> None:
        """Let a broker lead the topic."""
        self._call("set_controller_id", broker)
        self._call("partition_set_leader", TOPIC.encode(), 0, broker)

    def silence(self, broker: int) -> None:
        """Let a broker answer nothing more, and stay connected."""
        self._call("broker_set_rtt", broker, SILENT_MS)


def lent_cluster(**settings: str) -> Iterator[MockCluster]:
    """Yield a cluster to a test, then end the clients of it that only reference cycles keep.

    Left alone, they would look for the cluster as long as the process lives.
    """
    yield MockCluster(**settings)
    gc.collect()
