"""A compacted topic of one partition as a small replicated table: read to its end, written by compare-and-set."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import NamedTuple

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

from wasmline import topic_partitions
from wasmline.errors import BrokerUnavailable, Conflict, ProducerIdExpired, RecordRejected, WasmlineError
from wasmline.kafka.bounded_admin_client import BoundedAdminClient
from wasmline.kafka.config import KafkaConfig
from wasmline.kafka.detached_consumer import detached_consumer, is_group_denial, unique_group
from wasmline.kafka.error_mapping import DENIED_CODES, denied_errors, message_error, translate_errors
from wasmline.kafka.hanging_transactions import require_readable
from wasmline.kafka.list_offsets import list_offsets
from wasmline.kafka.producer import (
    ANY_PARTITION,
    DEFAULTS,
    ENDED_PRODUCER_CODES,
    RECORD_ERROR_CODES,
    Headers,
    bounded,
    enqueue,
    fatal_errors,
    note_failure,
)
from wasmline.kafka.reconnecting_clients import ReconnectingProducer
from wasmline.kafka.transactional_producer import abort_transaction

logger = logging.getLogger(__name__)

REQUEST_TIMEOUT_S = 30.0
"""Seconds that one read or write may take before the cluster counts as unavailable."""

ABORT_TIMEOUT_S = 5.0

POLL_INTERVAL_S = 0.05

FENCED_CODES = (
    KafkaError._FENCED,
    KafkaError.PRODUCER_FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH,
    KafkaError.CONCURRENT_TRANSACTIONS,
)

FAILED_TRANSACTION_CODES = (*ENDED_PRODUCER_CODES, KafkaError._STATE)
"""Error codes of the records of a transaction that has failed, or is fenced; its commit reports the reason."""

PRODUCER_ID_EXPIRED_CODES = (KafkaError.INVALID_PRODUCER_ID_MAPPING, KafkaError.UNKNOWN_PRODUCER_ID)
"""Error codes of a coordinator for a transactional.id that has expired."""


class TopicRecord(NamedTuple):
    """A record of a topic; in a compacted one, no value deletes its key.

    Without ``partition``, the key selects it as Java's producer does; without ``timestamp``, it has the current time.
    """

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp: int | None = None
    partition: int = ANY_PARTITION


class TransactionalWriter:
    """Writes records atomically under one transactional.id; the newest writer of an id fences all earlier ones."""

    def __init__(
        self,
        config: KafkaConfig,
        topic: str,
        transactional_id: str,
        *,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """``settings``: librdkafka settings for records of other topics, such as their compression."""
        self._topic = topic
        self._id = transactional_id
        self._bootstrap = config.bootstrap_servers
        # Low back-offs: a transaction that follows another waits one back-off for the first to end (100 ms by default).
        client = config.client(
            **{
                "transactional.id": transactional_id,
                "transaction.timeout.ms": "10000",  # a writer that died blocks all reads no longer
                "retry.backoff.ms": "5",
                "retry.backoff.max.ms": "50",
                "linger.ms": "0",
                **(settings or {}),
            }
        )
        with self._fencing():
            self._producer = ReconnectingProducer(bounded({**DEFAULTS, **client}))
            self._producer.init_transactions(REQUEST_TIMEOUT_S)

    def write(
        self,
        records: Mapping[bytes, bytes | None],
        other_records: Collection[TopicRecord] = (),
        before_commit: Callable[[], Collection[TopicRecord]] | None = None,
    ) -> None:
        """Write ``records``, and ``other_records`` of other topics, in one transaction.

        ``before_commit`` is called once every in-sync replica has them, and returns further records of the transaction;
        if it raises, the transaction is aborted. After a failure this writer cannot be used any more.

        Raises Conflict when a newer writer took over the id, ProducerIdExpired when the cluster forgot this one,
        RecordRejected when a topic does not take a record, and BrokerUnavailable when the cluster did not accept them
        in time.
        """
        undelivered: list[KafkaError] = []
        topics = {self._topic, *(record.topic for record in other_records)}
        with self._fencing(topics), fatal_errors(self._producer):
            self._producer.begin_transaction()
            self._enqueue([*(TopicRecord(self._topic, *each) for each in records.items()), *other_records], undelivered)
            while (other_records or before_commit) and len(self._producer) and not undelivered:
                self._producer.flush(POLL_INTERVAL_S)  # a commit would wait for the records behind one that is rejected
            if before_commit is not None and not undelivered:
                try:
                    further = before_commit()
                    topics.update(record.topic for record in further)
                    self._enqueue(further, undelivered)
                except BaseException:
                    self._abort()
                    raise
            try:
                if undelivered and undelivered[0].code() not in FAILED_TRANSACTION_CODES:
                    raise KafkaException(undelivered[0])
                self._producer.commit_transaction(REQUEST_TIMEOUT_S)
            except KafkaException as error:
                self._producer.poll(0)
                codes = {error.args[0].code(), *(each.code() for each in undelivered)}
                if not codes.isdisjoint((*DENIED_CODES, *RECORD_ERROR_CODES)):
                    self._abort()
                if undelivered and error.args[0].code() == KafkaError._INCONSISTENT:
                    raise KafkaException(undelivered[0]) from error
                raise

    def close(self) -> None:
        """End the client; a transaction left open is aborted by the id's next writer."""
        self._producer.discard()

    def _abort(self) -> None:
        """Abort the open transaction: readers of its topics would wait for its time-out."""
        abort_transaction(self._producer, ABORT_TIMEOUT_S)  # if it is too late, the coordinator or the next writer does

    def _enqueue(self, records: Iterable[TopicRecord], undelivered: list[KafkaError]) -> None:
        """Pass records to the producer until their transaction has failed; the errors are added to ``undelivered``."""
        delivered = partial(note_failure, undelivered)
        for record in records:
            contents = (record.key, record.value, record.headers, record.timestamp)
            try:
                enqueue(self._producer, record.topic, contents, delivered, record.partition)
            except KafkaException as error:
                if error.args[0].code() not in FAILED_TRANSACTION_CODES:
                    raise
                undelivered.append(error.args[0])
                return

    @contextmanager
    def _fencing(self, topics: Collection[str] = ()) -> Iterator[None]:
        """Raise the client's exceptions as ``wasmline.errors``; ``topics``: those that are written to by the end."""
        try:
            yield
        except KafkaException:
            with translate_errors(self._bootstrap, self._errors(topics)):
                raise

    def _errors(self, topics: Collection[str]) -> dict[int, WasmlineError]:
        # A coordinator answers so where a commit meets the fence of another writer; whether it was made is not known.
        text = f"{self._bootstrap} failed in a transaction of {self._id}: try again"
        failed = BrokerUnavailable(text, bootstrap_servers=self._bootstrap)
        conflict = Conflict(f"another writer took over {self._id} in {self._topic}", name=self._id, generation=None)
        expired = ProducerIdExpired(f"{self._bootstrap} has forgotten the producer {self._id}: create another one")
        rejected = RecordRejected(f"a topic on {self._bootstrap} rejects a record")
        return {
            **denied_errors(self._bootstrap, topic=" or ".join(sorted(topics)), transactional_id=self._id),
            **dict.fromkeys(FENCED_CODES, conflict),
            **dict.fromkeys(PRODUCER_ID_EXPIRED_CODES, expired),
            **dict.fromkeys(RECORD_ERROR_CODES, rejected),
            KafkaError.UNKNOWN: failed,
        }


