"""The clusters that the contract tests run on: the twin in memory, and a real Kafka."""

from __future__ import annotations

import ctypes
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any, Protocol

import confluent_kafka
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from wasmline.consumer import ConsumedRecord, ConsumerOptions, Output
from wasmline.consumer.backends.base import Backend
from wasmline.consumer.backends.kafka import KafkaBackend
from wasmline.consumer.backends.memory import MemoryBackend, MemoryCluster, MemoryTransactionalProducer
from wasmline.consumer.timings import DEFAULT_TIMINGS, Timings
from wasmline.kafka import producer, read_to_end
from wasmline.kafka.committed_offset_store import LibrdkafkaOffsetStore
from wasmline.kafka.consumer_group_offsets import LOADING_CODES
from wasmline.kafka.librdkafka_ctypes import Librdkafka
from wasmline.testing.kafka import RunningKafka
from wasmline.topic_partitions import CommittedOffset, TopicPartition

QUICK = {
    "heartbeat.interval.ms": "100",  # how soon a member hears of a rebalance
    "topic.metadata.refresh.interval.ms": "500",  # how soon a regular expression finds a topic
    "fetch.wait.max.ms": "50",
}

Offsets = Mapping[TopicPartition, CommittedOffset]


class Writer(Protocol):
    """A producer with a transactional id. A transaction begins with the first call."""

    def write(self, output: Output) -> object: ...

    def send_offsets(self, group: str, offsets: Offsets) -> None: ...

    def commit(self) -> None: ...

    def abort(self) -> None: ...


class Cluster(Protocol):
    """What a test may do to a cluster, as somebody outside the group."""

    def topic(self, partitions: int = 1, *, max_message_bytes: int = 1_048_588, name: str | None = None) -> str: ...

    def backend(self, options: ConsumerOptions, timings: Timings = DEFAULT_TIMINGS) -> Backend: ...

    def write(self, *outputs: Output) -> None: ...

    def read(self, topic: str) -> list[ConsumedRecord]:
        """Return the records that a read_committed reader gets."""

    def commit(self, group: str, offsets: Offsets) -> None: ...

    def committed(self, group: str, topic: str) -> dict[TopicPartition, CommittedOffset]: ...

    def writer(self, transactional_id: str) -> Writer: ...

    def cut(self, partition: TopicPartition, before: int) -> None: ...

    def truncate(self, topic: str, end: int) -> None:
        """Remove the records of a topic of one partition from an offset on, of which nothing may be committed."""

    def expelled(self, member: Backend, options: ConsumerOptions) -> AbstractContextManager[None]:
        """Throw out a member that has the one partition of its topic; it may come back after the block."""


class NoRebalanceListener:
    """A listener who only takes."""

    def assigned(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int | None]:
        return {}

    def revoked(self, partitions: Collection[TopicPartition]) -> None:
        pass

    def lost(self, partitions: Collection[TopicPartition]) -> None:
        pass

    def out_of_range(self, partition: TopicPartition, offset: int | None, end: int | None) -> None:
        pass


class Memory:
    """The twin."""

    def __init__(self, **asked: int) -> None:
        self.cluster = MemoryCluster(**asked)

    def topic(self, partitions: int = 1, *, max_message_bytes: int = 1_048_588, name: str | None = None) -> str:
        topic = name or f"test-{uuid.uuid4()}"
        self.cluster.create(topic, partitions, max_message_bytes=max_message_bytes)
        return topic

    def backend(self, options: ConsumerOptions, timings: Timings = DEFAULT_TIMINGS) -> MemoryBackend:
        return MemoryBackend(self.cluster, options, _timings=timings)

    def write(self, *outputs: Output) -> None:
        for output in outputs:
            self.cluster.write(output)

    def read(self, topic: str) -> list[ConsumedRecord]:
        return self.cluster.records(topic)

    def commit(self, group: str, offsets: Offsets) -> None:
        self.cluster.commit(group, offsets)

    def committed(self, group: str, topic: str) -> dict[TopicPartition, CommittedOffset]:
        return {each: left for each, left in self.cluster.committed(group).items() if each.topic == topic}

    def writer(self, transactional_id: str) -> MemoryTransactionalProducer:
        return MemoryTransactionalProducer(self.cluster, transactional_id)

    def cut(self, partition: TopicPartition, before: int) -> None:
        self.cluster.delete_records(partition, before)

    def truncate(self, topic: str, end: int) -> None:
        self.cluster.truncate(TopicPartition(topic, 0), end)

    @contextmanager
    def expelled(self, member: Backend, options: ConsumerOptions) -> Iterator[None]:
        assert isinstance(member, MemoryBackend)
        other = self.backend(options)
        other.source.open(NoRebalanceListener())
        member.remove_from_group()
        other.source.poll(0, 0)
        yield
        other.source.close()


