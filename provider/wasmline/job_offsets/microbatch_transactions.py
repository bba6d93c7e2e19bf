"""Transactions of micro-batches: the outputs of a part of a batch and its partition's progress in one transaction.

The transactional id is that of the partition's virtual shard, whichever process works on it, in either mode: an id of
a task or of an attempt would fence no other producer. The protocol: docs/protocols/exactly_once.md.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from functools import partial
from types import TracebackType
from typing import NamedTuple

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException

from wasmline.consumer.backends.kafka import OPEN_TIMEOUT_S, delivery_error, stable_read
from wasmline.errors import BrokerUnavailable, Fenced, HangingTransactionEnded, InvalidKafkaConfig, ProducerFenced
from wasmline.kafka import librdkafka_ctypes
from wasmline.kafka.committed_offset_store import LibrdkafkaOffsetStore
from wasmline.kafka.compiled_columns import compiled_columns
from wasmline.kafka.config import KafkaConfig
from wasmline.kafka.detached_consumer import detached_consumer, read_group
from wasmline.kafka.error_mapping import denied_errors, translate_errors
from wasmline.kafka.message_columns import write_outputs
from wasmline.kafka.reconnecting_clients import ReconnectingProducer
from wasmline.kafka.transactional_producer import (
    CLIENT_WARM_UP_S,
    FENCED_CODES,
    SendingOffsets,
    abort_open_transactions,
    abort_transaction,
    init_transactions,
    retry,
    transactional_producer,
)
from wasmline.topic_partitions import CommittedOffset, TopicPartition, partition_names
from wasmline.transactional_ids import shared_id

QUEUE_SETTINGS = {
    "linger.ms": "50",  # batches that are full go out before, and the end of a part sends what is left
    "queue.buffering.max.messages": "1000000",
    "queue.buffering.max.kbytes": "65536",
}
"""Settings of producers that write the outputs of a part, which may be more than a broker takes at once."""

MICROBATCH_PRODUCER_SETTINGS = {
    **QUEUE_SETTINGS,
    "transaction.timeout.ms": "900000",  # the brokers' default maximum: a batch has to end within it
    "retry.backoff.ms": "1",
    "retry.backoff.max.ms": "20",
    "message.max.bytes": str(32 << 20),  # the topic's own limit applies
    "socket.nagle.disable": "true",
}

COMMIT_TIMEOUT_S = 120.0
"""Maximum seconds of the end of a transaction: the last deliveries, the offsets, the commit."""

OFFSETS_TIMEOUT_S = 10.0
"""Maximum seconds to wait for the answer to sent offsets: as long as the client waits for a silent broker
(SOCKET_TIMEOUT_MS). If the cluster is merely slow, the cost is one attempt."""

ABORT_TIMEOUT_S = 5.0
"""Seconds to spend on aborting a failed transaction, so that readers need not wait for its time-out."""

CLIENT_ENDED_CODES = (KafkaError._STATE, KafkaError._FATAL)
"""Error codes of a producer whose transaction has failed, or that is fenced."""

MAX_SPARE_PRODUCERS = 8
"""Producers that a process keeps connected for the next batch; each has a few threads."""


class BatchTransactions:
    """Opens transactions for one group, one at a time; for one thread.

    It caches connected producers that have fenced no other yet, which are costly to create, one for each recently used
    virtual shard. ``settings`` are librdkafka's, for the producers.
    """

    def __init__(
        self,
        config: KafkaConfig,
        group: str,
        prefix: str,
        settings: Mapping[str, str],
        topics: Collection[str] = (),
        *,
        ids: Collection[str] = (),
    ) -> None:
        """``topics`` are the output topics.

        ``ids`` are those under which the caller writes the group's offsets: one transaction may have had partitions of
        several, and would hold up each if it hangs.
        """
        self._config = config
        self._group = group
        self._prefix = prefix
        self._settings = {**MICROBATCH_PRODUCER_SETTINGS, **settings}
        self._topics = topics
        self._ids = ids
        self._offset_store = LibrdkafkaOffsetStore()
        self.compiled = compiled_columns()
        """Writes outputs; None: they become messages."""
        self._reader: Consumer | None = None
        self._spares: dict[str, _Spare] = {}
        """By transactional id."""
        self.hangs: Counter[int] = Counter()
        """By partition: the number of delays by transactions whose markers a broker had lost."""

    def open(self, partitions: Sequence[TopicPartition]) -> BatchTransaction:
        """Fence the earlier producers of their virtual shard, and return the transaction of their next batch.

        Leaving the transaction's context with an error discards every client: the next attempt reads the state from the
        broker.
        """
        fenced = ProducerFenced(
            f"another attempt now works on {partition_names(partitions)}; this one has written nothing"
        )
        too_long = InvalidKafkaConfig(
            "the brokers do not allow transactions of 15 minutes: set transaction.timeout.ms in your configuration "
            "to no more than their transaction.max.timeout.ms, and to more than a batch takes",
            key="transaction.timeout.ms",
        )
        name = self._id(partitions)
        codes = {
            **dict.fromkeys(FENCED_CODES, fenced),
            KafkaError.INVALID_TRANSACTION_TIMEOUT: too_long,
            **denied_errors(self._config.bootstrap_servers, group=self._group, transactional_id=name),
        }
        with translate_errors(self._config.bootstrap_servers, codes):
            reader = self._reader = self._reader or detached_consumer(self._config, self._group)
            opened = None
            with suppress(HangingTransactionEnded):
                opened = self._fence_and_read(name, partitions, reader)
            if opened is None:  # not in an except body: background_call.py
                self.hangs.update(each.partition for each in partitions)
                opened = self._fence_and_read(name, partitions, reader)
            client, progress = opened
            client.begin_transaction()
        return BatchTransaction(self, self._config, partitions, progress, client, reader, self._offset_store)

    def ready(self, partitions: Sequence[TopicPartition]) -> None:
        """Connect a producer for the next batch of these partitions."""
        while len(self._spares) >= MAX_SPARE_PRODUCERS:
            self._spares.pop(next(iter(self._spares)))
        name = self._id(partitions)
        self._spares[name] = self._connect(name)

    def fence(self, partitions: Sequence[TopicPartition]) -> None:
        """Abort the open transaction of their virtual shard by a new producer. A newer attempt of it would be repeated.

        Takes up to ABORT_TIMEOUT_S. What fails is logged.
        """
        abort_open_transactions(self._config, [self._id(partitions)], self._settings, ABORT_TIMEOUT_S)

    def close(self) -> None:
        """Discard every client."""
        self._spares.clear()
        if self._reader is not None:
            librdkafka_ctypes.close(self._reader)
            self._reader = None

    def _id(self, partitions: Sequence[TopicPartition]) -> str:
        [name] = {shared_id(self._prefix, partition) for partition in partitions}
        return name

    def _fence_and_read(
        self, name: str, partitions: Sequence[TopicPartition], reader: Consumer
    ) -> tuple[ReconnectingProducer, Mapping[TopicPartition, CommittedOffset]]:
        """Fence the earlier producers of this id, and return the newest one and the group's committed progress."""
        spare = self._spares.pop(name, None) or self._connect(name)
        deadline = time.monotonic() + OPEN_TIMEOUT_S
        init_transactions(spare.client, deadline, max(0.0, spare.made + CLIENT_WARM_UP_S - time.monotonic()))

        def read(timeout: float) -> Mapping[TopicPartition, CommittedOffset]:
            committed = partial(self._offset_store.committed, reader, partitions)
            return retry(partial(read_group, reader, committed), time.monotonic() + timeout)

        ids = {name, *self._ids}
        return spare.client, stable_read(self._config, self._group, ids, read, deadline, self._topics)

    def _connect(self, name: str) -> _Spare:
        # No delivery reports: a transaction fails with the error of a delivery. And a callback that runs while a fence
        # is reported fails on the client's own exception.
        plugin = {} if self.compiled is None else self.compiled.producer_settings
        return _Spare(transactional_producer(self._config, name, {**self._settings, **plugin}), time.monotonic())


