"""Creates producers with a transactional id, initializes them, which fences the earlier ones, and sends offsets."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, Producer

from wasmline.background_call import BackgroundCall, call_each
from wasmline.errors import KafkaError as KafkaFailed
from wasmline.kafka.committed_offset_store import CommittedOffsetStore
from wasmline.kafka.config import KafkaConfig
from wasmline.kafka.error_mapping import translate_errors
from wasmline.kafka.producer import producer
from wasmline.kafka.reconnecting_clients import ReconnectingProducer
from wasmline.topic_partitions import CommittedOffset, TopicPartition, partition_names

logger = logging.getLogger(__name__)

T = TypeVar("T")

CLIENT_WARM_UP_S = 0.08
"""Minimum age in seconds of a client before ``init_transactions``, which otherwise sleeps half a second."""

ANSWER_MARGIN_S = 1.0
"""Seconds after a limit in which a client itself reports that it got no answer, or its reason to retry."""

FENCED_CODES = (KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED)


def create_fencing_producer(
    config: KafkaConfig, transactional_id: str, settings: Mapping[str, Any], deadline: float
) -> ReconnectingProducer:
    """Return a producer of this id. Earlier ones are fenced, and their open transaction is aborted."""
    client = transactional_producer(config, transactional_id, settings)
    init_transactions(client, deadline)
    return client


def transactional_producer(
    config: KafkaConfig, transactional_id: str, settings: Mapping[str, Any]
) -> ReconnectingProducer:
    """Return a producer of this id that has fenced no other yet. The configuration overrides ``settings``."""
    missing = {name: value for name, value in settings.items() if name not in config.properties}
    return producer(config, **missing, **{"transactional.id": transactional_id})


def init_transactions(client: Producer, deadline: float, warm_up: float = CLIENT_WARM_UP_S) -> None:
    """Fence the earlier producers of the id, and abort their open transaction. ``warm_up``: seconds to wait before."""
    client.list_topics(timeout=max(0.0, deadline - time.monotonic()))
    client.poll(warm_up)
    retry(client.init_transactions, deadline)


def abort_transaction(client: Producer, timeout: float) -> bool:
    """Abort the client's open transaction. Return whether that is done, or none was open; if not, a fence may end it.

    For callers that handle an exception.
    """

    def abort() -> bool:
        try:
            client.abort_transaction(timeout)
        except KafkaException as error:
            return bool(error.args[0].code() == KafkaError._STATE)  # none is open
        return True

    aborting = BackgroundCall(abort)
    return aborting.wait(timeout + ANSWER_MARGIN_S) and aborting.result()


def abort_open_transactions(
    config: KafkaConfig, transactional_ids: Collection[str], settings: Mapping[str, Any], timeout: float
) -> None:
    """Fence the producers of these ids, so that no open transaction holds up readers until its time-out.

    Takes up to ``timeout`` seconds. What fails is logged.
    """
    deadline = time.monotonic() + timeout

    def fence(name: str) -> KafkaFailed | None:
        try:
            with translate_errors(config.bootstrap_servers):
                create_fencing_producer(config, name, settings, deadline)
        except KafkaFailed as error:
            return error
        return None

    fenced = call_each(transactional_ids, fence)
    if failures := {name: error for name, error in fenced.items() if error is not None}:
        name, error = next(iter(failures.items()))
        logger.warning("cannot abort transactions that may be open, of %d ids: %s: %s", len(failures), name, error)


class SendingOffsets:
    """Makes offsets part of a client's open transaction, in a thread; ``wait`` ends it, also where librdkafka does not.

    That may wait for ever for a coordinator of the group that has left the cluster (its issue 5511), whatever its time
    limit (5456). A new client finds the next one.
    """

    def __init__(
        self,
        offset_store: CommittedOffsetStore,
        client: Producer,
        group_metadata: Any,
        offsets: Mapping[TopicPartition, CommittedOffset],
        timeout: float,
    ) -> None:
        """``group_metadata`` is the result of ``Consumer.consumer_group_metadata()``; ``timeout`` is in seconds."""
        self._offsets = offsets
        self._timeout = max(0.0, timeout)
        self._limit = time.monotonic() + self._timeout
        send = partial(offset_store.send_offsets, client, group_metadata, offsets)
        self._sending = BackgroundCall(partial(retry, send, self._limit))

    def wait(self) -> None:
        """Wait for the answer, and raise what ``CommittedOffsetStore.send_offsets`` does.

        After _TIMED_OUT, which is at the latest ANSWER_MARGIN_S after the limit, the client must not be used any more.
        """
        if not self._sending.wait(max(0.0, self._limit - time.monotonic()) + ANSWER_MARGIN_S):
            text = f"the offsets of {partition_names(self._offsets)} were not answered within {self._timeout:.0f} s"
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, text))
        self._sending.result()


def retry(call: Callable[[float], T], deadline: float) -> T:
    """Make a call, with the remaining seconds, until it succeeds or fails with an error that is not retriable."""
    while True:
        try:
            return call(max(0.0, deadline - time.monotonic()))
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > deadline:
                raise