class Kafka:
    """A real one."""

    def __init__(self, kafka: RunningKafka) -> None:
        self._kafka = kafka
        self._offset_store = LibrdkafkaOffsetStore()
        self._producer = producer(kafka.config, **{"linger.ms": "0"})
        self._admin = AdminClient(kafka.config.client())

    def topic(self, partitions: int = 1, *, max_message_bytes: int = 1_048_588, name: str | None = None) -> str:
        if name is None:
            return self._kafka.topic(partitions, max_message_bytes=str(max_message_bytes))
        new = confluent_kafka.admin.NewTopic(name, partitions)  # type: ignore[attr-defined]
        self._admin.create_topics([new])[name].result(15)
        return name

    def backend(self, options: ConsumerOptions, timings: Timings = DEFAULT_TIMINGS) -> KafkaBackend:
        options = replace(options, kafka={**self._kafka.config.properties, **QUICK, **options.kafka})
        return KafkaBackend(options, _timings=timings)

    def write(self, *outputs: Output) -> None:
        failed: list[Any] = []
        for output in outputs:
            _produce(self._producer, output, lambda error, _: failed.append(error) if error else None)
        assert self._producer.flush(30) == 0
        assert not failed

    def limit(self, topic: str, max_message_bytes: int) -> None:
        """Change how large a batch of records a topic takes."""
        operation, value = confluent_kafka.admin.AlterConfigOpType.SET, str(max_message_bytes)  # type: ignore[attr-defined]
        entry = confluent_kafka.admin.ConfigEntry("max.message.bytes", value, incremental_operation=operation)  # type: ignore[attr-defined]
        kind = confluent_kafka.admin.ConfigResource.Type.TOPIC  # type: ignore[attr-defined]
        resource = confluent_kafka.admin.ConfigResource(kind, topic, incremental_configs=[entry])  # type: ignore[attr-defined]
        self._admin.incremental_alter_configs([resource])[resource].result(15)

    def delete(self, topic: str) -> None:
        self._admin.delete_topics([topic])[topic].result(15)

    def write_headers(self, topic: str, headers: Sequence[tuple[bytes, bytes]]) -> None:
        """Write a record whose headers have any bytes as names, as clients in other languages do."""
        given = (_Argument * (2 + len(headers)))()
        given[0].kind, given[0].value.text = 1, topic.encode()
        given[1].kind, given[1].value.memory = 4, _Memory(b"value", len(b"value"))
        for argument, (name, value) in zip(given[2:], headers, strict=True):
            argument.kind, argument.value.header = 9, _Header(name, value, len(value))
        produce = ctypes.CDLL(confluent_kafka.cimpl.__file__).rd_kafka_produceva
        produce.restype, produce.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
        error = produce(Librdkafka().handle(self._producer), ctypes.byref(given), len(given))
        assert error is None
        assert self._producer.flush(30) == 0

    def read(self, topic: str) -> list[ConsumedRecord]:
        records = [_record(message) for message in read_to_end(self._kafka.config, topic)]
        return sorted(records, key=lambda record: (record.partition, record.offset))

    def commit(self, group: str, offsets: Offsets) -> None:
        with self._consumer(group) as consumer:
            self._offset_store.commit(consumer, offsets)

    def committed(self, group: str, topic: str) -> dict[TopicPartition, CommittedOffset]:
        partitions = self._admin.list_topics(topic, timeout=15).topics[topic].partitions
        with self._consumer(group) as consumer:
            left = self._read_committed(consumer, [TopicPartition(topic, each) for each in partitions])
        return {partition: CommittedOffset(each.offset, each.metadata) for partition, each in left.items()}

    def _read_committed(
        self, consumer: Consumer, partitions: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, CommittedOffset]:
        while True:
            try:
                return self._offset_store.committed(consumer, partitions)
            except KafkaException as error:
                if error.args[0].code() not in LOADING_CODES:
                    raise
                time.sleep(0.1)

    def writer(self, transactional_id: str) -> KafkaWriter:
        return KafkaWriter(self._kafka, transactional_id)

    def cut(self, partition: TopicPartition, before: int) -> None:
        asked = confluent_kafka.TopicPartition(*partition, before)
        for future in self._admin.delete_records([asked]).values():
            future.result(15)

    def truncate(self, topic: str, end: int) -> None:
        kept = [Output(topic, each.value, each.key, partition=0) for each in self.read(topic) if each.offset < end]
        found: list[bytes | None] | None = None
        while found != [each.value for each in kept]:  # the log that is being deleted may acknowledge a write
            self.delete(topic)
            self._admin.create_topics([confluent_kafka.admin.NewTopic(topic, 1)])[topic].result(15)  # type: ignore[attr-defined]
            self.write(*kept)
            found = [each.value for each in self.read(topic)]

    @contextmanager
    def expelled(self, member: Backend, options: ConsumerOptions) -> Iterator[None]:
        # Somebody else gets the partition once ``max.poll.interval.ms`` has passed.
        other = Consumer(
            self._kafka.config.client(
                **QUICK, **{"group.id": options.group_id, "partition.assignment.strategy": "cooperative-sticky"}
            )
        )
        other.subscribe(list(options.topics))
        while not other.assignment():
            other.poll(0.1)
        try:
            yield
        finally:
            other.close()

    @contextmanager
    def _consumer(self, group: str) -> Iterator[Consumer]:
        consumer = Consumer(self._kafka.config.client(**{"group.id": group, "enable.auto.commit": "false"}))
        try:
            yield consumer
        finally:
            consumer.close()


