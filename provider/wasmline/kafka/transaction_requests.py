"""Sends requests about transactions, and to end them, which confluent-kafka does not offer.

DescribeProducers, DescribeTransactions and ListTransactions are KIP-664; the others are those of a producer (KIP-98).
The formats: kafka.apache.org/protocol, "The Messages".
"""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from types import TracebackType
from typing import NamedTuple, TypeVar

from confluent_kafka import KafkaError as ClientError
from confluent_kafka import KafkaException

from wasmline.errors import BrokerUnavailable, InvalidKafkaConfig, KafkaError
from wasmline.kafka.broker_connection import Api, BrokerConnection
from wasmline.kafka.config import BOOTSTRAP, KafkaConfig
from wasmline.kafka.error_mapping import translate_errors
from wasmline.kafka.protocol_types import (
    NO_TAGGED_FIELDS,
    MalformedMessage,
    Reader,
    array,
    compact_array,
    compact_string,
    int8,
    int16,
    int32,
    int64,
    string,
)
from wasmline.kafka.record_batch_headers import batches
from wasmline.kafka.transaction_log import CONSUMER_OFFSETS
from wasmline.topic_partitions import TopicPartition

T = TypeVar("T")

FETCH = Api(1, 4)
METADATA = Api(3, 4)
FIND_COORDINATOR = Api(10, 1)
INIT_PRODUCER_ID = Api(22, 0)
ADD_PARTITIONS_TO_TXN = Api(24, 0)
ADD_OFFSETS_TO_TXN = Api(25, 0)
END_TXN = Api(26, 0)
DESCRIBE_PRODUCERS = Api(61, 0, is_flexible=True)
DESCRIBE_TRANSACTIONS = Api(65, 0, is_flexible=True)
LIST_TRANSACTIONS = Api(66, 0, is_flexible=True)

TRANSACTION_KEY = 1
"""FindCoordinator's type of key: a transactional id."""

TRANSACTIONAL_ID_NOT_FOUND = 105

TRANSIENT_CODES = (
    ClientError.LEADER_NOT_AVAILABLE,
    ClientError.NOT_LEADER_FOR_PARTITION,
    ClientError.COORDINATOR_LOAD_IN_PROGRESS,
    ClientError.COORDINATOR_NOT_AVAILABLE,
    ClientError.NOT_COORDINATOR,
    ClientError.CONCURRENT_TRANSACTIONS,
)
"""Error codes of a broker that was restarted, or whose last transaction has not ended yet: retry."""

FETCH_BYTES = 4 << 20
"""Maximum bytes of one Fetch."""

MAX_FETCHED_BYTES = 256 << 20
"""Maximum bytes of a partition to read through."""

RETRY_INTERVAL_S = 0.05
"""Seconds until a request is repeated."""

TRANSACTION_TIMEOUT_MS = 30_000
"""Milliseconds after which the coordinator aborts a transaction that its client left open."""

SERVER = re.compile(r"(?:\w+://)?(?:\[(?P<v6>[^\]]+)\]|(?P<name>[^:\[\]]+)):(?P<port>\d{1,5})")


class OpenTransaction(NamedTuple):
    """A transaction that is open on a partition, as reported by the partition's leader."""

    producer_id: int
    producer_epoch: int
    start_offset: int


class TransactionState(NamedTuple):
    """A transactional id's state at its coordinator; ``partitions`` are those of the running transaction."""

    state: str
    producer_id: int
    producer_epoch: int
    partitions: frozenset[TopicPartition]


