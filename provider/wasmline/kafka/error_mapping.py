"""Maps the errors of the Kafka client to ``wasmline.errors``; the only place that does."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from confluent_kafka import KafkaError, KafkaException, Message

from wasmline.errors import BrokerUnavailable, CorruptRecord, InvalidKafkaConfig, NotAuthorized, WasmlineError
from wasmline.errors import KafkaError as KafkaFailed
from wasmline.topic_partitions import TopicPartition

UNREACHABLE_CODES = (
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TRANSPORT,
    KafkaError._DESTROY_BROKER,
    KafkaError._RESOLVE,
    KafkaError._TIMED_OUT,
    KafkaError._TIMED_OUT_QUEUE,
    KafkaError._WAIT_COORD,
    KafkaError._MSG_TIMED_OUT,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
)

LEADERLESS_CODES = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.OFFSET_NOT_AVAILABLE,
)
"""Error codes of a partition that is new, or whose leader has just gone: transient."""

CHANGING_CODES = (
    *LEADERLESS_CODES,
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.BROKER_NOT_AVAILABLE,
    KafkaError.REPLICA_NOT_AVAILABLE,
    KafkaError.NOT_CONTROLLER,
    KafkaError.NETWORK_EXCEPTION,
    KafkaError.NOT_ENOUGH_REPLICAS,
    KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    KafkaError.CONCURRENT_TRANSACTIONS,
    KafkaError.UNSTABLE_OFFSET_COMMIT,
)
"""Error codes of a cluster while it replaces a broker."""

DENIED_CODES = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
)

CORRUPT_CODES = (KafkaError._BAD_MSG, KafkaError._BAD_COMPRESSION, KafkaError.INVALID_MSG)
"""Error codes of a batch that cannot be read as it was written."""

SETTING = re.compile(r"\b([a-z_]+(?:\.[a-z_]+)+)\b")
"""Finds the setting that librdkafka objects to in its message."""


def denied_errors(
    servers: str, *, topic: str = "", group: str = "", transactional_id: str = ""
) -> dict[int, WasmlineError]:
    """Return the errors of a request about these resources for the codes of missing permissions.

    A cluster denies itself to producers without Write on any topic.
    """

    def denied(kind: str, name: str) -> NotAuthorized:
        text = f"{servers} does not permit this client to use {kind} {name}: grant its user an ACL on it"
        return NotAuthorized(f"{text} (kafka-acls; docs/acls.md lists the operations)", name=name)

    errors: dict[int, WasmlineError] = {}
    if topic:
        codes = (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED)
        errors |= dict.fromkeys(codes, denied("topic", topic))
    if group:
        errors[KafkaError.GROUP_AUTHORIZATION_FAILED] = denied("group", group)
    if transactional_id:
        errors[KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED] = denied("transactional id", transactional_id)
    return errors


class ReportedError:
    """An error that a client reports in place of a record of a partition, with the methods of its messages."""

    def __init__(self, partition: TopicPartition, offset: int, error: KafkaError) -> None:
        self._partition = partition
        self._offset = offset
        self._error = error

    def error(self) -> KafkaError:
        return self._error

    def topic(self) -> str:
        return self._partition.topic

    def partition(self) -> int:
        return self._partition.partition

    def offset(self) -> int:
        return self._offset


def message_error(servers: str, message: Message | ReportedError, error: KafkaError) -> WasmlineError | KafkaException:
    """Return the exception for an error that a consumer reported in place of a record."""
    topic = message.topic() or ""
    if (denied := denied_errors(servers, topic=topic).get(error.code())) is not None:
        return denied
    if error.code() not in CORRUPT_CODES:
        return KafkaException(error)
    partition, offset = message.partition() or 0, message.offset() or 0
    text = (
        f"{topic}-{partition}: the batch at offset {offset} is corrupt ({error.str()}): make a replica that has it "
        "intact the leader, or move the progress past the batch, whose last offset kafka-dump-log shows"
    )
    return CorruptRecord(text, topic=topic, partition=partition, offset=offset)


@contextmanager
def translate_errors(bootstrap_servers: str, codes: Mapping[int, WasmlineError] | None = None) -> Iterator[None]:
    """Raise the client's exceptions as ``wasmline.errors``; ``codes`` maps particular codes to errors."""
    try:
        yield
    except KafkaException as exception:
        error = exception.args[0]
        known = (codes or {}).get(error.code())
        if known is not None:
            raise known from exception
        if error.code() in UNREACHABLE_CODES:
            message = f"no broker of {bootstrap_servers} answered ({error.str()}): is Kafka up, is the address right?"
            raise BrokerUnavailable(message, bootstrap_servers=bootstrap_servers) from exception
        if error.code() in CHANGING_CODES:
            message = f"{bootstrap_servers} has too few brokers available ({error.str()}): retry"
            raise BrokerUnavailable(message, bootstrap_servers=bootstrap_servers) from exception
        if error.code() == KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER and error.txn_requires_abort():
            # A batch came before an earlier one that a broker had answered with one of CHANGING_CODES.
            message = f"{bootstrap_servers} could not take all of a transaction at once ({error.str()}): retry"
            raise BrokerUnavailable(message, bootstrap_servers=bootstrap_servers) from exception
        if error.code() in DENIED_CODES:
            raise NotAuthorized(f"{bootstrap_servers} does not permit this: {error.str()}") from exception
        if error.code() == KafkaError.INVALID_TRANSACTION_TIMEOUT:
            message = f"{bootstrap_servers} allows no transaction of that length ({error.str()}): lower it"
            raise InvalidKafkaConfig(message, key="transaction.timeout.ms") from exception
        if error.code() == KafkaError._INVALID_ARG and (setting := SETTING.search(error.str())):
            raise InvalidKafkaConfig(f"{error.str()}: correct the Kafka configuration", key=setting[1]) from exception
        raise KafkaFailed(f"{bootstrap_servers} rejected the request: {error.str()} ({error.name()})") from exception
