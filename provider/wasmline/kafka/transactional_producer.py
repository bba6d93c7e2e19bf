"""Creates producers with a transactional id, and initializes them, which fences the earlier ones."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, Producer

from wasmline.background_call import call_each
from wasmline.errors import KafkaError as KafkaFailed
from wasmline.kafka.config import KafkaConfig
from wasmline.kafka.error_mapping import translate_errors
from wasmline.kafka.producer import producer
from wasmline.kafka.reconnecting_clients import ReconnectingProducer

logger = logging.getLogger(__name__)

T = TypeVar("T")

CLIENT_WARM_UP_S = 0.08
"""Minimum age in seconds of a client before ``init_transactions``, which otherwise sleeps half a second."""

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


def retry(call: Callable[[float], T], deadline: float) -> T:
    """Make a call, with the remaining seconds, until it succeeds or fails with an error that is not retriable."""
    while True:
        try:
            return call(max(0.0, deadline - time.monotonic()))
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > deadline:
                raise