class ProducerIdentity(NamedTuple):
    """The coordinator's identity of the newest producer of a transactional id."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


class TransactionRequests:
    """Connections to the brokers of one cluster, for ``timeout`` seconds in all. For one thread; close it.

    Every method raises BrokerUnavailable when the cluster is not ready by then, NotAuthorized, and KafkaError.
    """

    def __init__(self, config: KafkaConfig, timeout: float) -> None:
        self._config = config
        self._deadline = time.monotonic() + timeout
        self._connections: dict[tuple[str, int], BrokerConnection] = {}
        self._brokers: dict[int, tuple[str, int]] = {}

    def leaders(self, topics: Iterable[str]) -> dict[TopicPartition, int]:
        """Return the leader of each partition of these topics; missing topics are omitted."""
        asked = array(string(topic) for topic in sorted(set(topics))) + int8(0)

        def ask() -> dict[TopicPartition, int]:
            answer = self._bootstrap().request(METADATA, asked)
            answer.int32()
            brokers = answer.array(lambda: (answer.int32(), answer.string(), answer.int32(), answer.nullable_string()))
            self._brokers = {node: (host, port) for node, host, port, _ in brokers}
            answer.nullable_string()
            answer.int32()
            found: dict[TopicPartition, int] = {}

            def topic() -> None:
                code, name, _ = answer.int16(), answer.string(), answer.boolean()
                for error, number, leader in answer.array(lambda: _partition(answer)):
                    self._check(error)
                    found[TopicPartition(name, number)] = leader
                if code != ClientError.UNKNOWN_TOPIC_OR_PART:
                    self._check(code)

            answer.array(topic)
            answer.end()
            return found

        return self._answered(ask)

    def open_transactions(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, list[OpenTransaction]]:
        """Return the transactions that are open on these partitions, from their leaders (DescribeProducers)."""

        def ask() -> dict[TopicPartition, list[OpenTransaction]]:
            led = self.leaders({partition.topic for partition in partitions})
            by_leader: dict[int, list[TopicPartition]] = defaultdict(list)
            for partition in partitions:
                if partition in led:
                    by_leader[led[partition]].append(partition)
            found: dict[TopicPartition, list[OpenTransaction]] = {}
            for leader, its in by_leader.items():
                answer = self._to(leader).request(DESCRIBE_PRODUCERS, _flexible_topics(its) + NO_TAGGED_FIELDS)
                answer.int32()
                for topic, each in answer.compact_array(lambda: _described(answer)):  # noqa: B023 - called at once
                    for number, code, producers in each:
                        self._check(code)
                        found[TopicPartition(topic, number)] = [one for one in producers if one.start_offset >= 0]
                _finish(answer)
            return found

        return self._answered(ask) if partitions else {}

    def is_of_one_epoch(self, partition: TopicPartition, producer_id: int, start: int) -> bool:
        """Return whether all that a producer wrote to a partition from ``start`` on is known to be of one leader epoch.

        It is not known if more than MAX_FETCHED_BYTES have been written since.
        """
        epochs: set[int] = set()
        offset, fetched = start, 0

        def ask() -> tuple[int | None, int]:
            leader = self.leaders([partition.topic])[partition]
            answer = self._to(leader).request(FETCH, _fetch(partition, offset))
            answer.int32()
            data = b""
            for _, results in answer.array(lambda: (answer.string(), answer.array(lambda: _fetched(answer)))):
                for code, found in results:
                    self._check(code)
                    data += found
            answer.end()
            last = None
            for batch in batches(data):
                last = batch.last_offset
                if batch.producer_id == producer_id and last >= start:
                    epochs.add(batch.leader_epoch)
            return last, len(data)

        while True:
            last, size = self._answered(ask)
            fetched += size
            if len(epochs) > 1 or fetched > MAX_FETCHED_BYTES:
                return False
            if last is None:
                return True
            offset = last + 1

    def describe(self, transactional_id: str) -> TransactionState | None:
        """Return a transactional id's state from its coordinator; None if the coordinator does not know the id."""
        body = compact_array([compact_string(transactional_id)]) + NO_TAGGED_FIELDS

        def ask() -> TransactionState | None:
            answer = self._coordinator(transactional_id).request(DESCRIBE_TRANSACTIONS, body)
            answer.int32()
            found = answer.compact_array(lambda: _state(answer))
            _finish(answer)
            if len(found) != 1:
                raise MalformedMessage(f"{len(found)} answers to one question")
            code, state = found[0]
            if code == TRANSACTIONAL_ID_NOT_FOUND:
                return None
            self._check(code)
            return state

        return self._answered(ask)

    def owners(self, producer_ids: Collection[int]) -> dict[int, str]:
        """Return the transactional id of each of these producers that a coordinator of the cluster knows."""
        body = compact_array([]) + compact_array(map(int64, producer_ids)) + NO_TAGGED_FIELDS

        def ask() -> dict[int, str]:
            self.leaders(())
            found: dict[int, str] = {}
            for broker in self._brokers:
                answer = self._to(broker).request(LIST_TRANSACTIONS, body)
                answer.int32()
                self._check(answer.int16())
                answer.compact_array(answer.compact_string)
                found |= dict(answer.compact_array(lambda: _listed(answer)))  # noqa: B023 - called at once
                _finish(answer)
            return found

        return self._answered(ask) if producer_ids else {}

    def fence(self, transactional_id: str) -> ProducerIdentity:
        """Become the newest producer of an id: earlier ones are fenced, and their open transaction is aborted."""
        body = string(transactional_id) + int32(TRANSACTION_TIMEOUT_MS)

        def ask() -> ProducerIdentity:
            answer = self._coordinator(transactional_id).request(INIT_PRODUCER_ID, body)
            answer.int32()
            self._check(answer.int16())
            return self._whole(answer, ProducerIdentity(transactional_id, answer.int64(), answer.int16()))

        return self._answered(ask)

    def add_partitions(self, producer: ProducerIdentity, partitions: Collection[TopicPartition]) -> None:
        """Make partitions part of the producer's transaction, which this begins if none is running."""
        topics = (string(name) + array(map(int32, numbers)) for name, numbers in _by_topic(partitions).items())
        body = _header(producer) + array(topics)

        def ask() -> None:
            answer = self._coordinator(producer.transactional_id).request(ADD_PARTITIONS_TO_TXN, body)
            answer.int32()
            added = answer.array(lambda: (answer.string(), answer.array(lambda: (answer.int32(), answer.int16()))))
            answer.end()
            for _, results in added:
                for _, code in results:
                    self._check(code)

        self._answered(ask)

    def add_offsets(self, producer: ProducerIdentity, group: str) -> None:
        """Make the offsets of a group part of the producer's transaction."""
        self._answered(lambda: self._plain(producer, ADD_OFFSETS_TO_TXN, _header(producer) + string(group)))

    def end(self, producer: ProducerIdentity, *, commit: bool) -> None:
        """Commit or abort the producer's transaction: a marker is written to each of its partitions."""
        self._answered(lambda: self._plain(producer, END_TXN, _header(producer) + int8(commit)))

    def end_empty(
        self, producer: ProducerIdentity, group: str, partitions: Collection[TopicPartition], *, commit: bool
    ) -> None:
        """Commit or abort a transaction without records over these partitions, the group's offsets among them.

        Its markers close what the producer has open there.
        """
        if written := [each for each in partitions if each.topic != CONSUMER_OFFSETS]:
            self.add_partitions(producer, written)
        if len(written) < len(partitions):
            self.add_offsets(producer, group)
        self.end(producer, commit=commit)

    def close(self) -> None:
        """Close the connections."""
        while self._connections:
            self._connections.popitem()[1].close()

    def __enter__(self) -> TransactionRequests:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _plain(self, producer: ProducerIdentity, api: Api, body: bytes) -> None:
        answer = self._coordinator(producer.transactional_id).request(api, body)
        answer.int32()
        self._check(self._whole(answer, answer.int16()))

    def _coordinator(self, transactional_id: str) -> BrokerConnection:
        answer = self._bootstrap().request(FIND_COORDINATOR, string(transactional_id) + int8(TRANSACTION_KEY))
        answer.int32()
        code, text = answer.int16(), answer.nullable_string()
        self._check(code, text)
        answer.int32()
        return self._connect(self._whole(answer, (answer.string(), answer.int32())))

    def _bootstrap(self) -> BrokerConnection:
        if self._connections:
            return next(iter(self._connections.values()))
        failure: KafkaError | None = None
        for server in servers(self._config):
            try:
                return self._connect(server)
            except BrokerUnavailable as error:
                failure = error
        assert failure is not None
        raise failure

    def _to(self, broker: int) -> BrokerConnection:
        if broker not in self._brokers:  # -1: the partition has no leader for now
            raise _Passing(ClientError.LEADER_NOT_AVAILABLE)
        return self._connect(self._brokers[broker])

    def _connect(self, place: tuple[str, int]) -> BrokerConnection:
        if place not in self._connections:
            self._connections[place] = BrokerConnection(self._config, *place, self._deadline)
        return self._connections[place]

    def _answered(self, ask: Callable[[], T]) -> T:
        """Repeat a request until it is answered, or the time is over."""
        while True:
            try:
                with translate_errors(self._config.bootstrap_servers):
                    return ask()
            except MalformedMessage as error:
                text = f"{self._config.bootstrap_servers} answered with bytes that this client cannot decode: {error}"
                raise KafkaError(text) from error
            except (BrokerUnavailable, _Passing) as error:
                if time.monotonic() + RETRY_INTERVAL_S > self._deadline:
                    if isinstance(error, BrokerUnavailable):
                        raise
                    servers = self._config.bootstrap_servers
                    text = f"{servers} is not ready for transaction requests ({ClientError(error.code).str()})"
                    raise BrokerUnavailable(text, bootstrap_servers=servers) from error
            self.close()
            time.sleep(RETRY_INTERVAL_S)

    def _check(self, code: int, text: str | None = None) -> None:
        if code in TRANSIENT_CODES:
            raise _Passing(code)
        if code:
            raise KafkaException(ClientError(code, text) if text else ClientError(code))

    def _whole(self, answer: Reader, value: T) -> T:
        answer.end()
        return value


