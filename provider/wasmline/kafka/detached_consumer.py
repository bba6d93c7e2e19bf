"""Consumers that never join their group: for reading ranges of offsets, and for committed offsets."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from typing import TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message

from wasmline.kafka.config import SOCKET_TIMEOUT_MS, KafkaConfig
from wasmline.kafka.reconnecting_clients import ReconnectingConsumer

T = TypeVar("T")

DENIAL_CHECK_INTERVAL_S = 0.5
"""Maximum seconds of one read of a group until the client is asked whether it may use the group."""


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


def is_group_denial(message: Message) -> bool:
    """Return whether a message says that the client may not use its group. One that reads ranges has no use for it."""
    error = message.error()
    return error is not None and error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED


def read_group(consumer: Consumer, read: Callable[[float], T], timeout: float) -> T:
    """Return the result of ``read``, which takes its seconds and raises KafkaException, for a consumer that reads only
    its group's offsets.

    Where the client may not use the group, librdkafka looks for its coordinator until the time is over. The reason is
    in the queue of the consumer's messages, and is raised instead.
    """
    deadline = time.monotonic() + timeout
    while True:
        left = max(0.0, deadline - time.monotonic())
        try:
            return read(min(left, DENIAL_CHECK_INTERVAL_S))
        except KafkaException as error:
            if error.args[0].code() != KafkaError._TIMED_OUT:
                raise
            while (message := consumer.poll(0)) is not None:
                if is_group_denial(message):
                    raise KafkaException(message.error()) from error
            if left <= DENIAL_CHECK_INTERVAL_S:
                raise
