"""Reads ranges of offsets as columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import confluent_kafka
import pyarrow as pa
from confluent_kafka import Consumer, Message

from wasmline.kafka import librdkafka_ctypes
from wasmline.kafka.compiled_columns import ColumnReader, CompiledColumns
from wasmline.kafka.config import KafkaConfig
from wasmline.kafka.detached_consumer import detached_consumer, is_group_denial, unique_group
from wasmline.kafka.error_mapping import ReportedError, denied_errors, translate_errors
from wasmline.kafka.message_columns import columns_by_partition
from wasmline.kafka.topic_reader import SilenceLimit, position
from wasmline.topic_partitions import TopicPartition

MAX_POLL_RECORDS = 10_000
"""Records of one batch, at most."""

FETCH_SETTINGS = {
    "fetch.wait.max.ms": "50",
    # The client reads ahead, also past the end of a range, and keeps it for nobody: 64 MiB by default.
    "queued.max.messages.kbytes": "16384",
    "queued.min.messages": str(2 * MAX_POLL_RECORDS),
    "fetch.queue.backoff.ms": "20",
}

POLL_TIMEOUT_S = 0.1
"""Seconds that a poll waits for records; errors that name no partition are seen between two polls."""


class RangeReader:
    """Reads ranges of offsets of one topic over one connection, one call after the other; for one thread."""

    def __init__(self, config: KafkaConfig, topic: str, compiled: CompiledColumns | None, *, reset: str) -> None:
        """``reset``: what an offset that the log no longer has is answered with, ``auto.offset.reset``."""
        self._servers = config.bootstrap_servers
        self._topic = topic
        self._denied = denied_errors(self._servers, topic=topic)
        settings = {**FETCH_SETTINGS, "auto.offset.reset": reset, "enable.partition.eof": "true"}
        with translate_errors(self._servers):
            self._consumer: Consumer = detached_consumer(config, unique_group("reader"), settings)
        self._reader = None if compiled is None else ColumnReader(compiled, self._consumer, MAX_POLL_RECORDS)

    def read(self, ranges: Mapping[int, tuple[int, int]]) -> Iterator[pa.RecordBatch]:
        """Yield the committed records of each partition from its first offset to its end, which is excluded.

        Batches of RECORD_SCHEMA, of one partition each. Raises OffsetOutOfRange, BrokerUnavailable.
        """
        ends = {partition: end for partition, (begin, end) in ranges.items() if begin < end}
        begins = {TopicPartition(self._topic, partition): ranges[partition][0] for partition in ends}
        with translate_errors(self._servers, self._denied):
            if self._reader is not None:
                self._reader.add(begins)
            self._consumer.assign([confluent_kafka.TopicPartition(*each, begins[each]) for each in begins])
            self._consumer.resume([confluent_kafka.TopicPartition(*each) for each in begins])  # a pause outlives it
        try:
            yield from self._until(ends)
        finally:
            self._consumer.unassign()
            if self._reader is not None:
                self._reader.remove(begins)

    def close(self) -> None:
        """Drop the connection."""
        if self._reader is not None:
            self._reader.close()
        librdkafka_ctypes.close(self._consumer)

    def _until(self, ends: dict[int, int]) -> Iterator[pa.RecordBatch]:
        """Yield what is below ``ends``; an end is passed by a record, or by the event of a partition's end."""
        silence = SilenceLimit(self._consumer, self._topic, self._servers)
        while ends:
            with translate_errors(self._servers, self._denied):
                found, errors = self._poll()
                reached = [position(self._servers, each) for each in errors if not is_group_denial(each)]
            for partition, batch in found:
                offsets = batch.column("offset").to_numpy()
                if rows := int(offsets.searchsorted(ends.get(partition, 0))):
                    yield batch.slice(0, rows)
                reached.append((partition, int(offsets[-1]) + 1))
            for partition, offset in reached:
                self._note(ends, partition, offset)
            if found or errors:
                silence.end()  # now: what is done with a batch is no silence
            else:
                silence.check(ends)

    def _note(self, ends: dict[int, int], partition: int, offset: int) -> None:
        """Note the next offset of a partition; at its end, no more of it is read while others are."""
        if partition in ends and offset >= ends[partition]:
            del ends[partition]
            if ends:  # a partition that is paused as its assignment ends stands still for a second in the next one
                self._consumer.pause([confluent_kafka.TopicPartition(self._topic, partition)])

    def _poll(self) -> tuple[list[tuple[int, pa.RecordBatch]], list[ReportedError | Message]]:
        """Return the next records of each partition, and the errors that were reported in place of records."""
        # With a reader, the client itself reports errors, and has none of the records.
        messages = self._consumer.consume(MAX_POLL_RECORDS, POLL_TIMEOUT_S if self._reader is None else 0)
        read = columns_by_partition(message for message in messages if message.error() is None)
        found = [(columns.partition.partition, columns.batch) for columns in read]
        errors: list[ReportedError | Message] = [message for message in messages if message.error() is not None]
        if self._reader is not None and not messages:
            parts, reported = self._reader.read(MAX_POLL_RECORDS, POLL_TIMEOUT_S)
            found += [(part.partition.partition, part.batch) for part in parts]
            errors += reported
        return found, errors
