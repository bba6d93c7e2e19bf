"""Collects the outputs, failures and log lines of a part of a batch, and builds one result."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from wasmline.errors import GuestProtocolError, TransformError
from wasmline.record_batches import OUTPUT_SCHEMA
from wasmline.wasm.columns.output_columns import rows_with_unfit_keys
from wasmline.wasm.result import LogLine, RecordFailure, TransformResult


class ResultBuilder:
    """Collects the results of rows while they are served. Rows are those of the caller's batch.

    ``output_bytes`` is the size of the collected outputs.
    """

    def __init__(self) -> None:
        self.output_bytes = 0
        self._outputs: list[pa.RecordBatch] = []
        self._failures: dict[int, TransformError] = {}
        self._logs: list[LogLine] = []
        self._logs_dropped = 0

    def write(self, outputs: list[pa.RecordBatch], *, before: int | None = None) -> None:
        """Add all outputs, or those of the rows before one; the others belong to failed records."""
        for chunk in outputs:
            if before is not None:
                chunk = chunk.slice(0, int(np.searchsorted(chunk.column("row").to_numpy(), before)))
            if chunk.num_rows:
                self._outputs.append(chunk)
                self.output_bytes += chunk.get_total_buffer_size()  # includes all that a slice references; nbytes: slow

    def fail(self, row: int, error: TransformError) -> None:
        """Count a row as failed."""
        self._failures[row] = error

    def log(self, lines: list[LogLine], dropped: int) -> None:
        """Add log lines and the number of dropped ones."""
        self._logs += lines
        self._logs_dropped += dropped

    def close(self, batch: pa.RecordBatch, rows: int) -> TransformResult:
        """Return the result for a number of rows of a batch, whose columns identify the failed records.

        A row that wrote a header key that Arrow cannot hold fails here, with all its outputs.
        """
        outputs = self._joined()
        unfit = set().union(*map(rows_with_unfit_keys, self._outputs))
        if unfit:
            for row in unfit:
                self.fail(
                    row,
                    GuestProtocolError(
                        "the guest wrote a header whose key is null or not UTF-8; Kafka's header keys are text"
                    ),
                )
            written = outputs.column("row").to_numpy()
            outputs = outputs.filter(pa.array(~np.isin(written, sorted(unfit))))
        return TransformResult(
            rows=rows,
            outputs=outputs,
            failures=tuple(_failure(batch, row, self._failures[row]) for row in sorted(self._failures)),
            logs=tuple(self._logs),
            logs_dropped=self._logs_dropped,
        )

    def _joined(self) -> pa.RecordBatch:
        match self._outputs:
            case []:
                return _EMPTY
            case [only]:
                return only
        return pa.concat_batches(self._outputs)


def _failure(batch: pa.RecordBatch, row: int, error: TransformError) -> RecordFailure:
    error.partition, error.offset = batch["partition"][row].as_py(), batch["offset"][row].as_py()
    return RecordFailure(row=row, error=error)


_EMPTY = pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in OUTPUT_SCHEMA], schema=OUTPUT_SCHEMA)
