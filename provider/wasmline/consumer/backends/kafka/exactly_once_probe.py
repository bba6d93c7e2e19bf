"""Tests that a cluster supports exactly-once: reads of offsets wait for open transactions."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from functools import partial

from confluent_kafka import KafkaError, KafkaException

from wasmline.consumer.backends.kafka.lazy_offset_store import LazyOffsetStore
from wasmline.consumer.backends.kafka.transaction_settings import OPEN_TIMEOUT_S, PRODUCER_SETTINGS
from wasmline.errors import BrokerUnavailable, NotAuthorized, UnsafeBroker
from wasmline.kafka.committed_offset_store import CommittedOffsetStore
from wasmline.kafka.config import KafkaConfig
from wasmline.kafka.detached_consumer import detached_consumer, read_group
from wasmline.kafka.error_mapping import denied_errors, translate_errors
from wasmline.kafka.transactional_producer import FENCED_CODES, SendingOffsets, create_fencing_producer
from wasmline.topic_partitions import CommittedOffset, TopicPartition

SLOW_STABLE_READ_S = 0.3
"""Seconds after which a stable read counts as waiting."""

PROBE_ATTEMPTS = 2
"""Attempts in all. Another follows where the transaction timed out: the process stood still for that long."""


def require_exactly_once(
    config: KafkaConfig, prefix: str, partition: TopicPartition, offset_store: LazyOffsetStore
) -> None:
    """Raise UnsafeBroker as ``probe_exactly_once`` does, and NotAuthorized if the cluster does not permit that test."""
    try:
        probe_exactly_once(config, prefix, partition, offset_store)
    except NotAuthorized as error:
        text = f"visibility of open transactions' offsets on {config.bootstrap_servers} could not be tested: {error}. "
        text += (
            f"Permit this client the groups and the transactional ids that begin with {prefix}, or use at_least_once"
        )
        raise NotAuthorized(text, name=error.name) from error


def probe_exactly_once(
    config: KafkaConfig, prefix: str, partition: TopicPartition, offset_store: LazyOffsetStore
) -> None:
    """Raise UnsafeBroker unless a stable read waits for an open transaction, as exactly-once needs.

    A transaction with an offset of a scratch group stays open while the offset is read, and is aborted afterwards.
    """
    exact = offset_store.on(partition)
    if not exact.keeps_metadata:
        raise UnsafeBroker("offset maps cannot be kept, and without them records done out of order would run again")
    servers = config.bootstrap_servers
    timed_out = BrokerUnavailable(f"transactions of the self-test time out on {servers}", bootstrap_servers=servers)
    for attempt in range(PROBE_ATTEMPTS):
        name = f"{prefix}.self-test.{uuid.uuid4().hex}"
        try:
            # No other producer has this id: the cluster fences it after transaction.timeout.ms.
            denied = denied_errors(servers, topic=partition.topic, group=name, transactional_id=name)
            with translate_errors(servers, {**dict.fromkeys(FENCED_CODES, timed_out), **denied}):
                waits = _waits_for_transaction(config, name, partition, exact)
            break
        except BrokerUnavailable as error:
            if error is not timed_out or attempt == PROBE_ATTEMPTS - 1:
                raise
    if not waits:
        raise UnsafeBroker(f"{servers} shows offsets while their transaction is open: use at_least_once there")


def _waits_for_transaction(
    config: KafkaConfig, name: str, partition: TopicPartition, exact: CommittedOffsetStore
) -> bool:
    reader = detached_consumer(config, name)
    try:
        writer = create_fencing_producer(config, name, PRODUCER_SETTINGS, time.monotonic() + OPEN_TIMEOUT_S)
        # The first read of a group waits for its coordinator.
        read_group(reader, partial(exact.committed, reader, [partition]), OPEN_TIMEOUT_S)
        writer.begin_transaction()
        offsets = {partition: CommittedOffset(0)}
        SendingOffsets(exact, writer, reader.consumer_group_metadata(), offsets, OPEN_TIMEOUT_S).wait()
        waits = _waits(lambda: exact.committed(reader, [partition], SLOW_STABLE_READ_S))
        writer.abort_transaction(OPEN_TIMEOUT_S)
    finally:
        reader.close()
    return waits


def _waits(read: Callable[[], object]) -> bool:
    try:
        read()
    except KafkaException as error:
        if error.args[0].code() != KafkaError._TIMED_OUT:
            raise
        return True
    return False
