"""A transform instance: survives its guest's failures and accounts for every row."""

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
from wasmline.wasm.guest import CompiledModules, Guest
from wasmline.wasm.resource_limits import HostLimits, ResourceLimits
from wasmline.wasm.result import TransformResult
from wasmline.wasm.result_builder import ResultBuilder
from wasmline.wasm.transform_context import TransformContext

_LEFT_RECORDS = "the guest asked for the next batch before it had read all records of this one"

SLICE_ROWS = 16_384
SLICE_BYTES = 2 * 2**20
"""A larger batch is served in slices of about this size, which fit in the processor's caches."""


class TransformInstance:
    """Runs one guest, and replaces it when it fails. For one thread at a time; two instances run in parallel.

    A record that fails gives no outputs; the next one goes to a fresh guest, so the guest's state in memory is lost.
    An instance belongs to the process that created it.
    """

    def __init__(
        self, code: CompiledModules, context: TransformContext, limits: ResourceLimits, host: HostLimits
    ) -> None:
        """Start the guest; raise its error if it fails before its first ``read_batch_header``."""
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

        Rows fail one by one, in the result. Raises InvalidBatch, InstanceClosed, SandboxViolation, which closes the
        instance, and the failure of a fresh guest before its first record. All outputs are held in memory: use
        ``parts`` if a guest may write much more than it reads.
        """
        return TransformResult.joined(list(self.parts(batch)))

    def parts(self, batch: pa.RecordBatch) -> Iterator[TransformResult]:
        """Like ``transform``, but yields the results of consecutive ranges of rows, at least one.

        A part ends when its outputs have about ``HostLimits.part_bytes``.
        """
        batch, progress = conform(batch), _Progress(log_bytes=self._limits.log_bytes_per_batch)
        step = _rows_of_a_slice(batch)
        while True:
            yield self._part(batch, step, progress)
            if progress.row == batch.num_rows:
                return

    def close(self) -> None:
        """Free the guest, after a batch in progress on another thread. Idempotent."""
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
        self._own(Guest(self._code, self._context, self._limits, self._host))

    def _own(self, guest: Guest) -> None:
        self._guest = guest
        self._is_settled = True
        """Whether it is known what the guest did: after an interruption it may be in a record, and is replaced."""
        # So that an unclosed instance frees its thread too.
        self._finalizer = weakref.finalize(self, guest.close)

    def _free(self) -> None:
        self._guest.close()  # not by the finalizer, which does it once: this may be interrupted
        self._finalizer.detach()

    def _part(self, batch: pa.RecordBatch, step: int, progress: _Progress) -> TransformResult:
        """Serve rows until all are accounted for, or until the next ones may exceed the size of a part."""
        if self._process != os.getpid():  # before the lock, which another thread of the parent may hold forever
            raise InstanceClosed(f"{self._context.name}: it belongs to another process; instantiate after the fork")
        builder, first, most = ResultBuilder(), progress.row, self._host.part_bytes
        with self._busy:
            if self._closed:
                raise InstanceClosed(f"{self._context.name}: the instance is closed")
            try:
                while progress.row < batch.num_rows:
                    before = builder.output_bytes
                    self._serve(batch, step, progress, builder)
                    last = builder.output_bytes - before
                    if builder.output_bytes + last > most:
                        break
            except SandboxViolation:
                self._closed = True
                self._free()
                raise
        return builder.close(batch, progress.row - first)

    def _serve(self, batch: pa.RecordBatch, step: int, progress: _Progress, builder: ResultBuilder) -> None:
        """Pass some rows to a guest, a new one if the last is dead, and account for the completed ones.

        A guest that fails on a batch before it reads may have failed for any of its rows, because the header has the
        size of the largest: it gets fewer rows, until the failing row is alone. So do records that the host cannot
        hold together. A guest that has capacity for these rows has it for the following ones too.
        """
        if self._guest.dead or not self._is_settled:
            self._free()
            self._start()
        guest, row = self._guest, progress.row
        progress.log_bytes = max(progress.log_bytes - self._log(builder), 0)  # logged at its start
        guest.allow_logs(progress.log_bytes)
        rows = min(self._rows_at_once, step, batch.num_rows - row)
        room = self._host.part_bytes - builder.output_bytes
        self._is_settled = False
        try:
            outputs = guest.run(batch if rows == batch.num_rows else batch.slice(row, rows), row, room)
        except RecordTooLarge as error:
            progress.row += self._too_large(row, rows, error, builder)
            self._is_settled = True
            return
        progress.log_bytes -= self._log(builder)
        before = builder.output_bytes
        progress.row = self._settle(guest, outputs, row, rows, builder)
        self._is_settled = True
        written = builder.output_bytes - before
        if guest.stopped:
            self._rows_at_once = max((progress.row - row) * self._host.part_bytes // written, 1)
        elif progress.row == row:
            self._rows_at_once = max(rows // 2, 1)
        elif rows == self._rows_at_once and not guest.dead and 2 * written <= self._host.part_bytes:
            self._rows_at_once = min(2 * self._rows_at_once, SLICE_ROWS)

    def _too_large(self, row: int, rows: int, error: RecordTooLarge, builder: ResultBuilder) -> int:
        """Return the number of completed rows: 1 for a single row that is too large, 0 for several."""
        if rows > 1:
            self._rows_at_once = rows // 2
            return 0
        builder.fail(row, error.with_traceback(None))  # whose frames have the batch
        return 1

    def _settle(self, guest: Guest, outputs: list[pa.RecordBatch], row: int, rows: int, builder: ResultBuilder) -> int:
        """Record the results of ``rows`` rows; return the first row that still needs a guest."""
        if not guest.dead and guest.delivered == rows:
            builder.write(outputs)
            return row + rows
        error = guest.failure() if guest.dead else GuestProtocolError(_LEFT_RECORDS)
        undecided, failed = rows > 1 and guest.read_nothing, row + guest.failed_record()
        self._free()
        if error is not None and undecided:
            return row
        builder.write(outputs, before=failed)
        if error is None:
            return failed
        builder.fail(failed, error)
        return failed + 1

    def _log(self, builder: ResultBuilder) -> int:
        """Record the guest's new log lines; return their size in bytes."""
        used = self._guest.log_bytes
        if used or self._guest.logs_dropped:
            builder.log(*self._guest.take_logs())
        return used


@dataclass(slots=True, kw_only=True)
class _Progress:
    """Progress of a batch: its next row, and the bytes that its guests may still log."""

    row: int = 0
    log_bytes: int


def _rows_of_a_slice(batch: pa.RecordBatch) -> int:
    if batch.get_total_buffer_size() <= SLICE_BYTES:  # cheap, and an upper bound
        return SLICE_ROWS
    rows: int = SLICE_BYTES * batch.num_rows // max(batch.nbytes, 1)
    return max(1, min(SLICE_ROWS, rows))
