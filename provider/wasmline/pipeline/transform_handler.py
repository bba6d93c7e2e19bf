"""A deployment as a handler of the key-parallel consumer: one guest per thread, many keys per call."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from wasmline import dead_letters, provenance
from wasmline.consumer import BatchResult, ConsumedRecord, Output
from wasmline.control import Deployment, DeploymentSpec, ModuleStore
from wasmline.documents import encode
from wasmline.errors import HandlerBroken, InvalidBatch, TooManyFailures, TransformError
from wasmline.kafka import KafkaConfig, Topics
from wasmline.pipeline.batch_stats import BatchStats, log_batch_stats
from wasmline.pipeline.failure_window import FailureWindow
from wasmline.pipeline.preflight import start_module
from wasmline.pipeline.record_sizes import MAX_ADDED_BYTES, Limits, header_bytes, spare_bytes
from wasmline.printable import printable
from wasmline.record_batches import header_pairs, record_batch
from wasmline.topic_partitions import TopicPartition
from wasmline.wasm import TransformInstance, TransformResult

logger = logging.getLogger(__name__)

MAX_CALL_RECORDS = 1_000
"""Maximum records of one call of a module: a call for each record would cost tens of microseconds."""

MAX_OUTPUT_BYTES = 2**30
"""Maximum size of the outputs of a call with several records; above it, each record has its own call."""

LOG_LEVELS = {"INFO": logging.INFO, "WARN": logging.WARNING}


_handlers: dict[bytes, TransformHandler] = {}
_handlers_lock = threading.Lock()


def transform_handler(config: KafkaConfig, deployment: Deployment) -> TransformHandler:
    """Return the handler of a deployment, cached in this process until another deployment is requested.

    Thread-safe; concurrent calls wait while the handler is created. Raises the errors of TransformHandler,
    VersionNotFound, TopicNotFound and BrokerUnavailable.
    """
    spec = deployment.spec
    key = encode(spec)
    with _handlers_lock:
        handler = _handlers.get(key)
        if handler is None:
            forget()
            limits = Topics(config).record_limits(spec.output_topics)
            wasm = ModuleStore(config).get(spec.digest, deployment.module_offsets)
            handler = _handlers[key] = TransformHandler(spec, wasm, limits)
        return handler


def forget() -> None:
    """Clear the cache of ``transform_handler``: the next handler starts with an empty failure window."""
    _handlers.clear()


class TransformHandler:
    """Runs the module of one deployment; a HandlerFactory, for consumers with a ``batch_size`` of one topic.

    An output is written with the timestamp of its input, and with the provenance header, unless it might exceed its
    topic's limit in ``limits`` with it. A record on which the guest fails has its TransformError; a rejection is
    written to the dead-letter topic, with headers that name its origin. The guest's log lines go to this module's
    logger. The consumer ends with HandlerBroken if the module is at fault, not its records: more than
    ``max_failure_share`` of a window over all threads failed, or a new guest cannot start.
    """

    def __init__(
        self,
        spec: DeploymentSpec,
        wasm: bytes,
        limits: Limits | None = None,
        *,
        max_output_bytes: int = MAX_OUTPUT_BYTES,
    ) -> None:
        """Compile the module and start it once. Raises its ModuleError or TransformError."""
        self.spec = spec
        self.limits = limits or {}
        self.max_output_bytes = max_output_bytes
        self.listener: Callable[[BatchStats], None] | None = None
        """Receives log lines in place of the logger, on any thread."""
        self._module = start_module(spec, wasm)
        self._window = FailureWindow(spec.max_failure_share)
        self._lock = threading.Lock()

    @property
    def origin(self) -> list[dead_letters.Header]:
        """The headers with the module's origin: ``dead_letter_headers`` of the consumer."""
        return dead_letters.origin(transform=f"{self.spec.name}@{self.spec.version}", digest=self.spec.digest)

    def make(self) -> ThreadHandler:
        """Return the handler of one thread. Raises HandlerBroken."""
        try:
            return ThreadHandler(self, self._instantiate())
        except TransformError as error:
            raise self.broken_error(error) from error

    def judge(self, records: int, failures: int) -> None:
        """Count the records and failures of a call. Raises TooManyFailures."""
        with self._lock:
            self._window.add(records, failures)

    def broken_error(self, error: Exception) -> HandlerBroken:
        """Return the error with which the consumer ends."""
        return HandlerBroken(f"{self.spec.name}@{self.spec.version} is at fault, not its records: {error}")

    def _instantiate(self) -> TransformInstance:
        return self._module.instantiate(self.spec.context(), self.spec.limits())


