"""A transform ready for records: it survives its guest's failures and accounts for every row."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterator
from types import TracebackType

import pyarrow as pa

from wasmline.errors import GuestProtocolError, InstanceClosed, SandboxViolation
from wasmline.wasm.context import TransformContext
from wasmline.wasm.guest import Code, Guest
from wasmline.wasm.inbox import conform
from wasmline.wasm.ledger import Ledger
from wasmline.wasm.limits import ResourceLimits
from wasmline.wasm.result import TransformResult

_LEFT_RECORDS = "the guest asked for the next batch before it had read all records of this one"

SLICE_ROWS = 16_384
SLICE_BYTES = 2 * 2**20
"""A larger batch is served in slices of about this size, which stay in the processor's caches on the way through."""


class TransformInstance:
    """One guest at a time and what replaces it when it fails. For one thread at a time; two instances run in parallel.

    A record that fails gives no outputs; the next one meets a fresh guest, so whatever the guest kept in memory is
    gone. Belongs to the process that made it.
    """

    def __init__(self, code: Code, context: TransformContext, limits: ResourceLimits) -> None:
        """Start the guest; raise what keeps it from its first ``read_batch_header``."""
        self._code = code
        self._context = context
        self._limits = limits
        self._process = os.getpid()
        self._busy = threading.Lock()
        self._closed = False
        self._start()

    def transform(self, batch: pa.RecordBatch) -> TransformResult:
        """Run every row of a batch in RECORD_SCHEMA (any slice of it, any size) through the guest, in order.

        Rows fail one by one, in the result. Raised are InvalidBatch, InstanceClosed, SandboxViolation, which closes
        the instance, and the failure of a fresh guest that dies before its first record.
        """
        if self._process != os.getpid():  # before the lock, which another thread of the parent may hold for ever
            raise InstanceClosed(f"{self._context.name}: the instance is another process's; instantiate after the fork")
        with self._busy:
            if self._closed:
                raise InstanceClosed(f"{self._context.name}: the instance is closed")
            batch = conform(batch)
            ledger = Ledger()
            room = self._limits.log_bytes_per_batch
            try:
                for first, last in _slices(batch):
                    room = self._serve(batch, first, last, ledger, room)
            except SandboxViolation:
                self._closed = True
                self._free()
                raise
            return ledger.close(batch)

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
        self._guest = Guest(self._code, self._context, self._limits)
        # A finalizer, so that an instance that nobody closed frees its thread too.
        self._free = weakref.finalize(self, self._guest.close)

    def _serve(self, batch: pa.RecordBatch, first: int, last: int, ledger: Ledger, room: int) -> int:
        """Account for a range of rows, with a new guest after each failure; return the room that is left for logs.

        A guest that fails on a batch before it reads may have failed for any of its rows, because the header tells the
        size of the greatest: it is offered fewer, until the row to blame is alone.
        """
        row, most = first, last - first
        while row < last:
            if self._guest.dead:
                self._free()
                self._start()
            guest = self._guest
            room = max(room - self._log(ledger), 0)  # what it said at its start
            guest.allow_logs(room)
            rows = min(most, last - row)
            outputs = guest.run(batch if rows == batch.num_rows else batch.slice(row, rows), row)
            room -= self._log(ledger)
            settled = self._settle(guest, outputs, row, rows, ledger)
            if settled == row:
                most = max(rows // 2, 1)
            elif not guest.dead:
                most *= 2
            row = settled
        return room

    def _settle(self, guest: Guest, outputs: list[pa.RecordBatch], row: int, rows: int, ledger: Ledger) -> int:
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

    def _log(self, ledger: Ledger) -> int:
        used = self._guest.log_bytes
        ledger.log(*self._guest.take_logs())
        return used


def _slices(batch: pa.RecordBatch) -> Iterator[tuple[int, int]]:
    rows = batch.num_rows
    step = SLICE_ROWS
    if batch.get_total_buffer_size() > SLICE_BYTES:  # cheap, and an upper bound
        step = max(1, min(step, SLICE_BYTES * rows // max(batch.nbytes, 1)))
    for first in range(0, rows, step):
        yield first, min(first + step, rows)
