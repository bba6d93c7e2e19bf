"""A function of one record as a handler that takes columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from wasmline.consumer import ConsumedRecord, Output
from wasmline.consumer.columns import ColumnResult, OutputColumns, RecordColumns
from wasmline.record_batches import TIMED_OUTPUT_SCHEMA

One = Callable[[ConsumedRecord], Sequence[Output]]


def output_columns(outputs: Sequence[Output], rows: Sequence[int]) -> OutputColumns:
    """Return outputs, each of a row, as columns. They have no partition, and all have a timestamp."""
    topics = sorted({each.topic for each in outputs})
    values = [
        {
            "row": row,
            "output": topics.index(each.topic),
            "key": each.key,
            "value": each.value,
            "headers": [{"key": name, "value": value} for name, value in each.headers],
            "timestamp": each.timestamp or 0,
        }
        for each, row in zip(outputs, rows, strict=True)
    ]
    return OutputColumns(topics, pa.RecordBatch.from_pylist(values, schema=TIMED_OUTPUT_SCHEMA))


class ColumnHandlers:
    """Handlers that call ``one`` for each record. ``before`` is called first, and may fail a call as a whole.

    sizes: the numbers of records of the calls with columns; singles: the offsets of the calls with records.
    """

    takes_columns = True

    def __init__(self, one: One, before: Callable[[Sequence[ConsumedRecord]], None] | None = None) -> None:
        self.sizes: list[int] = []
        self.singles: list[int] = []
        self._one = one
        self._before = before

    def make(self) -> ColumnHandlers:
        return self

    def __call__(self, records: Sequence[ConsumedRecord]) -> list[Output]:
        self.singles += [record.offset for record in records]
        if self._before is not None:
            self._before(records)
        return [output for record in records for output in self._one(record)]

    def handle_columns(self, columns: RecordColumns) -> ColumnResult:
        records = columns.records()
        self.sizes.append(len(records))
        if self._before is not None:
            self._before(records)
        failures: dict[int, Exception] = {}
        outputs: list[Output] = []
        rows: list[int] = []
        for row, record in enumerate(records):
            try:
                made = self._one(record)
            except ValueError as error:
                failures[row] = error
                continue
            outputs += made
            rows += [row] * len(made)
        return ColumnResult(output_columns(outputs, rows), failures)