class _Spare(NamedTuple):
    client: ReconnectingProducer
    made: float


class BatchTransaction:
    """The open transaction of some partitions. ``progress`` is what the group had committed before; absent: no commit.

    Methods raise ProducerFenced once another attempt has opened the partitions or its time is over, OutputRefused or
    TopicNotFound for records that can never be written, BrokerUnavailable or KafkaError for an outcome that may be
    unknown.
    """

    def __init__(
        self,
        transactions: BatchTransactions,
        config: KafkaConfig,
        partitions: Sequence[TopicPartition],
        progress: Mapping[TopicPartition, CommittedOffset],
        client: ReconnectingProducer,
        reader: Consumer,
        offset_store: LibrdkafkaOffsetStore,
    ) -> None:
        self.progress = progress
        self._transactions = transactions
        self._config = config
        self._partitions = partitions
        self._client = client
        self._reader = reader
        self._offset_store = offset_store

    def write(self, outputs: pa.RecordBatch, topics: Sequence[str]) -> None:
        """Pass outputs to the producer, in order; waits while its queue is full.

        outputs: a batch of TIMED_OUTPUT_SCHEMA, whose column ``output`` is an index into ``topics``.
        """
        with self._translated():
            try:
                write_outputs(self._client, outputs, topics, self._transactions.compiled, reports=False)
            except KafkaException as error:
                if error.args[0].code() in CLIENT_ENDED_CODES:
                    deadline = time.monotonic() + OFFSETS_TIMEOUT_S
                    self._send(dict.fromkeys(self._partitions, CommittedOffset(0)), deadline)  # raises why
                raise

    def commit(self, progress: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Commit the written records together with ``progress``."""
        deadline = time.monotonic() + COMMIT_TIMEOUT_S
        with self._translated():
            if left := self._client.flush(COMMIT_TIMEOUT_S):
                servers = self._config.bootstrap_servers
                text = f"{left} records of a batch of {self._name} were not accepted by {servers} "
                text += f"within {COMMIT_TIMEOUT_S:.0f} s"
                raise BrokerUnavailable(text, bootstrap_servers=servers)
            self._send(progress, deadline)
            retry(self._client.commit_transaction, deadline)

    def __enter__(self) -> BatchTransaction:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._transactions.ready(self._partitions)
            return
        with closing(self._transactions):
            try:
                self._client.discard()
            finally:
                if not abort_transaction(self._client, ABORT_TIMEOUT_S) and not self._is_replaced(error):
                    self._transactions.fence(self._partitions)

    def _is_replaced(self, error: BaseException) -> bool:
        """Return whether a newer attempt is known, which a fence would end."""
        reason = self._client.fatal_error()
        return isinstance(error, (Fenced, ProducerFenced)) or (reason is not None and reason.code() in FENCED_CODES)

    @property
    def _name(self) -> str:
        return partition_names(self._partitions)

    def _send(self, progress: Mapping[TopicPartition, CommittedOffset], deadline: float) -> None:
        member = self._reader.consumer_group_metadata()
        timeout = min(OFFSETS_TIMEOUT_S, deadline - time.monotonic())
        SendingOffsets(self._offset_store, self._client, member, progress, timeout).wait()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except KafkaException as exception:
            error = exception.args[0]
            if error.code() in FENCED_CODES:
                text = f"another producer has taken over {self._name}, or the transaction was open for longer than "
                raise ProducerFenced(f"{text}transaction.timeout.ms; what is committed stands") from exception
            raise delivery_error(self._config, f"an output topic of {self._name}", error) from exception
