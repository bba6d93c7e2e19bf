"""Records and outputs as Arrow columns, for handlers that compute: no Python object for each of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from wasmline.consumer.options import NullKeys, Ordering
from wasmline.consumer.records import ConsumedRecord, Output
from wasmline.errors import HandlerBroken
from wasmline.record_batches import TIMED_OUTPUT_SCHEMA, header_pairs, record_batch
from wasmline.topic_partitions import TopicPartition


class RecordColumns:
    """Records of one partition as a batch of RECORD_SCHEMA, by ascending offset; at least one."""

    __slots__ = ("batch", "first", "last", "offsets", "partition", "size")

    def __init__(self, partition: TopicPartition, batch: pa.RecordBatch, size: int | None = None) -> None:
        """``size``: if it is known."""
        self.partition = partition
        self.batch = batch
        self.offsets = batch.column("offset").to_numpy()
        self.first = int(self.offsets[0])
        """The first offset."""
        self.last = int(self.offsets[-1])
        self.size = data_bytes(batch) if size is None else size
        """Bytes of the keys, the values and the headers, as those of records."""

    @classmethod
    def of(cls, records: Sequence[ConsumedRecord]) -> RecordColumns:
        """Return records of one partition as columns."""
        topics, partitions, offsets, keys, values, headers, timestamps, _ = zip(*records, strict=True)
        batch = record_batch(
            keys=keys, values=values, headers=headers, timestamps=timestamps, partitions=partitions, offsets=offsets
        )
        return cls(TopicPartition(topics[0], partitions[0]), batch)

    @classmethod
    def joined(cls, parts: Sequence[RecordColumns]) -> RecordColumns:
        """Return consecutive records of one partition together."""
        if len(parts) == 1:
            return parts[0]
        return cls(parts[0].partition, pa.concat_batches([part.batch for part in parts]))

    def __len__(self) -> int:
        return len(self.offsets)

    def above(self, offset: int | None) -> tuple[RecordColumns | None, int | None]:
        """Return the records from an offset on, each once, and the first offset that is below it or comes again.

        A client may return records twice, and it returns those of a log that was rewritten.
        """
        highest = np.maximum.accumulate(np.concatenate([[-1 if offset is None else offset - 1], self.offsets[:-1]]))
        is_new = self.offsets > highest
        if is_new.all():
            return self, None
        rows = np.flatnonzero(is_new)
        return self.take(rows) if len(rows) else None, int(self.offsets[np.argmin(is_new)])

    def slice(self, begin: int, rows: int) -> RecordColumns:
        """Return so many records from row ``begin`` on."""
        return RecordColumns(self.partition, self.batch.slice(begin, rows))

    def take(self, rows: NDArray[np.int64]) -> RecordColumns:
        """Return the records of some rows, which ascend."""
        return RecordColumns(self.partition, self.batch.take(pa.array(rows)))

    def records(self) -> list[ConsumedRecord]:
        """Return the records as Python objects."""
        columns = self.batch
        topic, partition = self.partition
        return [
            ConsumedRecord(topic, partition, offset, key, value, headers, timestamp)
            for offset, key, value, headers, timestamp in zip(
                columns.column("offset").to_pylist(),
                columns.column("key").to_pylist(),
                columns.column("value").to_pylist(),
                header_pairs(columns.column("headers")),
                columns.column("timestamp").cast(pa.int64()).to_pylist(),
                strict=True,
            )
        ]

    def record(self, row: int) -> ConsumedRecord:
        """Return one record as a Python object."""
        return self.slice(row, 1).records()[0]

    def split(self, parts: int, ordering: Ordering, null_keys: NullKeys) -> list[NDArray[np.int64]]:
        """Return the rows of up to ``parts`` parts, of which no two have records that wait for each other."""
        if parts < 2 or ordering is Ordering.PARTITION:
            return [np.arange(len(self))]
        rows = np.arange(len(self))
        numbers = rows % parts
        if ordering is Ordering.KEY:
            keys = self.batch.column("key")
            of_key = pc.fill_null(keys.dictionary_encode().indices, -1).to_numpy(zero_copy_only=False)
            is_free = (of_key < 0) & (null_keys is NullKeys.UNORDERED)
            numbers = np.where(is_free, numbers, (of_key + 1) % parts)
        found = [rows[numbers == part] for part in range(parts)]
        return [each for each in found if len(each)]


def by_partition(records: Sequence[ConsumedRecord]) -> list[RecordColumns]:
    """Return records as columns, those of a partition in their order."""
    ordered = sorted(records, key=attrgetter("topic", "partition"))
    return [RecordColumns.of(list(each)) for _, each in groupby(ordered, key=attrgetter("topic", "partition"))]


class OutputColumns:
    """The outputs of one call: a batch of TIMED_OUTPUT_SCHEMA, whose column ``output`` is an index into ``topics``."""

    __slots__ = ("batch", "size", "topics")

    def __init__(self, topics: Sequence[str], batch: pa.RecordBatch) -> None:
        self.topics = topics
        self.batch = batch
        self.size = data_bytes(batch)
        """Bytes of the keys, the values and the headers, as those of outputs."""

    def __len__(self) -> int:
        return int(self.batch.num_rows)

    @property
    def rows(self) -> list[int]:
        """The input row of each output."""
        found: list[int] = self.batch.column("row").to_pylist()
        return found

    @property
    def headers(self) -> list[Sequence[tuple[str, bytes | None]]]:
        """The headers of each output."""
        return header_pairs(self.batch.column("headers"))

    @property
    def topics_written(self) -> list[str]:
        """The topics of the outputs, each once."""
        return [self.topics[number] for number in self.batch.column("output").unique().to_pylist()]

    def of_topic(self, topic: str | None) -> OutputColumns:
        """Return the outputs to one topic."""
        numbers = [number for number, each in enumerate(self.topics) if each == topic]
        if not numbers:
            return OutputColumns(self.topics, self.batch.slice(0, 0))
        chosen = pc.is_in(self.batch.column("output"), value_set=pa.array(numbers, pa.int32()))
        return OutputColumns(self.topics, self.batch.filter(chosen))

    def outputs(self) -> list[Output]:
        """Return the outputs as Python objects."""
        columns = self.batch
        return [
            Output(self.topics[number], value, key, headers, timestamp)
            for number, value, key, headers, timestamp in zip(
                columns.column("output").to_pylist(),
                columns.column("value").to_pylist(),
                columns.column("key").to_pylist(),
                self.headers,
                columns.column("timestamp").to_pylist(),
                strict=True,
            )
        ]

    def output(self, number: int) -> Output:
        """Return one output as a Python object."""
        return OutputColumns(self.topics, self.batch.slice(number, 1)).outputs()[0]


def require_valid(result: object, records: int) -> ColumnResult:
    """Return a handler's result for so many records, without outputs of those that failed.

    Raises HandlerBroken: a wrong one is not the fault of a record.
    """
    if not isinstance(result, ColumnResult):
        raise HandlerBroken(f"the handler returned {type(result).__name__} for columns, not a ColumnResult")
    if not isinstance(result.outputs, OutputColumns) or not isinstance(result.failures, Mapping):
        kinds = f"{type(result.outputs).__name__} and {type(result.failures).__name__}"
        raise HandlerBroken(f"the handler returned a ColumnResult of {kinds}, not of OutputColumns and a mapping")
    rows = _require_valid_outputs(result.outputs, records)
    for row, failure in result.failures.items():
        if not isinstance(row, int) or not 0 <= row < records or not isinstance(failure, Exception):
            raise HandlerBroken(
                f"the handler reports that row {row!r} of {records} failed with {type(failure).__name__}"
            )
    if not result.failures:
        return result
    succeeded = pa.array(~np.isin(rows, list(result.failures)))
    outputs = OutputColumns(result.outputs.topics, result.outputs.batch.filter(succeeded))
    return ColumnResult(outputs, result.failures)


def _require_valid_outputs(outputs: OutputColumns, records: int) -> NDArray[np.int32]:
    """Return the rows of a handler's outputs. Raises HandlerBroken."""
    batch = outputs.batch
    if not batch.schema.equals(TIMED_OUTPUT_SCHEMA):
        raise HandlerBroken(
            f"the outputs of the handler have the columns {batch.schema.names}, not those of the contract"
        )
    try:
        batch.validate(full=True)
    except pa.ArrowInvalid as error:
        raise HandlerBroken(f"the outputs of the handler are no columns of the contract: {error}") from error
    pairs = pc.list_flatten(batch.column("headers"))
    if (
        pairs.null_count
        or pc.struct_field(pairs, 0).null_count
        or any(batch.column(name).null_count for name in ("row", "output", "timestamp"))
    ):
        raise HandlerBroken("an output of the handler has no row, topic, timestamp or name of a header")
    rows: NDArray[np.int32] = batch.column("row").to_numpy()
    topics = batch.column("output").to_numpy()
    if len(rows) and (rows[0] < 0 or rows[-1] >= records or (rows[1:] < rows[:-1]).any()):
        raise HandlerBroken(f"the outputs of the handler are not in the order of the rows 0 to {records - 1}")
    if len(topics) and (topics.min() < 0 or topics.max() >= len(outputs.topics)):
        raise HandlerBroken(f"the outputs of the handler name other topics than {', '.join(outputs.topics)}")
    return rows


