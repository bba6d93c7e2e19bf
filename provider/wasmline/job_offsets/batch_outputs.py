"""Writes the outputs of a part of a micro-batch at least once."""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import TracebackType

import numpy as np
import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException

from wasmline.consumer.backends.kafka import delivery_error
from wasmline.errors import BrokerUnavailable, WasmlineError
from wasmline.job_offsets.exactly_once_task import outputs_and_topics
from wasmline.job_offsets.microbatch_transactions import QUEUE_SETTINGS
from wasmline.kafka.compiled_columns import compiled_columns
from wasmline.kafka.config import KafkaConfig
from wasmline.kafka.message_columns import OutputWriter, write_outputs
from wasmline.kafka.producer import FLUSH_TIMEOUT_S, producer, reason_of
from wasmline.kafka.reconnecting_clients import ReconnectingProducer
from wasmline.record_batches import TIMED_OUTPUT_SCHEMA

TIME_OF_WRITING = 0
"""The timestamp in whose place librdkafka puts the current time, as Spark's own sink does: docs/decisions/0002."""

FAILURE_CHECK_INTERVAL_S = 0.25
"""Seconds between two checks for outputs that were not delivered."""

# A new idempotent producer waits half a second for its identity, so the next part of this process reuses it.
_producers: dict[tuple[str, str, int], ReconnectingProducer] = {}


class BatchOutputs:
    """Writes outputs; left without an error, it has waited for the last delivery. For one thread.

    Raises OutputRefused, TopicNotFound, BrokerUnavailable, KafkaError.
    """

    def __init__(self, config: str, compression: str, batch_bytes: int) -> None:
        self._config = KafkaConfig.from_json(config)
        self._key = config, compression, batch_bytes
        self._compiled = compiled_columns()
        self._client = _producers.pop(self._key) if self._key in _producers else self._connect()
        self._writers: list[tuple[OutputWriter, list[str]]] = []
        self._checked = time.monotonic()

    def __enter__(self) -> BatchOutputs:
        return self

    def write(self, rows: pa.RecordBatch) -> None:
        """Pass outputs, a batch of PLACED_SCHEMA, to the producer; waits while its queue is full."""
        outputs, topics = outputs_and_topics(rows)
        number = TIMED_OUTPUT_SCHEMA.get_field_index("timestamp")
        now = pa.array(np.full(len(outputs), TIME_OF_WRITING))
        outputs = outputs.set_column(number, TIMED_OUTPUT_SCHEMA.field(number), now)
        try:
            writer = write_outputs(self._client, outputs, topics, self._compiled)
        except KafkaException as error:
            raise self._failure(topics, error.args[0]) from error
        self._writers.append((writer, topics))
        if time.monotonic() - self._checked > FAILURE_CHECK_INTERVAL_S:
            self._require_delivered()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._client.discard()
            return
        try:
            self._flush()
        except BaseException:
            self._client.discard()
            raise
        _producers[self._key] = self._client

    def _flush(self) -> None:
        try:
            left = self._client.flush(FLUSH_TIMEOUT_S)
        except KafkaException as error:
            topics = sorted({topic for _, topics in self._writers for topic in topics})
            raise self._failure(topics, error.args[0]) from error
        self._require_delivered()
        if left or self._writers:
            servers = self._config.bootstrap_servers
            text = f"{left} outputs were not accepted by {servers} within {FLUSH_TIMEOUT_S:.0f} s"
            raise BrokerUnavailable(text, bootstrap_servers=servers)

    def _connect(self) -> ReconnectingProducer:
        while _producers:  # an earlier deployment's
            _producers.popitem()[1].discard()
        plugin = {} if self._compiled is None else self._compiled.producer_settings
        _, compression, batch_bytes = self._key
        settings = {**QUEUE_SETTINGS, "compression.type": compression, "batch.size": str(batch_bytes)}
        return producer(self._config, **{**settings, **self._config.properties, **plugin})

    def _failure(self, topics: Sequence[str], error: KafkaError) -> WasmlineError:
        return delivery_error(self._config, ", ".join(topics), reason_of(self._client, error))

    def _require_delivered(self) -> None:
        self._checked = time.monotonic()
        waiting = []
        for writer, topics in self._writers:
            unanswered, failed = writer.answers()
            for _, error in failed:
                raise self._failure(topics, error)
            if unanswered:
                waiting.append((writer, topics))
        self._writers = waiting
