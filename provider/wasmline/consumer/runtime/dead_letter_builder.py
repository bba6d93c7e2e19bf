"""Builds dead letters from records that failed for good."""

from __future__ import annotations

import logging

from wasmline import dead_letters
from wasmline.consumer.health import Counters
from wasmline.consumer.options import ConsumerOptions
from wasmline.consumer.records import ConsumedRecord, Headers, Output, record_coordinates
from wasmline.errors import OutputRefused, RecordGivenUp
from wasmline.topic_partitions import TopicPartition

logger = logging.getLogger(__name__)


class DeadLetterBuilder:
    """Builds records for the dead-letter topic of the options, from any record and any error.

    They keep the record's timestamp; after a rejection, the time of writing, as the timestamp may be the cause.
    """

    def __init__(self, options: ConsumerOptions, counters: Counters) -> None:
        self.topic = options.dead_letter_topic
        self._origin = options.dead_letter_headers
        self._counters = counters

    def build(self, record: ConsumedRecord, error: Exception) -> Output:
        """Return the dead letter: the record unchanged, with its failure. Raises RecordGivenUp without a topic."""
        where = record_coordinates(record)
        reason = dead_letters.reason_of(error)
        if self.topic is None or record.topic == self.topic:
            text = f"{where} failed for good at attempt {record.attempt}, and there is no dead-letter topic: {reason}"
            raise RecordGivenUp(
                text, topic=record.topic, partition=record.partition, offset=record.offset, attempts=record.attempt
            ) from error
        self._counters.given_up += 1
        logger.warning("%s goes to %s after %d attempts: %s", where, self.topic, record.attempt, reason)
        letter = self._letter(record, record.headers, error)
        timestamp = None if isinstance(error, OutputRefused) else _timestamp(record)
        return Output(self.topic, letter.value, letter.key, letter.headers, timestamp)

    def truncated(self, record: ConsumedRecord, error: Exception) -> Output:
        """Return a dead letter for a topic that rejected the whole one: without the record's value and headers."""
        assert self.topic is not None, "a dead letter was built before"
        where = record_coordinates(record)
        text = "%s takes no record of %d bytes: the dead letter of %s is truncated"
        logger.warning(text, self.topic, record.size, where)
        letter = self._letter(record, (), error).truncated(record.size)
        return Output(self.topic, letter.value, letter.key, letter.headers)

    def _letter(self, record: ConsumedRecord, headers: Headers, error: Exception) -> dead_letters.DeadLetter:
        source = TopicPartition(record.topic, record.partition)
        provenance = dead_letters.provenance(self._origin, source, record.offset)
        return dead_letters.failed(record.key, record.value, headers, error, provenance)


def _timestamp(record: ConsumedRecord) -> int | None:
    """Return the timestamp of a record; None where it has none, for which brokers send -1."""
    return record.timestamp if record.timestamp >= 0 else None
