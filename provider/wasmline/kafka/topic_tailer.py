"""Follows topics of one partition, without waiting for records to come."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from functools import partial
from itertools import islice

from confluent_kafka import OFFSET_BEGINNING, KafkaError, Message, TopicPartition

from wasmline import topic_partitions
from wasmline.errors import BrokerUnavailable
from wasmline.errors import KafkaError as KafkaFailed
from wasmline.kafka.config import KafkaConfig
from wasmline.kafka.detached_consumer import detached_consumer, is_group_denial, unique_group
from wasmline.kafka.error_mapping import message_error, translate_errors
from wasmline.kafka.hanging_transactions import require_readable
from wasmline.kafka.topics import Topics

FIRST_READ_TIMEOUT_S = 30.0
"""Maximum seconds without a record in the first read."""

MAX_RECORDS = 10_000
"""Maximum number of records of one later read: a topic that is written without an end is read in parts."""

HELD_CHECK_INTERVAL_S = 15.0
"""Seconds between two checks for written records that an open transaction holds back."""


class TopicTailer:
    """Reads the committed records of some topics from their beginning on, each once. For one thread; close it.

    ``first_offsets``: where to begin in a topic instead.
    """

    def __init__(
        self, config: KafkaConfig, topics: Collection[str], first_offsets: Mapping[str, int] | None = None
    ) -> None:
        self._config = config
        firsts = first_offsets or {}
        self._next = {topic: firsts.get(topic, 0) for topic in topics}
        self._behind = set(topics)
        self._topics = Topics(config)
        self._held: dict[str, int] = {}
        """The positions of topics that had more records at the last check."""
        self._checked = time.monotonic()
        with translate_errors(config.bootstrap_servers):
            self._consumer = detached_consumer(
                config, unique_group("follower"), {"auto.offset.reset": "error", "enable.partition.eof": "true"}
            )
            begins = [TopicPartition(topic, 0, firsts.get(topic, OFFSET_BEGINNING)) for topic in topics]
            self._consumer.assign(begins)

    @property
    def positions(self) -> dict[str, int]:
        """The offset of the next record of each topic."""
        return dict(self._next)

    def poll(self) -> Iterator[Message]:
        """Yield new records, at most MAX_RECORDS; the first time, all existing ones.

        Raises BrokerUnavailable, KafkaError; HangingTransaction for one that holds records back.
        """
        with translate_errors(self._config.bootstrap_servers):
            deadline = time.monotonic() + FIRST_READ_TIMEOUT_S
            while self._behind and time.monotonic() < deadline:
                for taken in self._take(self._consumer.poll(0.1)):
                    yield taken
                    deadline = time.monotonic() + FIRST_READ_TIMEOUT_S
            if self._behind:
                servers = self._config.bootstrap_servers
                text = f"{', '.join(sorted(self._behind))} on {servers} could not be read "
                text += f"within {FIRST_READ_TIMEOUT_S:.0f} s after the last record"
                raise BrokerUnavailable(text, bootstrap_servers=servers)
            for message in islice(iter(partial(self._consumer.poll, 0), None), MAX_RECORDS):
                yield from self._take(message)
        self._require_none_held()

    def close(self) -> None:
        """Close the client."""
        self._consumer.close()

    def _require_none_held(self) -> None:
        """Raise HangingTransaction if one has held records of a topic back since the last check."""
        now = time.monotonic()
        if now < self._checked + HELD_CHECK_INTERVAL_S:
            return
        held = {topic: at for topic, at in self._next.items() if at < self._topics.written_offsets(topic)[0]}
        for topic, position in held.items():
            if self._held.get(topic) == position:
                require_readable(self._config, topic_partitions.TopicPartition(topic, 0))
        self._held, self._checked = held, now

    def _take(self, message: Message | None) -> Iterator[Message]:
        if message is None or is_group_denial(message):
            return
        error, topic, offset = message.error(), message.topic() or "", message.offset() or 0
        if error is None:
            self._next[topic] = offset + 1
            yield message
        elif error.code() == KafkaError._PARTITION_EOF:
            self._next[topic] = max(self._next[topic], offset)
            self._behind.discard(topic)
        elif error.code() == KafkaError._AUTO_OFFSET_RESET:
            raise KafkaFailed(f"{topic} was deleted and recreated: the records read before are no longer valid")
        elif not error.retriable():
            raise message_error(self._config.bootstrap_servers, message, error)
