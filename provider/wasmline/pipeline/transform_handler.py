"""A deployment as a handler of the key-parallel consumer: one guest per thread, many keys per call."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from wasmline import dead_letters, provenance
from wasmline.consumer import BatchResult, ConsumedRecord
from wasmline.consumer.columns import ColumnResult, OutputColumns, RecordColumns
from wasmline.control import Deployment, DeploymentSpec, ModuleStore
from wasmline.documents import encode
from wasmline.errors import HandlerBroken, InvalidBatch, TooManyFailures, TransformError
from wasmline.kafka import KafkaConfig, Topics
from wasmline.pipeline.batch_stats import BatchStats, log_batch_stats
from wasmline.pipeline.failure_window import FailureWindow
from wasmline.pipeline.preflight import start_module
from wasmline.pipeline.record_sizes import Limits, fitting_provenance
from wasmline.printable import printable
from wasmline.record_batches import TIMED_OUTPUT_SCHEMA, header_pairs, merged_headers, pair_column
from wasmline.wasm import TransformInstance, TransformResult

logger = logging.getLogger(__name__)

MAX_CALL_RECORDS = 10_000
"""Maximum records of one call of a module: the host's part of a call takes a fraction of a millisecond."""

BUFFERED_RECORDS = 131_072
"""Records that a consumer of a module holds: some calls of each partition, so that reading does not wait for them."""

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

    takes_columns = True

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
        self._origin = handler.origin
        self._topics = handler.spec.output_topics
        self._limits = [handler.limits.get(topic) for topic in self._topics]
        self._writer = handler.spec.provenance_writer()
        numbers = [place for place, topic in enumerate(self._topics) if topic == handler.spec.dead_letter_topic]
        self._dead_letter_outputs = pa.array(numbers, pa.int32())

    def __call__(self, records: Sequence[ConsumedRecord]) -> BatchResult:
        result = self.handle_columns(RecordColumns.of(records))
        return BatchResult(result.outputs.outputs(), result.failures, result.outputs.rows)

    def handle_columns(self, columns: RecordColumns) -> ColumnResult:
        """Return the outputs of records, rejections as dead letters, and the failures by row."""
        try:
            result = self._result(columns.batch)
            self._handler.judge(len(columns), len(result.failures))
        except InvalidBatch:  # too large for one call: the records are retried one by one
            raise
        except (TransformError, TooManyFailures) as error:
            raise self._handler.broken_error(error) from error
        self._log(result)
        outputs = OutputColumns(self._topics, self._written(columns, result.outputs))
        return ColumnResult(outputs, {failure.row: failure.error for failure in result.failures})

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

    def _written(self, columns: RecordColumns, outputs: pa.RecordBatch) -> pa.RecordBatch:
        """Return a guest's outputs with timestamps, provenance, and the headers of dead letters for rejections."""
        batch, rows = columns.batch, outputs.column("row")
        headers = provenance.without_header(outputs.column("headers"))
        rejected = pc.is_in(outputs.column("output"), value_set=self._dead_letter_outputs)
        rejections = np.flatnonzero(rejected.to_numpy(zero_copy_only=False))
        if len(rejections):
            headers = self._with_rejections(headers, rejections, columns, rows)
        if self._writer is not None:
            values = self._writer.column(pa.scalar(columns.partition.partition), batch["offset"].take(rows))
            values = fitting_provenance(values, outputs, self._limits)
            headers = provenance.with_header(headers, pc.if_else(rejected, pa.scalar(None, pa.binary()), values))
        timestamps = batch["timestamp"].cast(pa.int64()).take(rows)
        written = [rows, outputs["output"], outputs["key"], outputs["value"], headers, timestamps]
        return pa.RecordBatch.from_arrays(written, schema=TIMED_OUTPUT_SCHEMA)

    def _with_rejections(
        self, headers: pa.ListArray, places: NDArray[np.int64], columns: RecordColumns, rows: pa.Array
    ) -> pa.ListArray:
        """Return the headers of outputs with those of dead letters at some places, which ascend."""
        offsets = columns.offsets[rows.to_numpy()[places]].tolist()
        letters = [
            [*dead_letters.rejection(pairs), *dead_letters.provenance(self._origin, columns.partition, offset)]
            for pairs, offset in zip(header_pairs(headers.take(pa.array(places))), offsets, strict=True)
        ]
        made = pair_column([pair for letter in letters for pair in letter])
        owners = np.repeat(places, [len(letter) for letter in letters])
        rows_of_pairs = pc.list_parent_indices(headers).to_numpy()
        others = np.isin(rows_of_pairs, places, invert=True)
        kept = pc.list_flatten(headers).filter(pa.array(others))
        return merged_headers(len(headers), [(rows_of_pairs[others], kept), (owners, made)])

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
