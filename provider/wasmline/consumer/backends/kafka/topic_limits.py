"""Batches that a topic takes: a broker refuses a batch as a whole, however well each of its other records is."""

from __future__ import annotations

import math
import threading
import time
from contextlib import suppress
from typing import NamedTuple

from confluent_kafka import KafkaError, Producer

from wasmline.consumer.records import Output
from wasmline.errors import BrokerUnavailable, OutputRefused, WasmlineError
from wasmline.kafka.config import KafkaConfig
from wasmline.kafka.topics import Topics

CLIENT_BATCH_BYTES = 1_000_000
"""Bytes of a batch that the client itself does not exceed: its ``batch.size``."""

FRAME_BYTES = 128
"""Bytes that a record or a batch may have beside keys, values and headers."""

MIN_BATCH_BYTES = 1_000
"""Bytes of a batch below which no limit is guessed."""

BATCH_TIMEOUT_S = 60.0
"""Seconds that a batch may take: no less than the producer's ``delivery.timeout.ms``."""

LIMITS_REFRESH_S = 60.0
"""Seconds until a broker is asked again for the limits of a topic: who writes waits meanwhile, and polls nothing."""

PARTITION_COUNT_TTL_S = 5.0
"""Seconds for which the number of a topic's partitions counts as known."""

MAX_CLOCK_SKEW_MS = 60_000
"""What the clocks of a broker and of this process may differ by: within it, the broker says what is too late."""


class TopicLimits(NamedTuple):
    """What a topic takes: bytes of a batch, and how old and how far ahead of now a record's time may be."""

    size: int = CLIENT_BATCH_BYTES
    before_ms: float = math.inf
    after_ms: float = math.inf

    def refuse(self, output: Output) -> None:
        """Raise OutputRefused for a time that the topic does not take."""
        if output.timestamp is None:
            return
        ahead = output.timestamp - time.time() * 1_000
        if not -self.before_ms - MAX_CLOCK_SKEW_MS <= ahead <= self.after_ms + MAX_CLOCK_SKEW_MS:
            text = (
                f"{output.topic} refuses an output: its time, {output.timestamp}, is {ahead / 1_000:+.0f} s from now, "
            )
            setting = f"after.max.ms={self.after_ms:.0f}" if ahead > 0 else f"before.max.ms={self.before_ms:.0f}"
            raise OutputRefused(f"{text}and the topic has message.timestamp.{setting}")


def _limits(settings: dict[str, str] | None) -> TopicLimits:
    if settings is None:
        return TopicLimits()
    size = int(settings["max.message.bytes"])
    if settings.get("message.timestamp.type") == "LogAppendTime":
        return TopicLimits(size)
    before, after = (float(settings.get(f"message.timestamp.{each}.max.ms", "inf")) for each in ("before", "after"))
    return TopicLimits(size, before, after)


class ProducerBatchLimiter:
    """Lets a producer send what it has before a batch could become larger than its topic takes."""

    def __init__(self, config: KafkaConfig) -> None:
        self._config = config
        self._limits: dict[str, TopicLimits] = {}
        self._asking = threading.Lock()
        """Transactions are carried out side by side: the second waits for the answer that the first asked for."""
        self._asked: dict[str, float] = {}
        """When a broker was asked for the limits of a topic."""
        self._counted: dict[str, tuple[float, int | WasmlineError]] = {}
        """When the partitions of a topic were counted, and how many they are, or why that cannot be said."""
        self._outdated: set[str] = set()
        """Topics that refused a batch of the size that they take, by all that is known."""

    def misplaced(self, output: Output, error: KafkaError) -> WasmlineError | None:
        """Return why an output has nowhere to go that names its partition; None where ``error`` is about another thing.

        The client says the same of a partition that was never there and of one whose topic is gone.
        """
        if error.code() != KafkaError._UNKNOWN_PARTITION or output.partition is None:
            return None
        topic, partition = output.topic, output.partition
        counted, found = self._counted.get(topic, (-math.inf, 0))
        if time.monotonic() - counted > PARTITION_COUNT_TTL_S:
            try:
                found = Topics(self._config).describe(topic).partitions
            except WasmlineError as failure:
                found = failure
            self._counted[topic] = time.monotonic(), found
        if isinstance(found, WasmlineError):
            return found
        if partition >= found:
            return OutputRefused(
                f"{topic} refuses an output: it has {found} partitions, and none is number {partition}"
            )
        servers = self._config.bootstrap_servers
        text = f"partition {partition} of {topic} is not known to the client yet"
        return BrokerUnavailable(text, bootstrap_servers=servers)

    def refused(self, output: Output, error: KafkaError) -> bool:
        """Say whether ``output`` was refused with a batch that its topic takes by all that is known of its limit.

        Then the limit is looked for again.
        """
        if error.code() != KafkaError.MSG_SIZE_TOO_LARGE:
            return False
        is_within = output.size + FRAME_BYTES <= self._limits.get(output.topic, TopicLimits()).size
        if is_within:
            self._outdated.add(output.topic)
        return is_within

    def make_room(
        self, client: Producer, output: Output, waiting: dict[str, int], timeout: float = BATCH_TIMEOUT_S
    ) -> bool:
        """Flush ``client`` if ``output`` may not join the batch under way; ``waiting`` are its bytes by topic.

        Say whether there is room: no, where the batch under way was not taken within ``timeout`` seconds. Raises
        TopicNotFound; OutputRefused, where its topic would refuse the whole batch because of ``output``.
        """
        if output.topic in self._outdated:
            self._lower(output.topic)
        limits = self._limits.get(output.topic) or self._ask(output.topic)
        try:
            limits.refuse(output)
        except OutputRefused:
            self._ask(output.topic).refuse(output)  # the settings may have changed
        if limits.size >= CLIENT_BATCH_BYTES:
            return True
        size = output.size + FRAME_BYTES
        batch = waiting.get(output.topic, FRAME_BYTES)
        if batch > FRAME_BYTES and batch + size > limits.size:
            if client.flush(timeout):
                return False
            batch = FRAME_BYTES
        waiting[output.topic] = batch + size
        return True

    def _lower(self, topic: str) -> None:
        """Find out what a topic takes by now; where nobody tells of a lower limit than before, guess half of that."""
        self._outdated.discard(topic)
        before = self._limits.get(topic, TopicLimits()).size
        self._asked.pop(topic, None)
        found = self._ask(topic)
        if found.size >= before:
            self._limits[topic] = found._replace(size=max(MIN_BATCH_BYTES, before // 2))

    def _ask(self, topic: str) -> TopicLimits:
        """Ask for the limits of a topic, unless that was done just now; without an answer it has none."""
        with self._asking:
            if time.monotonic() - self._asked.get(topic, float("-inf")) >= LIMITS_REFRESH_S:
                self._asked[topic] = time.monotonic()
                with suppress(BrokerUnavailable):  # the client keeps what it is given until a broker answers
                    self._limits[topic] = _limits(Topics(self._config).settings([topic])[topic])
            return self._limits.get(topic, TopicLimits())
