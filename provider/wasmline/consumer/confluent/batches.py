"""Batches that a topic takes: librdkafka fails every record of a batch that is too large, however small each may be."""

from __future__ import annotations

from confluent_kafka import Producer

from wasmline.consumer.records import Output
from wasmline.errors import BrokerUnavailable
from wasmline.kafka.admin import Topics
from wasmline.kafka.config import KafkaConfig

LARGEST = 1_000_000
"""Bytes of a batch that the client itself does not exceed: its ``batch.size``."""

FRAME = 128
"""Bytes that a record or a batch may have beside keys, values and headers."""

PATIENCE = 60.0
"""Seconds that a batch may take: no less than the producer's ``delivery.timeout.ms``."""


class Batches:
    """Lets a producer send what it has before a batch could become larger than its topic takes."""

    def __init__(self, config: KafkaConfig) -> None:
        self._config = config
        self._limits: dict[str, int] = {}

    def make_room(self, client: Producer, output: Output, waiting: dict[str, int]) -> None:
        """Flush ``client`` if ``output`` may not join the batch under way; ``waiting`` are its bytes by topic.

        Raises TopicNotFound; BrokerUnavailable, where the batch under way was not taken.
        """
        limit = self._limits.get(output.topic)
        if limit is None:
            try:
                limit = Topics(self._config).max_message_bytes(output.topic) or LARGEST
            except BrokerUnavailable:
                return  # the client keeps what it is given until a broker answers
            self._limits[output.topic] = limit
        if limit >= LARGEST:
            return
        size = output.size + FRAME
        batch = waiting.get(output.topic, FRAME)
        if batch > FRAME and batch + size > limit:
            if client.flush(PATIENCE):
                servers = self._config.bootstrap_servers
                text = f"{output.topic} on {servers} did not take its records within {PATIENCE:.0f} s"
                raise BrokerUnavailable(text, bootstrap_servers=servers)
            batch = FRAME
        waiting[output.topic] = batch + size
