"""Stores committed offsets with their metadata, byte for byte, which confluent-kafka's own methods cannot do.

confluent-kafka 2.16.1 sends metadata with the terminator of its C string and reads it past its end, so an offset map
neither reaches the Java library whole nor comes back from it. ``LibrdkafkaOffsetStore`` calls the librdkafka which that
package has loaded; ``OffsetsOnlyStore`` stores offsets and drops metadata. docs/decisions/0005 has the reasons, and the
condition for removing this module. Not librdkafka's own offset store (``enable.auto.offset.store``), which keeps the
offsets of one client in memory until it commits them.
"""

from __future__ import annotations

import logging
import secrets
import socket
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

from wasmline.errors import (
    BrokerUnavailable,
    ClientClosed,
    ClientUntested,
    InexactMetadata,
    NotAuthorized,
    ReleaseMismatch,
    TopicNotFound,
)
from wasmline.errors import KafkaError as KafkaFailed
from wasmline.kafka.bounded_admin_client import COORDINATOR_REQUEST_TIMEOUT_S, BoundedAdminClient
from wasmline.kafka.config import KafkaConfig
from wasmline.kafka.detached_consumer import detached_consumer, read_group
from wasmline.kafka.error_mapping import denied_errors, translate_errors
from wasmline.kafka.librdkafka_ctypes import CLIENT, KNOWN_CLIENTS, NO_CALLBACK, Entry, Librdkafka, entries_of
from wasmline.topic_partitions import CommittedOffset, TopicPartition

logger = logging.getLogger(__name__)

REQUEST_TIMEOUT_S = 15.0
"""Maximum seconds of one request."""

ISSUE_URL = "https://github.com/confluentinc/confluent-kafka-python/issues"

SELF_TEST_LENGTH = 24
"""A length at which the client's own methods never returned metadata unchanged."""

SELF_TEST_ATTEMPTS = 2
"""Attempts in all. Another follows where the commit is gone: it expires while a process stands still for longer than
the retention."""


class CommittedOffsetStore(Protocol):
    """Reads and writes a group's committed offsets.

    Errors are the client's KafkaException, with librdkafka's code and flags ``retriable``, ``txn_requires_abort`` and
    ``fatal``; ``wasmline.kafka.error_mapping.translate_errors`` translates them. A closed client raises ClientClosed.
    Times are in seconds. Several threads may call at once; ``wasmline.kafka.librdkafka_ctypes.close`` closes a client
    in use.
    """

    keeps_metadata: bool
    """Whether metadata is stored exactly. If not it is neither written nor read, and without a map exactly-once cannot
    be guaranteed for records done out of order."""

    def committed(
        self, consumer: Consumer, partitions: Iterable[TopicPartition], timeout: float = REQUEST_TIMEOUT_S
    ) -> dict[TopicPartition, CommittedOffset]:
        """Return the committed offsets of the consumer's group; partitions without a commit are absent.

        Under ``isolation.level=read_committed`` this waits for the transactions that hold offsets of the group, and
        raises _TIMED_OUT rather than return the earlier offsets. One NUL at the end of metadata is dropped: clients
        with the defect wrote it.
        """
        ...

    def commit(
        self, consumer: Consumer, offsets: Mapping[TopicPartition, CommittedOffset], timeout: float = REQUEST_TIMEOUT_S
    ) -> None:
        """Commit for the consumer's group, as its member or as a non-member, and return when the broker has it.

        When a partition is rejected, the others may be committed. After _TIMED_OUT the commit may still be carried out,
        and closing the consumer waits for that for up to ``session.timeout.ms``.
        """
        ...

    def send_offsets(
        self,
        producer: Producer,
        group_metadata: Any,
        offsets: Mapping[TopicPartition, CommittedOffset],
        timeout: float = REQUEST_TIMEOUT_S,
    ) -> None:
        """Make offsets part of the producer's open transaction.

        ``group_metadata`` is the result of ``Consumer.consumer_group_metadata()``. A broker that is connected and does
        not answer is awaited for the producer's ``socket.timeout.ms`` (SOCKET_TIMEOUT_MS, by default), however short
        ``timeout`` is.
        """
        ...


def select_offset_store(
    config: KafkaConfig, group: str, partition: TopicPartition, *, timeout: float = REQUEST_TIMEOUT_S
) -> CommittedOffsetStore:
    """Return the exact store once the self-test passed on this cluster, else the one of offsets only, with a warning.

    Where the cluster does not permit the scratch group of the self-test, the client's release decides: only one of
    KNOWN_CLIENTS gets the exact store. ``partition`` is one that the group will read. Raises BrokerUnavailable when no
    broker answers, TopicNotFound for a missing partition and ClientUntested if the client's release cannot be tried
    now: these are no evidence about the client.
    """
    try:
        offset_store = LibrdkafkaOffsetStore()
        self_test(offset_store, config, group, partition, timeout=timeout)
    except (BrokerUnavailable, ClientUntested, TopicNotFound):
        raise
    except NotAuthorized as error:
        if CLIENT in KNOWN_CLIENTS:
            logger.info("exact commit metadata is not tested on this cluster: %s", error)
            return offset_store
        problem = f"confluent-kafka {CLIENT} is untested, and this cluster permits no test: {error}"
    except KafkaFailed as error:
        problem = str(error)
    else:
        return offset_store
    logger.warning(
        "offsets of group %s are committed without metadata, because: %s. Records done out of order run again after a "
        "restart, and maps of other clients are not read. If there is nothing to correct, report it at %s",
        group,
        problem,
        ISSUE_URL,
    )
    return OffsetsOnlyStore()


