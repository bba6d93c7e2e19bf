"""Maps input records to the output records of one deployment, and to dead letters with reasons."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from wasmline import dead_letters, provenance
from wasmline.control import Deployment
from wasmline.dead_letters import DeadLetter
from wasmline.errors import RecordTooLarge, TransformError
from wasmline.pipeline.batch_stats import BatchStats, log_batch_stats
from wasmline.pipeline.failure_window import FailureWindow
from wasmline.pipeline.record_sizes import Limits, batch_bytes, fitting_provenance, oversize_outputs, spare_bytes
from wasmline.record_batches import HEADERS, OUTPUT_SCHEMA
from wasmline.topic_partitions import TopicPartition
from wasmline.wasm import RecordFailure, TransformInstance, TransformResult

SINK_SCHEMA = pa.schema(
    [
        pa.field("topic", pa.string(), nullable=False),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", HEADERS),
    ]
)
"""Schema of records to write; the key determines the partition."""

PLACED_SCHEMA = pa.schema(
    [
        *SINK_SCHEMA,
        pa.field("timestamp", pa.int64(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
    ]
)
"""SINK_SCHEMA with the timestamp (Unix milliseconds), partition and offset of the input record of each row."""


MAX_BATCH_ROWS = 2**18
"""Maximum rows of a batch of outputs: a column of Arrow holds 2 GiB, of what the host adds to each row, too."""


class TransformRunner:
    """Runs batches of one input topic through one instance.

    ``run`` yields the outputs of a batch in input order and then its dead letters in input order; many outputs come in
    parts: those of the first rows, then those of the next. Without a dead-letter topic a failing record raises its
    TransformError, with the record's coordinates: nothing is dropped silently.

    A record with an output above its topic's limit in ``limits`` is dead-lettered; a dead letter above its topic's
    limit is truncated. An output has the provenance header, unless it might exceed its topic's limit with it.
    """

    def __init__(
        self, deployment: Deployment, instance: TransformInstance, stats: BatchStats, limits: Limits | None = None
    ) -> None:
        self._spec = deployment.spec
        self._instance = instance
        self._stats = stats
        self._window = FailureWindow(deployment.spec.max_failure_share)
        self._topics = pa.array(self._spec.output_topics, pa.string())
        known = limits or {}
        plain = [topic if topic != self._spec.dead_letter_topic else "" for topic in self._spec.output_topics]
        self._limits = [known.get(topic) for topic in plain]
        self._origin = dead_letters.origin(
            transform=f"{self._spec.name}@{self._spec.version}", digest=self._spec.digest
        )
        self._dead_letter_limit = known.get(self._spec.dead_letter_topic or "")
        self._writer = self._spec.provenance_writer()

    def run(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Transform a batch of RECORD_SCHEMA to batches of SINK_SCHEMA. Raises TooManyFailures to protect the topic."""
        for placed in self.run_placed(batch):
            yield placed.select(SINK_SCHEMA.names)

    def run_placed(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Like ``run``, but yields batches of PLACED_SCHEMA."""
        self._count(self._stats.records_in, batch.column("partition"))
        for part in map(partial(self._fitting, batch), self._instance.parts(batch)):
            self._window.add(part.rows, len(part.failures))
            self._stats += log_batch_stats(part)
            yield from self._sorted(batch, part)

    def _fitting(self, batch: pa.RecordBatch, part: TransformResult) -> TransformResult:
        """Return a part without a guest's provenance, in which the records with an output that is too large failed."""
        outputs = _with_headers(part.outputs, provenance.without_header(part.outputs.column("headers")))
        failures = self._oversize(batch, outputs)
        if not failures:
            return replace(part, outputs=outputs)
        rows = outputs.column("row")
        kept = pc.invert(pc.is_in(rows, value_set=pa.array(list(failures), rows.type)))
        failed = sorted([*part.failures, *failures.values()], key=lambda failure: failure.row)
        return replace(part, outputs=outputs.filter(kept), failures=tuple(failed))

    def _oversize(self, batch: pa.RecordBatch, outputs: pa.RecordBatch) -> dict[int, RecordFailure]:
        """Return the failures of the records with an output that is too large, by row."""
        rows: dict[int, RecordFailure] = {}
        spare = spare_bytes(outputs, self._limits)
        for place, size in oversize_outputs(outputs, spare, self._limits, self._spec.compression).items():
            row, number = (outputs.column(name)[place].as_py() for name in ("row", "output"))
            text = f"an output has {size} bytes; {self._spec.output_topics[number]} allows {self._limits[number]}"
            where = {name: batch[name][row].as_py() for name in ("partition", "offset")}
            rows.setdefault(row, RecordFailure(row=row, error=RecordTooLarge(text, **where)))
        return rows

    def _with_provenance(self, batch: pa.RecordBatch, outputs: pa.RecordBatch) -> pa.RecordBatch:
        """Return outputs with the provenance header, except those that might be too large with it."""
        if self._writer is None:
            return outputs
        rows = outputs.column("row")
        values = self._writer.column(batch["partition"].take(rows), batch["offset"].take(rows))
        values = fitting_provenance(values, outputs, self._limits)
        return _with_headers(outputs, provenance.with_header(outputs.column("headers"), values))

    def _sorted(self, batch: pa.RecordBatch, part: TransformResult) -> Iterator[pa.RecordBatch]:
        outputs = part.outputs
        rejected = self._rejected(outputs)
        rows = [*self._rejections(batch, outputs.filter(rejected)), *self._failures(batch, part.failures)]
        rows.sort(key=lambda row: row[0])
        plain = outputs.filter(pc.invert(rejected)) if rows else outputs
        self._count(self._stats.records_out, batch.column("partition").take(plain.column("row")))
        for first in range(0, max(plain.num_rows, 1), MAX_BATCH_ROWS):
            yield self._plain(batch, self._with_provenance(batch, plain.slice(first, MAX_BATCH_ROWS)))
        if rows:
            yield pa.RecordBatch.from_pylist([row for _, row in rows], schema=PLACED_SCHEMA)

    def _rejected(self, outputs: pa.RecordBatch) -> pa.Array:
        numbers = [i for i, topic in enumerate(self._spec.output_topics) if topic == self._spec.dead_letter_topic]
        return pc.is_in(outputs.column("output"), value_set=pa.array(numbers, pa.int32()))

    def _plain(self, batch: pa.RecordBatch, outputs: pa.RecordBatch) -> pa.RecordBatch:
        topics = self._topics.take(outputs.column("output"))
        times = batch.column("timestamp").cast(pa.int64())
        places = [each.take(outputs.column("row")) for each in (times, batch["partition"], batch["offset"])]
        columns = [topics, outputs.column("key"), outputs.column("value"), outputs.column("headers"), *places]
        return pa.RecordBatch.from_arrays(columns, schema=PLACED_SCHEMA)

    def _rejections(self, batch: pa.RecordBatch, rejected: pa.RecordBatch) -> Iterable[tuple[int, dict[str, Any]]]:
        for output in rejected.to_pylist():
            headers = [(header["key"], header["value"]) for header in output["headers"] or []]
            reason = next((value or b"" for key, value in headers if key == dead_letters.REASON), b"")
            row = output["row"]
            self._stats.count_dead_letter(
                batch["partition"][row].as_py(), dead_letters.REJECTED, reason.decode(errors="replace")
            )
            letter = dead_letters.rejected(output["key"], output["value"], headers, self._provenance(batch, row))
            yield row, self._dead_letter_row(batch, row, letter)

    def _failures(
        self, batch: pa.RecordBatch, failures: tuple[RecordFailure, ...]
    ) -> Iterable[tuple[int, dict[str, Any]]]:
        for failure in failures:
            if self._spec.dead_letter_topic is None:
                raise self._placed(failure.error)
            record = batch.slice(failure.row, 1).to_pylist()[0]
            self._stats.count_dead_letter(record["partition"], type(failure.error).__name__, str(failure.error))
            headers = [(header["key"], header["value"]) for header in record["headers"] or []]
            provenance = self._provenance(batch, failure.row)
            letter = dead_letters.failed(record["key"], record["value"], headers, failure.error, provenance)
            yield failure.row, self._dead_letter_row(batch, failure.row, letter)

    def _placed(self, error: TransformError) -> TransformError:
        """Return the error with the record's coordinates in its message, their only place."""
        error.args = (f"{self._spec.input_topic}, partition {error.partition}, offset {error.offset}: {error}",)
        return error

    def _provenance(self, batch: pa.RecordBatch, row: int) -> list[dead_letters.Header]:
        source = TopicPartition(self._spec.input_topic, batch["partition"][row].as_py())
        return dead_letters.provenance(self._origin, source, batch["offset"][row].as_py())

    def _dead_letter_row(self, batch: pa.RecordBatch, row: int, letter: DeadLetter) -> dict[str, Any]:
        """Return a dead letter as a row of PLACED_SCHEMA, truncated if it exceeds its topic's limit."""
        limit = self._dead_letter_limit
        if limit is not None and batch_bytes(letter.key, letter.value, letter.headers, self._spec.compression) > limit:
            letter = letter.truncated()
        return {
            "topic": self._spec.dead_letter_topic,
            "key": letter.key,
            "value": letter.value,
            "headers": [{"key": name, "value": text} for name, text in letter.headers],
            "timestamp": batch["timestamp"][row].value,
            "partition": batch["partition"][row].as_py(),
            "offset": batch["offset"][row].as_py(),
        }

    @staticmethod
    def _count(counter: Counter[int], partitions: pa.Array) -> None:
        for count in partitions.value_counts().to_pylist():
            counter[count["values"]] += count["counts"]


def _with_headers(outputs: pa.RecordBatch, headers: pa.Array) -> pa.RecordBatch:
    return outputs.set_column(OUTPUT_SCHEMA.get_field_index("headers"), OUTPUT_SCHEMA.field("headers"), headers)
