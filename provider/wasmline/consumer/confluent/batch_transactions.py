"""Transactions of batches: all that is written of a part of a batch, and how far its partition came, in one.

The transactional id is that of the partition's virtual shard, whoever works on it, in either mode:
an id that is a task's or an attempt's would fence nobody. The protocol: docs/protocols/exactly_once.md.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from types import TracebackType
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

from wasmline.consumer.backend import shared_id
from wasmline.consumer.confluent.sink import failure
from wasmline.consumer.confluent.stable_read import stable_read
from wasmline.consumer.confluent.transactions import FENCES, PATIENCE, WARM_UP, claim, connect, names, repeat
from wasmline.errors import BrokerUnavailable, HangingTransactionEnded, InvalidKafkaConfig, ProducerFenced
from wasmline.kafka import librdkafka
from wasmline.kafka.commit_metadata import ExactDoor
from wasmline.kafka.config import KafkaConfig
from wasmline.kafka.failures import mapped
from wasmline.kafka.producer import Record, enqueue
from wasmline.records import CommittedOffset, TopicPartition

SETTINGS = {
    "transaction.timeout.ms": "900000",  # the most that brokers allow by default: a batch has to end within it
    "retry.backoff.ms": "1",
    "retry.backoff.max.ms": "20",
    "linger.ms": "5",
    "message.max.bytes": str(32 << 20),  # the topic's own limit is the one that counts
    "queue.buffering.max.messages": "1000000",
    "queue.buffering.max.kbytes": "65536",
    "socket.nagle.disable": "true",
}

LIMIT = 120.0
"""Seconds that the end of a transaction may take: the last deliveries, the offsets, the commit."""

ABORT = 5.0
"""Seconds that are spent on ending a failed transaction, so that nobody waits for its time-out."""

ENDED = (KafkaError._STATE, KafkaError._FATAL)
"""What a producer answers once its transaction has failed, or it is fenced."""

SPARES = 8
"""Producers that a process keeps connected for the next batch; each has a few threads."""


class BatchTransactions:
    """Opens transactions for one group, one at a time; for one thread.

    It keeps what is costly to make and safe to keep: a producer that is connected and has fenced nobody, for each
    virtual shard lately worked on. ``settings`` are librdkafka's, for the producers.
    """

    def __init__(
        self,
        config: KafkaConfig,
        group: str,
        prefix: str,
        settings: Mapping[str, str],
        topics: Collection[str] = (),
    ) -> None:
        """``topics`` are those that are written to."""
        self._config = config
        self._group = group
        self._prefix = prefix
        self._settings = {**SETTINGS, **settings}
        self._topics = topics
        self._door = ExactDoor()
        self._reader: Consumer | None = None
        self._spares: dict[str, _Spare] = {}
        """By transactional id."""
        self.hangs: Counter[int] = Counter()
        """By partition: how often it was held up by transactions whose markers a broker had lost."""

    def open(self, partitions: Sequence[TopicPartition]) -> BatchTransaction:
        """Fence whoever worked on their virtual shard before, and return the transaction of their next batch.

        Leaving the transaction's context with an error throws every client away: the next attempt finds out from the
        broker how things stand.
        """
        fenced = ProducerFenced(f"another attempt works on {names(partitions)} by now; this one has written nothing")
        too_long = InvalidKafkaConfig(
            "the brokers do not allow transactions of 15 minutes: set transaction.timeout.ms in your configuration "
            "to no more than their transaction.max.timeout.ms, and to more than a batch takes",
            key="transaction.timeout.ms",
        )
        codes = {**dict.fromkeys(FENCES, fenced), KafkaError.INVALID_TRANSACTION_TIMEOUT: too_long}
        with mapped(self._config.bootstrap_servers, codes):
            name = self._id(partitions)
            reader = self._reader = self._reader or self._make_reader()
            try:
                client, progress = self._claim(name, partitions, reader)
            except HangingTransactionEnded:
                self.hangs.update(each.partition for each in partitions)
                client, progress = self._claim(name, partitions, reader)
            client.begin_transaction()
        return BatchTransaction(self, self._config, partitions, progress, client, reader, self._door)

    def ready(self, partitions: Sequence[TopicPartition]) -> None:
        """Connect a producer for the next batch of these partitions."""
        while len(self._spares) >= SPARES:
            self._spares.pop(next(iter(self._spares)))
        name = self._id(partitions)
        self._spares[name] = self._connect(name)

    def close(self) -> None:
        """Throw every client away."""
        self._spares.clear()
        if self._reader is not None:
            librdkafka.close(self._reader)
            self._reader = None

    def _id(self, partitions: Sequence[TopicPartition]) -> str:
        [name] = {shared_id(self._prefix, partition) for partition in partitions}
        return name

    def _claim(
        self, name: str, partitions: Sequence[TopicPartition], reader: Consumer
    ) -> tuple[Producer, Mapping[TopicPartition, CommittedOffset]]:
        """Fence whoever had this id before, and return its newest producer and what the group has committed."""
        spare = self._spares.pop(name, None) or self._connect(name)
        deadline = time.monotonic() + PATIENCE
        claim(spare.client, deadline, max(0.0, spare.made + WARM_UP - time.monotonic()))

        def read(timeout: float) -> Mapping[TopicPartition, CommittedOffset]:
            return repeat(partial(self._door.committed, reader, partitions), time.monotonic() + timeout)

        return spare.client, stable_read(self._config, self._group, [name], read, deadline, self._topics)

    def _connect(self, name: str) -> _Spare:
        # No delivery reports: a transaction fails with what a delivery failed with. And a callback that is under way
        # when a fence is learnt of trips over the client's own exception.
        return _Spare(connect(self._config, name, self._settings), time.monotonic())

    def _make_reader(self) -> Consumer:
        """Return a consumer that never joins the group: for its committed offsets, and as who sends them."""
        fixed = {"group.id": self._group, "enable.auto.commit": "false", "isolation.level": "read_committed"}
        return Consumer(self._config.client(**fixed))


class _Spare(NamedTuple):
    client: Producer
    made: float


class BatchTransaction:
    """The open transaction of some partitions. ``progress`` is what the group had committed before; absent: nothing.

    Methods raise ProducerFenced once another attempt has opened the partitions, OutputRefused or TopicNotFound for what
    can never be written, BrokerUnavailable or KafkaError for an outcome that may be unknown.
    """

    def __init__(
        self,
        transactions: BatchTransactions,
        config: KafkaConfig,
        partitions: Sequence[TopicPartition],
        progress: Mapping[TopicPartition, CommittedOffset],
        client: Producer,
        reader: Consumer,
        door: ExactDoor,
    ) -> None:
        self.progress = progress
        self._transactions = transactions
        self._config = config
        self._partitions = partitions
        self._client = client
        self._reader = reader
        self._door = door

    def write(self, records: Iterable[tuple[str, Record]]) -> None:
        """Hand records of topics to the producer, in order; waits while its queue is full."""
        with self._explained():
            try:
                for topic, record in records:
                    enqueue(self._client, topic, record, None)
                self._client.poll(0)
            except KafkaException as error:
                if error.args[0].code() in ENDED:
                    self._send(dict.fromkeys(self._partitions, CommittedOffset(0)), time.monotonic())  # raises why
                raise

    def commit(self, progress: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Commit what was written together with ``progress``."""
        deadline = time.monotonic() + LIMIT
        with self._explained():
            if left := self._client.flush(LIMIT):
                servers = self._config.bootstrap_servers
                text = f"{left} records of a batch of {self._name} were not taken by {servers} within {LIMIT:.0f} s"
                raise BrokerUnavailable(text, bootstrap_servers=servers)
            self._send(progress, deadline)
            repeat(self._client.commit_transaction, deadline)

    def __enter__(self) -> BatchTransaction:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._transactions.ready(self._partitions)
            return
        self._client.purge()
        with suppress(KafkaException):  # it was fenced, or nobody answers: the next attempt's fence ends it
            self._client.abort_transaction(ABORT)
        self._transactions.close()

    @property
    def _name(self) -> str:
        return names(self._partitions)

    def _send(self, progress: Mapping[TopicPartition, CommittedOffset], deadline: float) -> None:
        member = self._reader.consumer_group_metadata()
        repeat(partial(self._door.send_offsets, self._client, member, progress), deadline)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except KafkaException as exception:
            error = exception.args[0]
            if error.code() in FENCES:
                text = f"another attempt has taken {self._name} over; nothing of this one was committed"
                raise ProducerFenced(text) from exception
            raise failure(self._config, f"a topic that {self._name} is written to", error) from exception
