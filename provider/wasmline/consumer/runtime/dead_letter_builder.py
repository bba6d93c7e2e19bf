"""Makes dead letters of the records that a consumer gives up."""

from __future__ import annotations

import logging

from wasmline import dead_letters
from wasmline.consumer.health import Counters
from wasmline.consumer.options import ConsumerOptions
from wasmline.consumer.records import ConsumedRecord, Output
from wasmline.errors import OutputRefused, RecordGivenUp
from wasmline.records import TopicPartition

logger = logging.getLogger(__name__)


class DeadLetterBuilder:
    """Dead letters for the topic of the options. Whatever a record and its error are, a letter can be made of them.

    They have the record's time; that of their writing where something was refused, which may be for that time.
    """

    def __init__(self, options: ConsumerOptions, counters: Counters) -> None:
        self.topic = options.dead_letter_topic
        self._headers = options.dead_letter_headers
        self._counters = counters

    def build(self, record: ConsumedRecord, error: Exception) -> Output:
        """Return the letter of a record: as it came, and why it is here. Raises RecordGivenUp without a topic."""
        where = f"{record.topic}-{record.partition}@{record.offset}"
        reason = dead_letters.reason_of(error)
        if self.topic is None or record.topic == self.topic:
            text = f"{where} failed for good at attempt {record.attempt}, and there is no dead-letter topic: {reason}"
            raise RecordGivenUp(
                text, topic=record.topic, partition=record.partition, offset=record.offset, attempts=record.attempt
            ) from error
        self._counters.given_up += 1
        logger.warning("%s goes to %s after %d attempts: %s", where, self.topic, record.attempt, reason)
        headers = [*record.headers, *self._why(record, error)]
        timestamp = None if isinstance(error, OutputRefused) else _timestamp(record)
        return Output(self.topic, record.value, record.key, headers, timestamp)

    def cut(self, record: ConsumedRecord, error: Exception) -> Output:
        """Return a letter for a topic that did not take ``letter``: without the record's value and headers."""
        assert self.topic is not None, "a letter was made before"
        where = f"{record.topic}-{record.partition}@{record.offset}"
        logger.warning("%s takes no record of %d bytes: the letter of %s is cut", self.topic, record.size, where)
        key = record.key if len(record.key or b"") <= dead_letters.MAX_REASON_BYTES else None
        headers = [*self._why(record, error), *dead_letters.truncation(record.size)]
        return Output(self.topic, None, key, headers)

    def _why(self, record: ConsumedRecord, error: Exception) -> list[dead_letters.Header]:
        return [
            *dead_letters.failure(error=type(error).__name__, reason=dead_letters.reason_of(error)),
            *self._headers,
            *dead_letters.coordinates(TopicPartition(record.topic, record.partition), record.offset),
        ]


def _timestamp(record: ConsumedRecord) -> int | None:
    """Return the time of a record; None where it has none, which brokers say with -1."""
    return record.timestamp if record.timestamp >= 0 else None
