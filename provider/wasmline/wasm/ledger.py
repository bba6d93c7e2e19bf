"""The account of one batch: outputs, failures and log lines, gathered slice by slice and closed as one result."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from wasmline.errors import GuestProtocolError, InvalidBatch, TransformError
from wasmline.records import OUTPUT_SCHEMA
from wasmline.wasm.outbox import check_total, rows_with_unfit_keys
from wasmline.wasm.result import LogLine, RecordFailure, TransformResult


class Ledger:
    """Holds a batch's results while it is served. Rows are the caller's."""

    def __init__(self) -> None:
        self._outputs: list[pa.RecordBatch] = []
        self._bytes = 0
        self._failures: dict[int, TransformError] = {}
        self._logs: list[LogLine] = []
        self._logs_dropped = 0

    def write(self, outputs: list[pa.RecordBatch], *, before: int | None = None) -> None:
        """Take all outputs, or those of the rows before one; the others are of records that failed.

        Raises InvalidBatch if the batch's outputs are too many.
        """
        for chunk in outputs:
            if before is not None:
                chunk = chunk.slice(0, int(np.searchsorted(chunk.column("row").to_numpy(), before)))
            if chunk.num_rows:
                self._outputs.append(chunk)
                self._bytes += chunk.get_total_buffer_size()  # of all that a slice holds on to; nbytes is dear
        check_total(self._bytes)

    def fail(self, row: int, error: TransformError) -> None:
        """Count a row as failed."""
        self._failures[row] = error

    def log(self, lines: list[LogLine], dropped: int) -> None:
        """Take log lines and the number of those that found no room."""
        self._logs += lines
        self._logs_dropped += dropped

    def close(self, batch: pa.RecordBatch) -> TransformResult:
        """Return the result for a batch, whose columns name the records that failed.

        A row that wrote a header key Arrow cannot hold is failed here, with all its outputs.
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
            rows = outputs.column("row").to_numpy()
            outputs = outputs.filter(pa.array(~np.isin(rows, sorted(unfit))))
        return TransformResult(
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
        try:
            return pa.concat_batches(self._outputs)
        except pa.ArrowInvalid as error:
            raise InvalidBatch(
                f"the outputs of a batch outgrow an Arrow column: transform fewer records at once ({error})"
            ) from error


def _failure(batch: pa.RecordBatch, row: int, error: TransformError) -> RecordFailure:
    error.partition, error.offset = batch["partition"][row].as_py(), batch["offset"][row].as_py()
    return RecordFailure(row=row, error=error)


_EMPTY = pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in OUTPUT_SCHEMA], schema=OUTPUT_SCHEMA)