def require_tested_client(tested: str) -> None:
    """Raise ReleaseMismatch where this process has another client than the ``tested`` one, and not a known release.

    A store that is selected in one process is used in others, which run no self-test. "": nothing was tested.
    """
    if tested and CLIENT not in (tested, *KNOWN_CLIENTS):
        text = f"the driver has tested confluent-kafka {tested}, and {socket.gethostname()} has {CLIENT}: "
        raise ReleaseMismatch(
            f"{text}install one release on all, and start the job again", driver=tested, executor=CLIENT
        )


def self_test(
    offset_store: CommittedOffsetStore,
    config: KafkaConfig,
    group: str,
    partition: TopicPartition,
    *,
    timeout: float = REQUEST_TIMEOUT_S,
) -> None:
    """Commit metadata to a scratch group and read it back; raise InexactMetadata when it is not the same.

    Raises TopicNotFound, BrokerUnavailable or KafkaError if that is not possible. The group's name is new and begins
    with ``<group>.self-test.``, so that permissions by prefix cover it; it is deleted afterwards where that is
    permitted, and else expires. No record is read, and ``group`` is not touched.
    """
    where = f"{partition} on {config.bootstrap_servers}"
    missing = TopicNotFound(f"there is no {where}", topic=partition.topic)
    denied = denied_errors(config.bootstrap_servers, topic=partition.topic, group=f"{group}.self-test.")
    with translate_errors(config.bootstrap_servers, {KafkaError.UNKNOWN_TOPIC_OR_PART: missing, **denied}):
        for _ in range(SELF_TEST_ATTEMPTS):
            written = CommittedOffset(0, secrets.token_hex(SELF_TEST_LENGTH // 2))
            read = _round_trip(
                offset_store, config, f"{group}.self-test.{uuid.uuid4().hex}", partition, written, timeout
            )
            if read is not None:
                break
    if read != written:
        raise InexactMetadata(f"{written} was committed to {where}, and {read} came back")


def _round_trip(
    offset_store: CommittedOffsetStore,
    config: KafkaConfig,
    group: str,
    partition: TopicPartition,
    written: CommittedOffset,
    timeout: float,
) -> CommittedOffset | None:
    """Commit an offset to a new group, read it back, and delete the group. None if the offset is gone: it expired."""
    consumer = detached_consumer(config, group)
    try:
        # A read ends in time without an answer; a running commit would delay the close.
        read_group(consumer, partial(offset_store.committed, consumer, [partition]), timeout)
        offset_store.commit(consumer, {partition: written}, timeout)
        read = offset_store.committed(consumer, [partition], timeout).get(partition)
    finally:
        consumer.close()
    _delete_group(config, group, timeout)
    return read


def _delete_group(config: KafkaConfig, group: str, timeout: float) -> None:
    admin = BoundedAdminClient(config, timeout)
    try:
        admin.result(
            admin.client.delete_consumer_groups([group], request_timeout=COORDINATOR_REQUEST_TIMEOUT_S)[group],
            limit=timeout,
        )
    except KafkaFailed as error:
        logger.debug("group %s is left to expire: %s", group, error)


class LibrdkafkaOffsetStore:
    """Calls librdkafka directly.

    The constructor raises InexactMetadata where that is not known to be safe, ClientUntested where it cannot be tried.
    """

    keeps_metadata = True

    def __init__(self) -> None:
        self._library = Librdkafka()

    def committed(
        self, consumer: Consumer, partitions: Iterable[TopicPartition], timeout: float = REQUEST_TIMEOUT_S
    ) -> dict[TopicPartition, CommittedOffset]:
        asked = [Entry(*partition) for partition in dict.fromkeys(partitions)]
        with self._library.lent(consumer) as handle, self._library.partitions(asked) as made:
            if not asked:
                return {}
            code = self._library["committed"](handle, made, _milliseconds(timeout))
            if code == KafkaError._TIMED_OUT:
                message = f"no committed offsets within {timeout:g} s: no broker answered, or a transaction holds them"
                raise KafkaException(KafkaError(code, message))
            if code:
                raise KafkaException(KafkaError(code))
            answers = entries_of(made)
        _raise_first(answers)
        return {
            TopicPartition(each.topic, each.partition): CommittedOffset(each.offset, _text(each.metadata))
            for each in answers
            if each.offset >= 0
        }

    def commit(
        self, consumer: Consumer, offsets: Mapping[TopicPartition, CommittedOffset], timeout: float = REQUEST_TIMEOUT_S
    ) -> None:
        with self._library.lent(consumer, is_last=True) as handle:
            if offsets:
                self._commit(handle, offsets, timeout)

    def _commit(self, handle: int, offsets: Mapping[TopicPartition, CommittedOffset], timeout: float) -> None:
        # rd_kafka_commit waits without limit; a late answer is dropped with this queue.
        queue = self._library["queue_new"](handle)
        try:
            with self._library.partitions(_entries(offsets)) as made:
                if code := self._library["commit_queue"](handle, made, queue, NO_CALLBACK, None):
                    raise KafkaException(KafkaError(code))
            event = self._library["queue_poll"](queue, _milliseconds(timeout))
            if not event:
                message = f"the commit was not answered within {timeout:g} s and may still be carried out"
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT, message))
            code = self._library["event_error"](event)
            answers = entries_of(self._library["event_topic_partition_list"](event))
            self._library["event_destroy"](event)
        finally:
            self._library["queue_destroy"](queue)
        _raise_first(answers)
        if code:
            raise KafkaException(KafkaError(code))

    def send_offsets(
        self,
        producer: Producer,
        group_metadata: Any,
        offsets: Mapping[TopicPartition, CommittedOffset],
        timeout: float = REQUEST_TIMEOUT_S,
    ) -> None:
        with self._library.lent(producer) as handle:
            if offsets:
                self._send(handle, group_metadata, offsets, timeout)

    def _send(
        self, handle: int, group_metadata: Any, offsets: Mapping[TopicPartition, CommittedOffset], timeout: float
    ) -> None:
        with self._library.group(group_metadata) as group, self._library.partitions(_entries(offsets)) as made:
            error = self._library["send_offsets_to_transaction"](handle, made, group, _milliseconds(timeout))
            self._library.check(error)


