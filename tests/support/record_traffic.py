"""Records at a steady rate, and what a read_committed reader sees come of them, as it happens."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from wasmline.background_call import BackgroundCall
from wasmline.kafka import KafkaConfig, Topics, producer

PACE = 0.002
"""Seconds between two looks at how many records are due."""

Record = tuple[bytes, bytes]
"""Key and value."""


class _Loop:
    """Something that goes on in a thread until it is closed; closing it raises what ended it before."""

    def __init__(self) -> None:
        self._over = threading.Event()
        self._call = BackgroundCall(self._run)

    def _run(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        self._over.set()
        self._call.result()

    def __enter__(self) -> Any:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()


class Feed(_Loop):
    """Writes ``record(n)`` for n = 0, 1, 2 … at so many a second; ``written`` is told of each that is in the topic.

    ``settings`` are of its producer.
    """

    def __init__(
        self,
        config: KafkaConfig,
        topic: str,
        rate: float,
        record: Callable[[int], Record],
        written: Callable[[int, Any], None] | None = None,
        **settings: str,
    ) -> None:
        self._producer = producer(config, **settings)
        self._topic = topic
        self._rate = rate
        self._record = record
        self._written = written
        super().__init__()

    def _run(self) -> None:
        began, number = time.monotonic(), 0
        while not self._over.wait(PACE):
            due = int((time.monotonic() - began) * self._rate)
            for each in range(number, due):
                key, value = self._record(each)
                self._producer.produce(self._topic, value, key, on_delivery=self._told(each))
            number = max(number, due)
            self._producer.poll(0)
        self._producer.flush()

    def _told(self, number: int) -> Callable[[Any, Any], None]:
        def told(error: Any, message: Any) -> None:
            assert error is None, error
            if self._written is not None:
                self._written(number, message)

        return told


class Watch(_Loop):
    """Reads topics from their beginning; ``seen`` is told of each record, and of the Unix time at which it was read."""

    def __init__(self, config: KafkaConfig, topics: Sequence[str], seen: Callable[[Any, float], None]) -> None:
        settings = {"group.id": "watch", "enable.auto.commit": "false", "isolation.level": "read_committed"}
        self._consumer = Consumer(config.client(**settings))
        places = [TopicPartition(topic, each, 0) for topic in topics for each in Topics(config).end_offsets(topic)]
        self._consumer.assign(places)
        self._seen = seen
        super().__init__()

    def _run(self) -> None:
        while not self._over.is_set():
            first = self._consumer.poll(0.1)
            now = time.time()
            for message in [first, *self._consumer.consume(500, 0)] if first is not None else ():
                if message.error() is not None:
                    raise AssertionError(message.error())
                self._seen(message, now)
        self._consumer.close()
