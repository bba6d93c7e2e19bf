"""Reads the newest dead letters of a topic."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeVar

from wasmline.errors import OffsetOutOfRange, TopicNotFound
from wasmline.kafka import KafkaConfig, Topics, read_range
from wasmline.redrive.dead_letter_reader import StoredDeadLetter, stored_dead_letter

T = TypeVar("T")

MIN_OFFSETS = 10
"""Offsets before the end of a partition that are looked at, at least."""

MAX_BYTES = 64 << 20
"""Bytes of dead letters after which no more are read."""


class NewestDeadLetters(Generic[T]):
    """The newest dead letters of a topic, each as what ``convert`` makes of it. They are read again if it has changed.

    Of each partition the last offsets are looked at, ``count`` of all together: there may be fewer records, where
    others were aborted.
    """

    def __init__(self, config: KafkaConfig, topic: str, count: int, convert: Callable[[StoredDeadLetter], T]) -> None:
        self._config = config
        self._topic = topic
        self._count = count
        self._convert = convert
        self._topics = Topics(config)
        self._bounds: dict[int, tuple[int, int]] = {}
        self._found: list[T] = []

    def read(self) -> list[T]:
        """Return them, the newest first. Raises TopicNotFound, NotAuthorized, BrokerUnavailable."""
        bounds = self._topics.bounds([self._topic]).get(self._topic)
        if bounds is None:
            text = f"there is no topic {self._topic} on {self._config.bootstrap_servers}"
            raise TopicNotFound(text, topic=self._topic)
        if bounds != self._bounds:
            self._found = self._newest(bounds)
            self._bounds = bounds
        return self._found

    def _newest(self, bounds: dict[int, tuple[int, int]]) -> list[T]:
        depth = max(MIN_OFFSETS, self._count // max(1, len(bounds)))
        ranges = {partition: (max(begin, end - depth), end) for partition, (begin, end) in bounds.items()}
        newest: list[tuple[int, int, int, T]] = []
        size = 0
        with suppress(OffsetOutOfRange):  # retention has removed some meanwhile: another reading has what is left
            for message in read_range(self._config, self._topic, ranges):
                letter = stored_dead_letter(message, message.offset() or 0)
                place = (letter.timestamp, letter.topic_partition.partition, letter.offset)
                heapq.heappush(newest, (*place, self._convert(letter)))
                if len(newest) > self._count:
                    heapq.heappop(newest)
                size += letter.size
                if size > MAX_BYTES:
                    break
        return [converted for *_, converted in sorted(newest, key=lambda each: each[:3], reverse=True)]