class OffsetsOnlyStore:
    """Uses the client's own methods, with offsets only.

    They give ``commit`` no time limit: the client fails after ``session.timeout.ms`` without a coordinator.
    """

    keeps_metadata = False

    def committed(
        self, consumer: Consumer, partitions: Iterable[TopicPartition], timeout: float = REQUEST_TIMEOUT_S
    ) -> dict[TopicPartition, CommittedOffset]:
        asked = [confluent_kafka.TopicPartition(*partition) for partition in partitions]
        if not asked:
            return {}
        with _open_client():
            answers = _answers(consumer.committed(asked, timeout=timeout))
        _raise_first(answers)
        return {
            TopicPartition(each.topic, each.partition): CommittedOffset(each.offset)
            for each in answers
            if each.offset >= 0
        }

    def commit(
        self, consumer: Consumer, offsets: Mapping[TopicPartition, CommittedOffset], timeout: float = REQUEST_TIMEOUT_S
    ) -> None:
        if offsets:
            with _open_client():
                answers = consumer.commit(offsets=_without_metadata(offsets), asynchronous=False)
            _raise_first(_answers(answers))

    def send_offsets(
        self,
        producer: Producer,
        group_metadata: Any,
        offsets: Mapping[TopicPartition, CommittedOffset],
        timeout: float = REQUEST_TIMEOUT_S,
    ) -> None:
        if offsets:
            with _open_client():
                producer.send_offsets_to_transaction(_without_metadata(offsets), group_metadata, timeout)


@contextmanager
def _open_client() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:  # raised by a closed client
        raise ClientClosed(f"{error}: commit before the client is closed") from error


def _without_metadata(offsets: Mapping[TopicPartition, CommittedOffset]) -> list[confluent_kafka.TopicPartition]:
    return [confluent_kafka.TopicPartition(*partition, each.offset) for partition, each in offsets.items()]


def _answers(partitions: Iterable[confluent_kafka.TopicPartition] | None) -> list[Entry]:
    errors = ((each, 0 if each.error is None else each.error.code()) for each in partitions or ())
    return [Entry(each.topic, each.partition, each.offset, error=error) for each, error in errors]


def _entries(offsets: Mapping[TopicPartition, CommittedOffset]) -> list[Entry]:
    return [Entry(*partition, each.offset, each.metadata.encode()) for partition, each in offsets.items()]


def _raise_first(answers: Iterable[Entry]) -> None:
    for each in answers:
        if each.error:
            raise KafkaException(
                KafkaError(each.error, f"{each.topic} [{each.partition}]: {KafkaError(each.error).str()}")
            )


def _text(metadata: bytes) -> str:
    """Return metadata as text. Brokers store it as UTF-8; other bytes of a foreign broker are no reason to stop."""
    return metadata.removesuffix(b"\0").decode(errors="replace")


def _milliseconds(timeout: float) -> int:
    return max(int(timeout * 1000), 0)
