"""One deployment as a function from input records to records of its topics: outputs, and dead letters with reasons."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from wasmline import dead_letters
from wasmline.deploy import Deployment
from wasmline.errors import TooManyFailures, TransformError
from wasmline.records import HEADERS, TopicPartition
from wasmline.wasm import LogLine, RecordFailure, TransformInstance

SINK_SCHEMA = pa.schema(
    [
        pa.field("topic", pa.string(), nullable=False),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", HEADERS),
    ]
)
"""Records on their way to a topic; their partition follows from the key."""

WINDOW = 100
"""Records at least over which the share of failures is judged."""

MAX_REASONS = 50
MAX_LABEL = 80
OTHER = "other"
MAX_LOG_LINES = 200


@dataclass(slots=True)
class Tally:
    """What one or more runs of a pipeline did. Tallies add up: tasks send theirs to the driver.

    ``records_in`` and ``records_out`` count by input partition, ``dead_letters`` by input partition and reason;
    ``failures`` are those dead letters that the host, not the guest, decided on.
    """

    records_in: Counter[int] = field(default_factory=Counter)
    records_out: Counter[int] = field(default_factory=Counter)
    dead_letters: Counter[tuple[int, str]] = field(default_factory=Counter)
    failures: int = 0
    logs: list[str] = field(default_factory=list)
    logs_dropped: int = 0

    def __iadd__(self, other: Tally) -> Tally:
        self.records_in.update(other.records_in)
        self.records_out.update(other.records_out)
        for (partition, label), count in other.dead_letters.items():
            self._count(partition, label, count)
        self.failures += other.failures
        room = MAX_LOG_LINES - len(self.logs)
        self.logs.extend(other.logs[:room])
        self.logs_dropped += other.logs_dropped + max(0, len(other.logs) - room)
        return self

    def letter(self, partition: int, error: str, reason: str) -> None:
        """Count a dead letter under its error and the category of its reason, the part before the first colon."""
        rejected = error == dead_letters.REJECTED
        self._count(partition, f"{error}: {reason.partition(':')[0][:MAX_LABEL]}" if rejected else error, 1)
        self.failures += not rejected

    def _count(self, partition: int, label: str, count: int) -> None:
        known = {label for _, label in self.dead_letters}
        self.dead_letters[partition, label if label in known or len(known) < MAX_REASONS else OTHER] += count

    def reasons(self) -> dict[str, int]:
        """Return the dead letters by reason, the most frequent first."""
        total: Counter[str] = Counter()
        for (_, label), count in self.dead_letters.items():
            total[label] += count
        return dict(total.most_common())


class FailureWindow:
    """Judges the share of failed records over windows of WINDOW records or more, a batch at a time."""

    def __init__(self, max_share: float) -> None:
        self._max_share = max_share
        self._records = 0
        self._failures = 0

    def add(self, records: int, failures: int) -> None:
        """Raise TooManyFailures once a full window has a larger share of failures than allowed."""
        self._records += records
        self._failures += failures
        if self._records < WINDOW:
            return
        share = self._failures / self._records
        if share > self._max_share:
            text = f"{self._failures} of {self._records} records failed, the allowed share is {self._max_share:.0%}"
            raise TooManyFailures(text, share=share)
        self._records = self._failures = 0


class TransformPipeline:
    """Runs batches of one input topic through one instance.

    ``run`` gives the outputs in input order, then the dead letters in input order. Without a dead-letter topic a
    failing record raises its TransformError, with the record's place: nothing is dropped silently.
    """

    def __init__(self, deployment: Deployment, instance: TransformInstance, tally: Tally) -> None:
        self._spec = deployment.spec
        self._instance = instance
        self._tally = tally
        self._window = FailureWindow(deployment.spec.max_failure_share)
        self._topics = pa.array(self._spec.output_topics, pa.string())

    def run(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Transform a batch of RECORD_SCHEMA into one of SINK_SCHEMA. Raises TooManyFailures to protect the topic."""
        partitions = batch.column("partition")
        self._count(self._tally.records_in, partitions)
        result = self._instance.transform(batch)
        self._window.add(batch.num_rows, len(result.failures))
        self._log(result.logs, result.logs_dropped)
        outputs = result.outputs
        rejected = self._rejected(outputs)
        letters = [*self._rejections(batch, outputs.filter(rejected)), *self._failures(batch, result.failures)]
        letters.sort(key=lambda letter: letter[0])
        plain = outputs.filter(pc.invert(rejected)) if letters else outputs
        self._count(self._tally.records_out, partitions.take(plain.column("row")))
        return _concatenated(self._plain(plain), [letter for _, letter in letters])

    def _rejected(self, outputs: pa.RecordBatch) -> pa.Array:
        letters = [i for i, topic in enumerate(self._spec.output_topics) if topic == self._spec.dead_letter_topic]
        return pc.is_in(outputs.column("output"), value_set=pa.array(letters, pa.int32()))

    def _plain(self, outputs: pa.RecordBatch) -> pa.RecordBatch:
        topics = self._topics.take(outputs.column("output"))
        columns = [topics, outputs.column("key"), outputs.column("value"), outputs.column("headers")]
        return pa.RecordBatch.from_arrays(columns, schema=SINK_SCHEMA)

    def _rejections(self, batch: pa.RecordBatch, letters: pa.RecordBatch) -> Iterable[tuple[int, dict[str, Any]]]:
        for letter in letters.to_pylist():
            headers = [(header["key"], header["value"]) for header in letter["headers"] or []]
            reason = next((value or b"" for key, value in headers if key == dead_letters.REASON), b"")
            row = letter["row"]
            self._tally.letter(batch["partition"][row].as_py(), dead_letters.REJECTED, reason.decode(errors="replace"))
            headers.append((dead_letters.ERROR, dead_letters.REJECTED.encode()))
            yield row, self._letter(batch, row, letter["key"], letter["value"], headers)

    def _failures(
        self, batch: pa.RecordBatch, failures: tuple[RecordFailure, ...]
    ) -> Iterable[tuple[int, dict[str, Any]]]:
        for failure in failures:
            if self._spec.dead_letter_topic is None:
                raise self._placed(failure.error)
            record = batch.slice(failure.row, 1).to_pylist()[0]
            error, reason = type(failure.error).__name__, str(failure.error)
            self._tally.letter(record["partition"], error, reason)
            headers = [(header["key"], header["value"]) for header in record["headers"] or []]
            headers += dead_letters.failure(error=error, reason=reason)
            yield failure.row, self._letter(batch, failure.row, record["key"], record["value"], headers)

    def _placed(self, error: TransformError) -> TransformError:
        """Return the error with the record's place in its message, which nothing else will tell."""
        error.args = (f"{self._spec.input_topic}, partition {error.partition}, offset {error.offset}: {error}",)
        return error

    def _letter(
        self,
        batch: pa.RecordBatch,
        row: int,
        key: bytes | None,
        value: bytes | None,
        headers: list[dead_letters.Header],
    ) -> dict[str, Any]:
        source = TopicPartition(self._spec.input_topic, batch["partition"][row].as_py())
        provenance = dead_letters.provenance(
            transform=f"{self._spec.name}@{self._spec.version}",
            digest=self._spec.digest,
            source=source,
            offset=batch["offset"][row].as_py(),
        )
        return {
            "topic": self._spec.dead_letter_topic,
            "key": key,
            "value": value,
            "headers": [{"key": name, "value": text} for name, text in (*headers, *provenance)],
        }

    def _log(self, lines: tuple[LogLine, ...], dropped: int) -> None:
        texts = [f"{line.level} {line.text}".removesuffix("\n") for line in lines]
        self._tally += Tally(logs=texts, logs_dropped=dropped)

    @staticmethod
    def _count(counter: Counter[int], partitions: pa.Array) -> None:
        for count in partitions.value_counts().to_pylist():
            counter[count["values"]] += count["counts"]


def _concatenated(plain: pa.RecordBatch, letters: list[dict[str, Any]]) -> pa.RecordBatch:
    if not letters:
        return plain
    return pa.concat_batches([plain, pa.RecordBatch.from_pylist(letters, schema=SINK_SCHEMA)])