def data_bytes(batch: pa.RecordBatch) -> int:
    """Return the bytes of the keys, the values and the headers of a batch."""
    columns = [batch.column("key"), batch.column("value")]
    headers = batch.column("headers")
    if headers.null_count < len(headers):
        pairs = pc.list_flatten(headers)
        columns += [pc.struct_field(pairs, 0), pc.struct_field(pairs, 1)]
    return sum(pc.sum(pc.binary_length(column)).as_py() or 0 for column in columns)


@dataclass(frozen=True, slots=True)
class ColumnResult:
    """The result of a call with columns: its outputs by ascending row, and the failed records by their row."""

    outputs: OutputColumns
    failures: Mapping[int, Exception] = field(default_factory=dict)

    @classmethod
    def joined(cls, parts: Sequence[tuple[NDArray[np.int64], ColumnResult]]) -> ColumnResult:
        """Return the results of parts of a batch, each with its rows, as that of the batch. Raises HandlerBroken."""
        if len(parts) == 1:
            return parts[0][1]
        if len({tuple(result.outputs.topics) for _, result in parts}) > 1:
            raise HandlerBroken("the handler returned other topics for one part of the records than for another")
        failures: dict[int, Exception] = {}
        batches = []
        for rows, result in parts:
            failures |= {int(rows[row]): error for row, error in result.failures.items()}
            written = result.outputs.batch
            number = written.schema.get_field_index("row")
            of_batch = pa.array(rows[written.column("row").to_numpy()], pa.int32())
            batches.append(written.set_column(number, written.schema.field(number), of_batch))
        together = pa.concat_batches(batches)
        order = np.argsort(together.column("row").to_numpy(), kind="stable")
        return cls(OutputColumns(parts[0][1].outputs.topics, together.take(pa.array(order))), failures)