class _Header(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("value", ctypes.c_char_p), ("value_size", ctypes.c_ssize_t)]


class _Memory(ctypes.Structure):
    _fields_ = [("start", ctypes.c_char_p), ("size", ctypes.c_size_t)]


class _Value(ctypes.Union):
    _fields_ = [("text", ctypes.c_char_p), ("memory", _Memory), ("header", _Header), ("padding", ctypes.c_char * 64)]


class _Argument(ctypes.Structure):
    """``rd_kafka_vu_t`` of rdkafka.h."""

    _fields_ = [("kind", ctypes.c_int), ("value", _Value)]


class KafkaWriter:
    """See Writer."""

    def __init__(self, kafka: RunningKafka, transactional_id: str) -> None:
        self._kafka = kafka
        self._offset_store = LibrdkafkaOffsetStore()
        self._producer = producer(kafka.config, **{"transactional.id": transactional_id, "linger.ms": "0"})
        self._producer.list_topics(timeout=15)
        self._producer.init_transactions(30)
        self._open = False

    def write(self, output: Output) -> None:
        self._begin()
        _produce(self._producer, output, lambda error, _: None)
        self._producer.flush(15)

    def send_offsets(self, group: str, offsets: Offsets) -> None:
        self._begin()
        consumer = Consumer(self._kafka.config.client(**{"group.id": group}))
        self._offset_store.send_offsets(self._producer, consumer.consumer_group_metadata(), offsets)
        consumer.close()

    def commit(self) -> None:
        self._producer.commit_transaction(30)
        self._open = False

    def abort(self) -> None:
        self._producer.abort_transaction(30)
        self._open = False

    def _begin(self) -> None:
        if not self._open:
            self._producer.begin_transaction()
            self._open = True


def _produce(client: Producer, output: Output, delivered: Callable[[Any, Any], None]) -> None:
    client.produce(
        output.topic,
        value=output.value,
        key=output.key,
        headers=list(output.headers),
        timestamp=output.timestamp or 0,
        partition=-1 if output.partition is None else output.partition,
        on_delivery=delivered,
    )


def _record(message: Any) -> ConsumedRecord:
    return ConsumedRecord(
        message.topic(),
        message.partition(),
        message.offset(),
        message.key(),
        message.value(),
        message.headers() or (),
        message.timestamp()[1],
    )


def numbered(topic: str, count: int, *, keys: int = 0, partition: int | None = 0) -> Sequence[Output]:
    """Return outputs whose values are their numbers; with ``keys``, so many take turns."""
    return [
        Output(topic, str(number).encode(), f"key-{number % keys}".encode() if keys else None, partition=partition)
        for number in range(count)
    ]
