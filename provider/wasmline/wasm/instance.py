"""A transform ready for records: it survives its guest's failures and accounts for every row."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType

import pyarrow as pa

from wasmline.errors import GuestProtocolError, InstanceClosed, RecordTooLarge, SandboxViolation
from wasmline.wasm.columns.input_columns import conform
from wasmline.wasm.context import TransformContext
from wasmline.wasm.guest import CompiledModules, Guest
from wasmline.wasm.limits import HostLimits, ResourceLimits
from wasmline.wasm.result import TransformResult
from wasmline.wasm.result_builder import ResultBuilder

_LEFT_RECORDS = "the guest asked for the next batch before it had read all records of this one"

SLICE_ROWS = 16_384
SLICE_BYTES = 2 * 2**20
"""A larger batch is served in slices of about this size, which stay in the processor's caches on the way through."""


class TransformInstance:
    """One guest at a time and what replaces it when it fails. For one thread at a time; two instances run in parallel.

    A record that fails gives no outputs; the next one meets a fresh guest, so whatever the guest kept in memory is
    gone. Belongs to the process that made it.
    """

    def __init__(
        self, code: CompiledModules, context: TransformContext, limits: ResourceLimits, host: HostLimits
    ) -> None:
        """Start the guest; raise what keeps it from its first ``read_batch_header``."""
        self._code = code
        self._context = context
        self._limits = limits
        self._host = host
        self._rows_at_once = SLICE_ROWS
        self._process = os.getpid()
        self._busy = threading.Lock()
        self._closed = False
        self._start()

    def transform(self, batch: pa.RecordBatch) -> TransformResult:
        """Run every row of a batch in RECORD_SCHEMA (any slice of it, any size) through the guest, in order.

        Rows fail one by one, in the result. Raised are InvalidBatch, InstanceClosed, SandboxViolation, which closes
        the instance, and the failure of a fresh guest that dies before its first record. All outputs are held in
        memory: where a guest may make much of little, ``parts`` is for that.
        """
        return TransformResult.joined(list(self.parts(batch)))

    def parts(self, batch: pa.RecordBatch) -> Iterator[TransformResult]:
        """Do what ``transform`` does, and yield the results of one range of rows after the other, one at least.

        A part ends where its outputs are about ``HostLimits.part_bytes``.
        """
        batch, progress = conform(batch), _Progress(log_bytes=self._limits.log_bytes_per_batch)
        step = _rows_of_a_slice(batch)
        while True:
            yield self._part(batch, step, progress)
            if progress.row == batch.num_rows:
                return

    def close(self) -> None:
        """Free the guest, once the batch that another thread may be at is done. Idempotent."""
        if self._process == os.getpid():
            with self._busy:
                self._closed = True
                self._free()

    def __enter__(self) -> TransformInstance:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _start(self) -> None:
        self._guest = Guest(self._code, self._context, self._limits, self._host)
        # A finalizer, so that an instance that nobody closed frees its thread too.
        self._free = weakref.finalize(self, self._guest.close)

    def _part(self, batch: pa.RecordBatch, step: int, progress: _Progress) -> TransformResult:
        """Serve rows until all are accounted for, or until the next ones may bring more than a part holds."""
        if self._process != os.getpid():  # before the lock, which another thread of the parent may hold for ever
            raise InstanceClosed(f"{self._context.name}: the instance is another process's; instantiate after the fork")
        ledger, first, most = ResultBuilder(), progress.row, self._host.part_bytes
        with self._busy:
            if self._closed:
                raise InstanceClosed(f"{self._context.name}: the instance is closed")
            try:
                while progress.row < batch.num_rows:
                    before = ledger.output_bytes
                    self._serve(batch, step, progress, ledger)
                    last = ledger.output_bytes - before
                    if ledger.output_bytes + last > most:
                        break
            except SandboxViolation:
                self._closed = True
                self._free()
                raise
        return ledger.close(batch, progress.row - first)

    def _serve(self, batch: pa.RecordBatch, step: int, progress: _Progress, ledger: ResultBuilder) -> None:
        """Give some rows to a guest, a new one where the last is dead, and account for those that are decided.

        A guest that fails on a batch before it reads may have failed for any of its rows, because the header tells the
        size of the greatest: it is offered fewer, until the row to blame is alone. So are records that the host cannot
        hold together. What a guest has room for now, it will have for the rows that follow.
        """
        if self._guest.dead:
            self._free()
            self._start()
        guest, row = self._guest, progress.row
        progress.log_bytes = max(progress.log_bytes - self._log(ledger), 0)  # what it said at its start
        guest.allow_logs(progress.log_bytes)
        rows = min(self._rows_at_once, step, batch.num_rows - row)
        room = self._host.part_bytes - ledger.output_bytes
        try:
            outputs = guest.run(batch if rows == batch.num_rows else batch.slice(row, rows), row, room)
        except RecordTooLarge as error:
            progress.row += self._too_large(row, rows, error, ledger)
            return
        progress.log_bytes -= self._log(ledger)
        before = ledger.output_bytes
        progress.row = self._settle(guest, outputs, row, rows, ledger)
        written = ledger.output_bytes - before
        if guest.stopped:
            self._rows_at_once = max((progress.row - row) * self._host.part_bytes // written, 1)
        elif progress.row == row:
            self._rows_at_once = max(rows // 2, 1)
        elif rows == self._rows_at_once and not guest.dead and 2 * written <= self._host.part_bytes:
            self._rows_at_once = min(2 * self._rows_at_once, SLICE_ROWS)

    def _too_large(self, row: int, rows: int, error: RecordTooLarge, ledger: ResultBuilder) -> int:
        """Return how many rows are decided: one that is too large alone, or none of several."""
        if rows > 1:
            self._rows_at_once = rows // 2
            return 0
        ledger.fail(row, error)
        return 1

    def _settle(self, guest: Guest, outputs: list[pa.RecordBatch], row: int, rows: int, ledger: ResultBuilder) -> int:
        """Write down what a guest did with ``rows`` rows; return the first row that still needs a guest."""
        if not guest.dead and guest.delivered == rows:
            ledger.write(outputs)
            return row + rows
        error = guest.failure() if guest.dead else GuestProtocolError(_LEFT_RECORDS)
        undecided, failed = rows > 1 and guest.read_nothing, row + guest.failed_record()
        self._free()
        if error is not None and undecided:
            return row
        ledger.write(outputs, before=failed)
        if error is None:
            return failed
        ledger.fail(failed, error)
        return failed + 1

    def _log(self, ledger: ResultBuilder) -> int:
        """Write down what the guest logged since the last time; return how many bytes of the log that was."""
        used = self._guest.log_bytes
        if used or self._guest.logs_dropped:
            ledger.log(*self._guest.take_logs())
        return used


@dataclass(slots=True, kw_only=True)
class _Progress:
    """How far a batch is served: its next row, and how many bytes its guests may still log."""

    row: int = 0
    log_bytes: int


def _rows_of_a_slice(batch: pa.RecordBatch) -> int:
    if batch.get_total_buffer_size() <= SLICE_BYTES:  # cheap, and an upper bound
        return SLICE_ROWS
    rows: int = SLICE_BYTES * batch.num_rows // max(batch.nbytes, 1)
    return max(1, min(SLICE_ROWS, rows))
