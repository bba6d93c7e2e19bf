"""Partitions of topics, and the offsets committed for them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
"""What Kafka permits as the name of a topic, but for ``.`` and ``..``."""


class TopicPartition(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        """Return the form that messages have: ``orders-0``."""
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """The next offset to read and its committed metadata; "" for none."""

    offset: int
    metadata: str = ""

    def __post_init__(self) -> None:
        if self.offset < 0:
            raise ValueError(f"{self.offset} cannot be committed: an offset is 0 or more")


def partition_names(partitions: Iterable[TopicPartition]) -> str:
    """Return partitions in the form of messages: ``orders-0, orders-1``."""
    return ", ".join(map(str, partitions))