class CompactedTopic:
    """The latest value of each key, read_committed. Not safe to share between threads.

    A topic that is deleted and made anew is read anew, unless it is as long as before within half a second: the client
    pauses that long after an error, then asks for the next offset, and cannot tell the topics apart. With ``keep``,
    only keys for which it returns true are held in memory.
    """

    def __init__(self, config: KafkaConfig, topic: str, *, keep: Callable[[bytes], bool] | None = None) -> None:
        self._config = config
        self._topic = topic
        self._keep = keep
        self._denied = denied_errors(config.bootstrap_servers, topic=topic)
        self._view: dict[bytes, bytes] = {}
        self._end = self._last = -1
        """Everything before ``_end`` was read; ``_last`` is the offset of the last record."""
        self._clients: tuple[Consumer, BoundedAdminClient] | None = None

    def read(self) -> dict[bytes, bytes]:
        """Return the table with every write that was acknowledged before this call. A deleted key is absent.

        A transaction is acknowledged before its records can be read, and another's open one hides the records after it:
        so this reads to the last record written, and waits for open transactions before it. Raises BrokerUnavailable,
        and HangingTransaction where one will never end.
        """
        with self._translated():
            consumer, admin = self._clients or self._open()
            self._read_to(consumer, self._end_offset(admin, IsolationLevel.READ_UNCOMMITTED))
            return dict(self._view)

    def read_decided(self) -> dict[bytes, bytes] | None:
        """Return the table as ``read`` does; None if a transaction is open in the topic. It waits for none."""
        with self._translated():
            consumer, admin = self._clients or self._open()
            end = self._end_offset(admin, IsolationLevel.READ_UNCOMMITTED)
            if self._end_offset(admin, IsolationLevel.READ_COMMITTED) < end:
                return None
            self._read_to(consumer, end)
            return dict(self._view)

    def reread(self) -> dict[bytes, bytes]:
        """Return the table as ``read`` does, after reading the topic again, with the keys that ``keep`` takes now."""
        if self._clients is not None:
            with self._translated():
                self._begin(self._clients[0])
        return self.read()

    def compare_and_set(
        self,
        transactional_id: str,
        decide: Callable[[dict[bytes, bytes]], Mapping[bytes, bytes | None]],
        other_records: Callable[[], Collection[TopicRecord]] = tuple,
        before_commit: Callable[[], Collection[TopicRecord]] | None = None,
    ) -> Mapping[bytes, bytes | None]:
        """Fence every other writer of ``transactional_id``, read the table, and write the result of ``decide``.

        Returns the written records. ``decide`` may raise to change nothing. ``other_records``, called after it, returns
        records of other topics for the same transaction. ``before_commit``: see TransactionalWriter. Raises Conflict
        when another writer of the id came in between.
        """
        writer = TransactionalWriter(self._config, self._topic, transactional_id)
        try:
            written = decide(self.read())
            writer.write(written, other_records(), before_commit)
            return written
        finally:
            writer.close()

    def close(self) -> None:
        """Close the client; a later read opens another."""
        if self._clients is not None:
            self._clients[0].close()
            self._clients = None

    def _translated(self) -> AbstractContextManager[None]:
        return translate_errors(self._config.bootstrap_servers, self._denied)

    def _open(self) -> tuple[Consumer, BoundedAdminClient]:
        consumer = detached_consumer(
            self._config,
            unique_group("table"),
            {"enable.partition.eof": "true", "auto.offset.reset": "earliest", "fetch.wait.max.ms": "50"},
        )
        admin = BoundedAdminClient(self._config, REQUEST_TIMEOUT_S)
        admin.brokers(self._topic)  # a client that has not found its brokers may block its caller for seconds
        consumer.list_topics(self._topic, timeout=REQUEST_TIMEOUT_S)
        self._begin(consumer)
        self._clients = consumer, admin
        return self._clients

    def _begin(self, consumer: Consumer) -> None:
        """Read the topic from its start, into an empty table."""
        self._view, self._end, self._last = {}, -1, -1
        consumer.assign([TopicPartition(self._topic, 0, 0)])

    def _end_offset(self, admin: BoundedAdminClient, isolation: IsolationLevel) -> int:
        latest = {TopicPartition(self._topic, 0): OffsetSpec.latest()}  # type: ignore[no-untyped-call]
        return list_offsets(admin, latest, isolation, self._denied)[0]

    def _read_to(self, consumer: Consumer, end: int) -> None:
        if end < self._end:  # the topic was deleted and recreated
            self.close()
            consumer, _ = self._open()
        self._follow(consumer, end)

    def _follow(self, consumer: Consumer, end: int) -> None:
        """Consume up to ``end``, as the end-of-partition event reports it: markers take offsets but are not records."""
        deadline = time.monotonic() + REQUEST_TIMEOUT_S
        while self._end < end:
            if time.monotonic() > deadline:
                require_readable(self._config, topic_partitions.TopicPartition(self._topic, 0))
                servers = self._config.bootstrap_servers
                text = f"{self._topic} on {servers} could not be read to offset {end} within {REQUEST_TIMEOUT_S:.0f} s"
                raise BrokerUnavailable(text, bootstrap_servers=servers)
            for message in consumer.consume(500, timeout=POLL_INTERVAL_S):
                if message.error() is None and (message.offset() or 0) <= self._last:
                    self._begin(consumer)  # the topic was deleted and recreated, and already has more records
                    break
                self._apply(message)

    def _apply(self, message: Message) -> None:
        if is_group_denial(message):
            return
        error, key, value = message.error(), message.key(), message.value()
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            raise message_error(self._config.bootstrap_servers, message, error)
        if error is not None:
            self._end = message.offset() or 0
            return
        self._last = message.offset() or 0
        if key is None:
            logger.warning("%s holds a record without a key at offset %s", self._topic, message.offset())
        elif self._keep is not None and not self._keep(key):
            return
        elif value is None:
            self._view.pop(key, None)
        else:
            self._view[key] = value
