"""Consumers that never join their group: for reading ranges of offsets, and for committed offsets."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from typing import TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message

from wasmline.kafka.config import SOCKET_TIMEOUT_MS, KafkaConfig
from wasmline.kafka.error_mapping import ReportedError
from wasmline.kafka.reconnecting_clients import ReconnectingConsumer

T = TypeVar("T")

DENIAL_CHECK_S = 3.0
"""Seconds of a read of a group after which the client is asked whether it may use the group."""


def detached_consumer(config: KafkaConfig, group: str, settings: dict[str, str] | None = None) -> Consumer:
    """Return a consumer with this group id that reads committed records and commits nothing by itself.

    ``settings`` are librdkafka's, and take precedence.
    """
    fixed = {"group.id": group, "enable.auto.commit": "false", "isolation.level": "read_committed"}
    return ReconnectingConsumer(
        {"socket.timeout.ms": SOCKET_TIMEOUT_MS, **config.client(**{**fixed, **(settings or {})})}
    )


def unique_group(purpose: str) -> str:
    """Return the id of a group that no other consumer has: the client requires one."""
    return f"wasmline.{purpose}.{uuid.uuid4()}"


def is_group_denial(message: Message | ReportedError) -> bool:
    """Return whether a message says that the client may not use its group. One that reads ranges has no use for it."""
    error = message.error()
    return error is not None and error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED


def read_group(consumer: Consumer, read: Callable[[float], T], timeout: float) -> T:
    """Return the result of ``read``, which takes its seconds and raises KafkaException, for a consumer that reads only
    its group's offsets.

    Where the client may not use the group, librdkafka looks for its coordinator until the time is over. The reason is
    in the queue of the consumer's messages, and is raised instead. An answer to a read that was given up is lost, so
    there are two reads at most.
    """
    deadline = time.monotonic() + timeout
    limit = min(timeout, DENIAL_CHECK_S)
    while True:
        try:
            found = read(limit)
        except KafkaException as error:
            limit = deadline - time.monotonic()
            if error.args[0].code() != KafkaError._TIMED_OUT:
                raise
            _raise_denial(consumer, error)
            if limit <= 0:
                raise
        else:
            _drop_messages(consumer)  # a denial of earlier is over
            return found


def _raise_denial(consumer: Consumer, error: KafkaException) -> None:
    while (message := consumer.poll(0)) is not None:
        if is_group_denial(message):
            raise KafkaException(message.error()) from error


def _drop_messages(consumer: Consumer) -> None:
    while consumer.poll(0) is not None:
        pass
