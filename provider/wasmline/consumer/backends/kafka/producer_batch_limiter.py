"""Limits producer batches to a topic's maximum: a broker rejects a batch as a whole, with all its valid records."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from confluent_kafka import KafkaError, Producer

from wasmline.consumer.records import Output, require_record
from wasmline.errors import BrokerUnavailable, OutputRefused, WasmlineError
from wasmline.kafka.config import KafkaConfig
from wasmline.kafka.topics import Topics

if TYPE_CHECKING:
    from wasmline.consumer.columns import OutputColumns

CLIENT_BATCH_BYTES = 1_000_000
"""Maximum bytes of a batch in the client itself: its ``batch.size``."""

FRAME_BYTES = 128
"""Maximum bytes of a record or a batch in addition to keys, values and headers."""

MIN_BATCH_BYTES = 1_000
"""Bytes of a batch below which no limit is guessed."""

LIMITS_REFRESH_S = 60.0
"""Seconds until a topic's limits are read again: the writing thread waits meanwhile, and does not poll."""

PARTITION_COUNT_TTL_S = 5.0
"""Seconds for which a topic's number of partitions is cached."""

MAX_CLOCK_SKEW_MS = 60_000
"""Tolerated difference of the clocks of a broker and this process: within it, the broker decides what is too late."""


PARTITION_GONE_CODES = (KafkaError._UNKNOWN_PARTITION, KafkaError._DESTROY)
"""Error codes of an output whose partition the client does not have, or has dropped before the answer came."""


class TopicLimits(NamedTuple):
    """Limits of a topic: bytes of a batch, and a record's maximum age and maximum time ahead of now."""

    size: int = CLIENT_BATCH_BYTES
    before_ms: float = math.inf
    after_ms: float = math.inf

    def require_timestamp(self, output: Output) -> None:
        """Raise OutputRefused for a timestamp that the topic does not accept."""
        if output.timestamp is None:
            return
        ahead = output.timestamp - time.time() * 1_000
        if not -self.before_ms - MAX_CLOCK_SKEW_MS <= ahead <= self.after_ms + MAX_CLOCK_SKEW_MS:
            text = (
                f"{output.topic} rejects an output: its time, {output.timestamp}, is {ahead / 1_000:+.0f} s from now, "
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
    """Flushes a producer before a batch could exceed its topic's limit."""

    def __init__(self, config: KafkaConfig) -> None:
        self._config = config
        self._limits: dict[str, TopicLimits] = {}
        self._asking = threading.Lock()
        """Transactions run in parallel: the second waits for the answer to the first one's request."""
        self._asked: dict[str, float] = {}
        """Time of the last request for the limits of a topic."""
        self._counted: dict[str, tuple[float, int | WasmlineError]] = {}
        """Time of the last count of a topic's partitions, with the count, or its error."""
        self._outdated: set[str] = set()
        """Topics that rejected a batch within their known limit."""

    def missing_partition(self, output: Output, error: KafkaError) -> WasmlineError | None:
        """Return the error of an output whose partition does not exist; None if ``error`` has another cause.

        The client reports the same for a partition that never existed and for one whose topic was deleted, also where
        it selected the partition itself.
        """
        if error.code() not in PARTITION_GONE_CODES:
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
        if partition is not None and partition >= found:
            return OutputRefused(
                f"{topic} rejects an output: it has {found} partitions, and none is number {partition}"
            )
        servers = self._config.bootstrap_servers
        text = f"{'a partition' if partition is None else f'partition {partition}'} of {topic} is not known yet"
        return BrokerUnavailable(text, bootstrap_servers=servers)

    def note_rejection(self, output: Output, error: KafkaError) -> bool:
        """Return whether ``output`` was rejected with a batch within the topic's known limit.

        If so, the limit is read again.
        """
        if error.code() != KafkaError.MSG_SIZE_TOO_LARGE:
            return False
        is_within = output.size + FRAME_BYTES <= self._limits.get(output.topic, TopicLimits()).size
        if is_within:
            self._outdated.add(output.topic)
        return is_within

    def forget(self, topics: Iterable[str]) -> None:
        """Read the limits of these topics again before the next output of each: it may have been deleted."""
        with self._asking:
            for topic in topics:
                self._limits.pop(topic, None)
                self._asked.pop(topic, None)

    def flush_if_full(self, client: Producer, output: Output, waiting: dict[str, int], timeout: float) -> bool:
        """Flush ``client`` if ``output`` may not join the current batch; ``waiting`` are its bytes by topic.

        Return whether there is capacity: False if the current batch was not accepted within ``timeout`` seconds. Raises
        TopicNotFound; OutputRefused for what can be no record, or makes its topic reject the whole batch.
        """
        require_record(output)
        if output.topic in self._outdated:
            self._lower_limit(output.topic)
        limits = self._limits.get(output.topic) or self._read_limits(output.topic)
        try:
            limits.require_timestamp(output)
        except OutputRefused:
            self._read_limits(output.topic).require_timestamp(output)  # the settings may have changed
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

    def limits_none(self, outputs: OutputColumns) -> bool:
        """Return whether outputs may be written without ``flush_if_full`` for each: no limit of a topic is near.

        Raises TopicNotFound.
        """
        import pyarrow.compute as pc

        first, last = pc.min_max(outputs.batch.column("timestamp")).as_py().values()
        for topic in outputs.topics_written:
            if topic in self._outdated:
                return False
            limits = self._limits.get(topic) or self._read_limits(topic)
            if limits.size < CLIENT_BATCH_BYTES:
                return False
            try:
                limits.require_timestamp(Output(topic, None, timestamp=first))
                limits.require_timestamp(Output(topic, None, timestamp=last))
            except OutputRefused:
                return False
        return True

    def _lower_limit(self, topic: str) -> None:
        """Read a topic's current limit; if no lower limit than before is reported, halve it."""
        self._outdated.discard(topic)
        before = self._limits.get(topic, TopicLimits()).size
        self._asked.pop(topic, None)
        found = self._read_limits(topic)
        if found.size >= before:
            self._limits[topic] = found._replace(size=max(MIN_BATCH_BYTES, before // 2))

    def _read_limits(self, topic: str) -> TopicLimits:
        """Read the limits of a topic, unless that was done recently; without an answer it has none."""
        with self._asking:
            if time.monotonic() - self._asked.get(topic, float("-inf")) >= LIMITS_REFRESH_S:
                self._asked[topic] = time.monotonic()
                with suppress(BrokerUnavailable):  # the client queues records until a broker answers
                    self._limits[topic] = _limits(Topics(self._config).settings([topic])[topic])
            return self._limits.get(topic, TopicLimits())
