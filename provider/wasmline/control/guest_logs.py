"""Reads the lines that the guests of a transform have logged in jobs: the cluster keeps them for a day."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from wasmline.control import control_topics
from wasmline.kafka import KafkaConfig, Topics, follow, read_range


class GuestLogLine(NamedTuple):
    """A line, and when it was written to the cluster, in Unix milliseconds."""

    time_ms: int
    text: str


class GuestLogReader:
    """Reads the lines of one transform, and follows those that come.

    since_ms: the first time of a line, in Unix milliseconds; None for all that the cluster has. Raises
    BrokerUnavailable.
    """

    def __init__(self, config: KafkaConfig, transform: str, *, since_ms: int | None = None) -> None:
        control_topics.ensure(config)
        self._config = config
        self._key = transform.encode()
        topics, topic = Topics(config), control_topics.LOGS
        begins = topics.beginning_offsets(topic) if since_ms is None else topics.offsets_for_time(topic, since_ms)
        self._begin, self._end = begins[0], topics.end_offsets(topic)[0]

    def read(self, *, until_ms: int | None = None) -> Iterator[GuestLogLine]:
        """Yield the lines that the cluster had when the reader was made; with ``until_ms``, those before that time."""
        for line in self._lines(read_range(self._config, control_topics.LOGS, {0: (self._begin, self._end)})):
            if until_ms is None or line.time_ms < until_ms:
                yield line

    def follow(self) -> Iterator[GuestLogLine]:
        """Yield each line that was written since the reader was made, without an end."""
        return self._lines(follow(self._config, control_topics.LOGS, self._end))

    def _lines(self, messages: Iterable[Any]) -> Iterator[GuestLogLine]:
        for message in messages:
            if message.key() == self._key:
                yield GuestLogLine(message.timestamp()[1], (message.value() or b"").decode(errors="replace"))
