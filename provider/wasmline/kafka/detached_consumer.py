"""Consumers that never join their group: for reading ranges of offsets, and for committed offsets."""

from __future__ import annotations

import uuid

from confluent_kafka import Consumer

from wasmline.kafka.config import SOCKET_TIMEOUT_MS, KafkaConfig
from wasmline.kafka.reconnecting_clients import ReconnectingConsumer


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
