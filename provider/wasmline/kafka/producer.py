"""Producers with the settings that the engine relies on, and the one loop that writes many records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property, partial
from types import TracebackType
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from wasmline.errors import BrokerUnavailable, TopicNotFound, WasmlineError
from wasmline.kafka.config import SOCKET_TIMEOUT_MS, KafkaConfig
from wasmline.kafka.error_mapping import denied_errors, translate_errors
from wasmline.kafka.reconnecting_clients import ReconnectingProducer

Headers = Sequence[tuple[str, bytes | None]]
Record = tuple[bytes | None, bytes | None, Headers | None, int | None]
"""Key, value, headers, and the time in Unix milliseconds (None: now)."""

DEFAULTS = {
    "acks": "all",
    "enable.idempotence": "true",
    # Java's default, so that a key has one partition for every producer; librdkafka's own default hashes with CRC-32.
    "partitioner": "murmur2_random",
    # A transaction that follows another waits one back-off for the first to end: 100 ms by default.
    "retry.backoff.ms": "5",
    "retry.backoff.max.ms": "100",
    "delivery.timeout.ms": "60000",
    "socket.timeout.ms": SOCKET_TIMEOUT_MS,
    "message.max.bytes": str(32 << 20),  # the topic's own limit applies
}

TRANSACTION_TIMEOUT_MS = 60_000
"""librdkafka's own ``transaction.timeout.ms``."""

TIMEOUT_SETTINGS = ("delivery.timeout.ms", "message.timeout.ms", "socket.timeout.ms")
"""Time limits that may not exceed that of a transaction; the first two are one setting."""
BACK_PRESSURE_WAIT_S = 0.05

ANY_PARTITION = -1
"""The partition is selected by the key."""

BATCH_ERROR_CODES = (KafkaError.INVALID_TIMESTAMP, KafkaError.INVALID_RECORD, KafkaError._INVALID_DIFFERENT_RECORD)
"""Error codes of all records of a batch that one of them may have caused."""

RECORD_ERROR_CODES = (
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.INVALID_MSG,
    KafkaError.INVALID_MSG_SIZE,
    *BATCH_ERROR_CODES,
)
"""Error codes of one record that a retry does not resolve."""

ENDED_PRODUCER_CODES = (KafkaError._FATAL, KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)
"""Error codes of the calls and records of a producer that a fatal error has ended."""

FLUSH_TIMEOUT_S = 90.0
"""Seconds to wait for the last acknowledgements: more than ``delivery.timeout.ms``, so all results are known."""


def producer(config: KafkaConfig, **overrides: Any) -> ReconnectingProducer:
    """Return a producer that waits for every in-sync replica, writes nothing twice, and partitions as Java does.

    ``overrides`` are librdkafka settings and win over all others. Create it after a fork, never before one.
    """
    with translate_errors(config.bootstrap_servers):
        return ReconnectingProducer(bounded({**DEFAULTS, **config.client(**overrides)}))