class ThreadHandler:
    """Calls one guest with the records of one partition at a time."""

    def __init__(self, handler: TransformHandler, instance: TransformInstance) -> None:
        self._handler = handler
        self._instance = instance
        self._topics = handler.spec.output_topics
        self._limits = [handler.limits.get(topic) for topic in self._topics]
        self._writer = handler.spec.provenance_writer()

    def __call__(self, records: Sequence[ConsumedRecord]) -> BatchResult:
        topics, partitions, offsets, keys, values, headers, timestamps, _ = zip(*records, strict=True)
        batch = record_batch(
            keys=keys, values=values, headers=headers, timestamps=timestamps, partitions=partitions, offsets=offsets
        )
        try:
            result = self._result(batch)
            self._handler.judge(len(records), len(result.failures))
        except InvalidBatch:  # too large for one call: the records are retried one by one
            raise
        except (TransformError, TooManyFailures) as error:
            raise self._handler.broken_error(error) from error
        self._log(result)
        rows, outputs = self._outputs(TopicPartition(topics[0], partitions[0]), offsets, timestamps, result.outputs)
        return BatchResult(outputs, {failure.row: failure.error for failure in result.failures}, rows)

    def close(self) -> None:
        """Free the guest."""
        self._instance.close()

    def _result(self, batch: pa.RecordBatch) -> TransformResult:
        """Return the module's result for a batch. Raises InvalidBatch if several records have too large outputs."""
        parts: list[TransformResult] = []
        most, size = self._handler.max_output_bytes, 0
        for part in self._instance.parts(batch):
            parts.append(part)
            size += part.outputs.get_total_buffer_size()
            if size > most and batch.num_rows > 1:
                raise InvalidBatch(f"the outputs of {batch.num_rows} records take more than {most} bytes")
        return TransformResult.joined(parts)

    def _outputs(
        self, source: TopicPartition, offsets: Sequence[int], timestamps: Sequence[int], written: pa.RecordBatch
    ) -> tuple[list[int], list[Output]]:
        """Return the outputs of a guest, and the input row of each."""
        rows, places, keys, values = (written.column(name).to_pylist() for name in ("row", "output", "key", "value"))
        column = provenance.without_header(written.column("headers"))
        headers, spare = header_pairs(column), self._spare_bytes(written)
        outputs = []
        for number, (row, place, pairs) in enumerate(zip(rows, places, headers, strict=True)):
            if self._topics[place] == self._handler.spec.dead_letter_topic:
                named = dead_letters.provenance(self._handler.origin, source, offsets[row])
                pairs = dead_letters.rejected(keys[number], values[number], pairs, named).headers
            elif self._writer is not None:
                value = self._writer.value(source.partition, offsets[row])
                if spare is None or spare[number] >= header_bytes(value):
                    pairs = [*pairs, (provenance.NAME, value)]
            outputs.append(Output(self._topics[place], values[number], keys[number], pairs, timestamps[row]))
        return rows, outputs

    def _spare_bytes(self, written: pa.RecordBatch) -> NDArray[np.int64] | None:
        """Return ``spare_bytes`` of the outputs; None where each of them can have provenance."""
        least = min((limit for limit in self._limits if limit is not None), default=None)
        if least is None or 2 * written.get_total_buffer_size() + MAX_ADDED_BYTES <= least:
            return None
        return spare_bytes(written, self._limits)

    def _log(self, result: TransformResult) -> None:
        name, listener = self._handler.spec.name, self._handler.listener
        if listener is not None:
            if result.logs or result.logs_dropped:
                listener(log_batch_stats(result))
            return
        for line in result.logs:
            logger.log(LOG_LEVELS[line.level], "%s: %s", name, printable(line.text.removesuffix("\n"), lines=True))
        if result.logs_dropped:
            logger.warning("%s: %d more lines exceeded the log limit", name, result.logs_dropped)