class _Passing(Exception):
    """A transient error, which a retry resolves."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def servers(config: KafkaConfig) -> list[tuple[str, int]]:
    """Return the hosts and ports of ``bootstrap.servers``. Raises InvalidKafkaConfig."""
    found = []
    for text in filter(None, map(str.strip, config.bootstrap_servers.split(","))):
        server = SERVER.fullmatch(text if re.search(r":\d+$", text) else f"{text}:9092")
        if server is None:
            raise InvalidKafkaConfig(f"{BOOTSTRAP} has {text!r}, which is not host:port", key=BOOTSTRAP)
        found.append((server["v6"] or server["name"], int(server["port"])))
    return found


def _finish(answer: Reader) -> None:
    """Read the end of an answer of a flexible version."""
    answer.tagged_fields()
    answer.end()


def _fetch(partition: TopicPartition, offset: int) -> bytes:
    """Return a request for the batches from an offset on, committed or not, without waiting."""
    wanted = array([int32(partition.partition) + int64(offset) + int32(FETCH_BYTES)])
    return int32(-1) + int32(0) + int32(0) + int32(FETCH_BYTES) + int8(0) + array([string(partition.topic) + wanted])


def _fetched(answer: Reader) -> tuple[int, bytes]:
    """Return error and batches of a partition in Fetch."""
    answer.int32()
    code = answer.int16()
    answer.int64()  # the high watermark
    answer.int64()  # the last stable offset
    if (aborted := answer.int32()) > 0:
        raise MalformedMessage(f"{aborted} aborted transactions for a reader that sees them")
    size = answer.int32()
    return code, answer.raw(size) if size > 0 else b""


def _header(producer: ProducerIdentity) -> bytes:
    return string(producer.transactional_id) + int64(producer.producer_id) + int16(producer.producer_epoch)


def _by_topic(partitions: Collection[TopicPartition]) -> Mapping[str, list[int]]:
    topics: dict[str, list[int]] = defaultdict(list)
    for topic, partition in sorted(partitions):
        topics[topic].append(partition)
    return topics


def _flexible_topics(partitions: Collection[TopicPartition]) -> bytes:
    return compact_array(
        compact_string(topic) + compact_array(map(int32, numbers)) + NO_TAGGED_FIELDS
        for topic, numbers in _by_topic(partitions).items()
    )


def _partition(answer: Reader) -> tuple[int, int, int]:
    """Return error, number and leader of a partition in Metadata."""
    code, number, leader = answer.int16(), answer.int32(), answer.int32()
    answer.array(answer.int32), answer.array(answer.int32)
    # Whether there is a leader is visible in the leader field, and a missing replica is no reason to wait.
    return (
        (0 if code in (ClientError.LEADER_NOT_AVAILABLE, ClientError.REPLICA_NOT_AVAILABLE) else code),
        number,
        leader,
    )


def _described(answer: Reader) -> tuple[str, list[tuple[int, int, list[OpenTransaction]]]]:
    def producer() -> OpenTransaction:
        producer_id, epoch = answer.int64(), answer.int32()
        answer.int32(), answer.int64(), answer.int32()  # the last sequence and timestamp, the coordinator's epoch
        start = answer.int64()
        answer.tagged_fields()
        return OpenTransaction(producer_id, epoch, start)

    def partition() -> tuple[int, int, list[OpenTransaction]]:
        number, code = answer.int32(), answer.int16()
        answer.compact_nullable_string()
        producers = answer.compact_array(producer)
        answer.tagged_fields()
        return number, code, producers

    topic = answer.compact_string()
    partitions = answer.compact_array(partition)
    answer.tagged_fields()
    return topic, partitions


def _state(answer: Reader) -> tuple[int, TransactionState]:
    code, _, state = answer.int16(), answer.compact_string(), answer.compact_string()
    answer.int32(), answer.int64()  # its time-out, and when it began
    producer_id, epoch = answer.int64(), answer.int16()
    partitions: set[TopicPartition] = set()

    def topic() -> None:
        name = answer.compact_string()
        partitions.update(TopicPartition(name, each) for each in answer.compact_array(answer.int32))
        answer.tagged_fields()

    answer.compact_array(topic)
    answer.tagged_fields()
    return code, TransactionState(state, producer_id, epoch, frozenset(partitions))


def _listed(answer: Reader) -> tuple[int, str]:
    name, producer_id, _ = answer.compact_string(), answer.int64(), answer.compact_string()
    answer.tagged_fields()
    return producer_id, name