def bounded(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return a producer's settings with its time limits lowered to that of its transactions, if it has any.

    librdkafka rejects others, so a configuration for all clients would otherwise allow no transactional producer.
    """
    if "transactional.id" not in settings:
        return dict(settings)
    most = int(settings.get("transaction.timeout.ms", TRANSACTION_TIMEOUT_MS))
    return {name: str(min(int(value), most)) if name in TIMEOUT_SETTINGS else value for name, value in settings.items()}


def enqueue(
    client: Producer,
    topic: str,
    record: Record,
    on_delivery: Callable[[KafkaError | None, Message], None] | None,
    partition: int = ANY_PARTITION,
) -> None:
    """Pass a record to ``client``; while its queue is full, serve delivery reports. Raises KafkaException.

    ``on_delivery`` None: the client's own.
    """
    while not try_enqueue(client, topic, record, on_delivery, partition):
        client.poll(BACK_PRESSURE_WAIT_S)


def try_enqueue(
    client: Producer,
    topic: str,
    record: Record,
    on_delivery: Callable[[KafkaError | None, Message], None] | None,
    partition: int = ANY_PARTITION,
) -> bool:
    """Pass a record to ``client``; return whether its queue had capacity. Raises as ``enqueue`` does."""
    key, value, headers, timestamp = record
    try:
        client.produce(
            topic,
            value=value,
            key=key,
            headers=list(headers or ()),
            timestamp=timestamp or 0,
            partition=partition,
            on_delivery=on_delivery,
        )
    except BufferError:
        return False
    return True


def note_failure(failed: list[KafkaError], error: KafkaError | None, _: Message) -> None:
    """Add the error of a record that was not delivered to ``failed``: a delivery callback, by ``partial``."""
    if error is not None:
        failed.append(error)


@contextmanager
def fatal_errors(client: ReconnectingProducer) -> Iterator[None]:
    """Raise the error that has ended ``client``, if one has, in place of those that calls and records fail with then.

    Other errors pass: ``client`` may have ended after them, as where the abort that follows an error fails.
    """
    try:
        yield
    except KafkaException as error:
        reason = reason_of(client, error.args[0])
        if reason is error.args[0]:
            raise
        raise KafkaException(reason) from error


def reason_of(client: ReconnectingProducer, error: KafkaError) -> KafkaError:
    """Return the error that has ended ``client``, if one has and ``error`` follows from it, else ``error``."""
    return (client.fatal_error() if error.code() in ENDED_PRODUCER_CODES else None) or error


def unusable_topic_errors(topic: str, servers: str) -> dict[int, WasmlineError]:
    """Return the errors of a writer for the codes of a topic that does not exist, or that it is denied."""
    missing = TopicNotFound(f"there is no topic {topic} on {servers}: create it first", topic=topic)
    codes = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC)
    return {**dict.fromkeys(codes, missing), **denied_errors(servers, topic=topic)}


class RecordWriter:
    """Writes records durably, many times over one connection, which is opened at the first write; for one thread.

    A new idempotent producer waits half a second for its identity, so frequent writers reuse one of these. A fatal
    error, such as that of a client which may write to no topic, ends its producer, and the next write opens another.
    """

    def __init__(self, config: KafkaConfig) -> None:
        self._config = config
        self._servers = config.bootstrap_servers

    @cached_property
    def _producer(self) -> ReconnectingProducer:
        return producer(self._config)

    def write(self, topic: str, records: Iterable[Record]) -> int:
        """Write ``records`` in order and return how many, once every in-sync replica has them.

        Raises TopicNotFound, BrokerUnavailable, or KafkaError as soon as a delivery is known to have failed; records
        acknowledged by then stay written.
        """
        failed: list[KafkaError] = []  # of these records: an earlier call may have been interrupted
        count = 0
        with translate_errors(self._servers, unusable_topic_errors(topic, self._servers)), self._discarding():
            for record in records:
                enqueue(self._producer, topic, record, partial(note_failure, failed))
                self._producer.poll(0)
                count += 1
                if failed:
                    break
            left = self._producer.flush(FLUSH_TIMEOUT_S)
            if failed:
                raise KafkaException(failed[0])
        if left:
            message = f"{left} of {count} records for {topic} were not acknowledged within {FLUSH_TIMEOUT_S:.0f} s"
            raise BrokerUnavailable(message, bootstrap_servers=self._servers)
        return count

    def close(self) -> None:
        """Drop records that are not written yet, which exist only if ``write`` was interrupted; a write reopens it."""
        client: ReconnectingProducer | None = vars(self).pop("_producer", None)
        if client is not None:
            client.discard()
            with suppress(KafkaException):  # the error that has ended it, which ``write`` has raised
                client.close()

    def __enter__(self) -> RecordWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @contextmanager
    def _discarding(self) -> Iterator[None]:
        """Close a producer that a fatal error has ended: the frames of that error keep it until they are collected."""
        try:
            with fatal_errors(self._producer):
                yield
        except KafkaException as error:
            if error.args[0].fatal() or error.args[0].code() in ENDED_PRODUCER_CODES:
                self.close()
            raise


def produce_all(config: KafkaConfig, topic: str, records: Iterable[Record]) -> int:
    """Write ``records`` over a connection of their own, as ``RecordWriter.write`` does."""
    with RecordWriter(config) as writer:
        return writer.write(topic, records)
