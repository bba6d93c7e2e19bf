"""A running guest: a store with guest and shim, and the thread that runs ``_start``.

``_start`` does not return unless it fails, so it runs on a thread of its own and waits for batches inside
``next_batch``. Two locks pass control: exactly one of owner and guest runs at any time. A guest lives until it
fails; then it is dead, its memory can still be read, and its owner creates another one.

The owner may be the main thread, where the functions of signals raise between any two steps: Ctrl-C, a task's time
limit. So what has to be undone is done on the guest's thread, which also frees the store, and how the guest ends does
not depend on where it is.
"""

from __future__ import annotations

import os
import signal
import threading
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import cast

import pyarrow as pa
import wasmtime

from wasmline.errors import TransformError
from wasmline.wasm.abi import FUNCTIONS
from wasmline.wasm.columns.environment_and_logs import read_logs, read_stderr, write_environment
from wasmline.wasm.columns.input_columns import InputColumns
from wasmline.wasm.columns.output_columns import OutputColumns
from wasmline.wasm.columns.shim_memory import ShimMemory, limit_store, sandbox_violation_error
from wasmline.wasm.engine import MAX_STACK_BYTES
from wasmline.wasm.resource_limits import HostLimits, ResourceLimits
from wasmline.wasm.result import LogLine
from wasmline.wasm.shim.import_trampoline import GUEST_EXPORT, SHIM_EXPORT
from wasmline.wasm.transform_context import TransformContext
from wasmline.wasm.trap_handlers import SIGNALS, TRAP_HANDLERS
from wasmline.wasm.traps import GuestExitInfo, classify_exit, instantiation_error, trap_code
from wasmline.wasm.watchdog import Watch, watchdog

_I32 = wasmtime.ValType.i32

_HOST_STACK_BYTES = 3 * 2**20
"""Stack of a guest's thread for callbacks, in addition to the guest's own stack."""

_starting = threading.Lock()


def _after_fork() -> None:
    global _starting
    _starting = threading.Lock()  # another thread of the parent may have held it


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledModules:
    """The three modules of a store, compiled, bound to one engine; ``guest`` has the shim in it."""

    engine: wasmtime.Engine
    trampoline: wasmtime.Module
    guest: wasmtime.Module
    wiring: wasmtime.Module


class Guest:
    """A guest that waits for batches, or a dead one. Used by one thread at a time, in the process that created it."""

    def __init__(
        self, code: CompiledModules, context: TransformContext, limits: ResourceLimits, host: HostLimits
    ) -> None:
        """Run ``_start`` up to its first ``read_batch_header``.

        Raises the guest's failure, or the host's own, such as MemoryError.
        """
        self._code = code
        self._context = context
        self._limits = limits
        self._host = host
        self._process = os.getpid()
        self._store = wasmtime.Store(code.engine)
        self._store.set_epoch_deadline(1)
        self._watch = Watch(code.engine, limits.cpu_ms_per_record)
        self._turn_of_guest = threading.Lock()
        self._turn_of_owner = threading.Lock()
        self._over = threading.Lock()
        """Held until the store is free. ``Thread.join``, once interrupted, takes a running thread for an ended one."""
        for lock in (self._turn_of_guest, self._turn_of_owner, self._over):
            lock.acquire()
        self._has_begun = False
        self._running = ExitStack()
        """Undoes what is done while the guest runs. For its own thread."""
        self._stopping = False
        self._closed = False
        self._ended = False
        self._end: BaseException | None = None
        self._host_error: BaseException | None = None
        self._flushed: list[pa.RecordBatch] = []
        self._room = 0
        self._initial_memory_bytes: int | None = None
        self._rows = self._end_row = 0
        self.stopped = False
        """True if the host ended the guest within a batch, because its outputs exceed what the host holds at once."""
        self._thread = threading.Thread(target=self._live, name=f"wasmline-{context.name}", daemon=True)
        try:
            self._start_thread()
            self._let_run()
            if self._ended:
                raise self._failure_at_start()
        except BaseException:
            self.close()
            raise

    @property
    def dead(self) -> bool:
        """True once the guest failed, or was stopped."""
        return self._ended

    @property
    def delivered(self) -> int:
        """Number of records of the batch that the guest has read."""
        return self._memory.count("delivered", self._rows)

    @property
    def read_nothing(self) -> bool:
        """True if the guest never tried to read a record of the batch."""
        return self.delivered == 0 and self._memory.get("refused") == 0

    def run(self, batch: pa.RecordBatch, row_base: int, room: int) -> list[pa.RecordBatch]:
        """Pass a conforming batch to the guest; return its outputs up to its next request for a batch or its exit_info.

        It is stopped within a record when it has written more than ``room`` bytes, some of them before that record.
        Raises RecordTooLarge if the batch or its outputs exceed the host's limits, and other failures of the host, such
        as MemoryError; then nothing that the guest did counts.
        """
        self._flushed, self._room = [], room
        self._rows, self._end_row = batch.num_rows, row_base + batch.num_rows
        self._outbox.open(self._inbox.load(batch, row_base))
        self._memory.put(delivered=0, refused=0, row=row_base)
        self._let_run()
        if self._host_error is not None:
            raise self._host_error
        rest = self._outbox.collect()
        outputs, self._flushed = self._flushed, []
        return outputs if rest is None else [*outputs, rest]

    def failed_record(self) -> int:
        """Return the index in its batch of the record that the guest failed on, by its death or by skipping records.

        That is the last one it read; the next if its buffer was too small for that; the first if it read none.
        """
        delivered = self.delivered
        if self._memory.get("refused") != delivered + 1:
            return max(delivered - 1, 0)
        if delivered == self._rows:
            raise sandbox_violation_error("a record beyond the last one was rejected")
        return delivered

    def failure(self) -> TransformError | None:
        """Return why a guest died; None if its record is not the cause.

        That is if the watchdog interrupted a record that had just begun, or if the host stopped the guest.
        """
        return None if self.stopped or self._watch.progressed_before_interrupt() else classify_exit(self._exit_info())

    def allow_logs(self, size: int) -> None:
        """Allow the guest to log ``size`` bytes before lines are dropped."""
        self._memory.put(log_capacity=size)

    def take_logs(self) -> tuple[list[LogLine], int]:
        """Return the lines logged since the last call, and the number of dropped ones."""
        taken = read_logs(self._memory, self._static, self._end_row), self.logs_dropped
        self._memory.put(log_bytes=0, logs_dropped=0)
        return taken

    @property
    def log_bytes(self) -> int:
        """Bytes of the log in use."""
        return self._memory.count("log_bytes", self._static.log_capacity)

    @property
    def logs_dropped(self) -> int:
        """Number of lines dropped since the last call."""
        return self._memory.get("logs_dropped")

    def close(self) -> None:
        """End the thread and free the store. Idempotent; does nothing in a forked child, which has no such thread."""
        if self._closed or self._process != os.getpid():
            return
        self._stop()
        self._closed = True

    def _start_thread(self) -> None:
        """Start the guest's thread with a stack of a known size: an overflow of a smaller one would end the process."""
        with _starting:
            usual = threading.stack_size(MAX_STACK_BYTES + _HOST_STACK_BYTES)
            try:
                self._thread.start()
            finally:
                threading.stack_size(usual)

    def _let_run(self) -> None:
        """Pass control to the guest, and wait for it to return; an owner that is interrupted stops it."""
        try:
            self._turn_of_guest.release()
            self._turn_of_owner.acquire()
        except BaseException:
            self._stop()
            raise

    def _stop(self) -> None:
        """End the thread, wherever it is: before ``_start``, in a record, at its next batch, or after its end."""
        self._stopping = True
        self._code.engine.increment_epoch()
        with suppress(RuntimeError):  # not locked: the guest's turn has come, and it has not seen that yet
            self._turn_of_guest.release()
        if self._has_begun:  # otherwise it sees that it is to stop before it does anything
            with self._over:
                pass

    def _failure_at_start(self) -> BaseException:
        if self._end is not None and not isinstance(self._end, wasmtime.Trap | wasmtime.WasmtimeError):
            return self._end  # the host's own
        lines = read_logs(self._memory, self._static, 0) if self._initial_memory_bytes is not None else []
        exit_info = self._exit_info(stdout="".join(line.text for line in lines if line.level == "INFO"))
        error = (
            instantiation_error(exit_info)
            if isinstance(self._end, wasmtime.WasmtimeError)
            else classify_exit(exit_info)
        )
        error.args = (f"{self._context.name} failed before its first record: {error}",)
        return error

    def _exit_info(self, *, stdout: str = "") -> GuestExitInfo:
        memory = None if self._initial_memory_bytes is None else self._memory
        size = self._guest_memory.data_len(self._store) if memory else 0
        return GuestExitInfo(
            end=self._end,
            ending=memory.get("ending") if memory else 0,
            exit_status=memory.get("exit_status") if memory else 0,
            stderr=read_stderr(memory, self._static) if memory else "",
            stdout=stdout,
            interrupted=self._watch.killed_at is not None and trap_code(self._end) == "interrupt",
            initial_memory_bytes=self._initial_memory_bytes or 0,
            memory_bytes=size,
            unread_bytes=memory.get("max_record") if memory and self.read_nothing else 0,
            limits=self._limits,
        )

    # What runs on the guest's thread. Nothing here may raise into WebAssembly: wasmtime-py keeps such an exception in
    # one place for the whole process, where another store's trap may find it.

    def _live(self) -> None:
        self._turn_of_guest.acquire()
        self._has_begun = True  # before it is asked whether to stop: the owner does both in the other order
        if not self._stopping:
            self._run_to_its_end()
        if not self._stopping:  # the owner reads why it ended
            self._turn_of_guest.acquire()
        self._end = None  # a trap holds the frames of the thread
        self._store.close()
        self._over.release()

    def _run_to_its_end(self) -> None:
        try:
            if hasattr(signal, "pthread_sigmask"):
                signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)  # blocked, a trap would end the process
            self._watch.adopt_thread()
            with self._running:
                self._begin()
                start = self._instantiate()
                start(self._store)
        except BaseException as end:
            self._end = end
        finally:
            self._ended = True
            self._return_control()

    def _begin(self) -> None:
        """Let the watchdog watch, and the engine learn of traps, until ``_running`` is closed."""
        self._running.enter_context(TRAP_HANDLERS)
        self._running.callback(watchdog().release, self._watch)
        watchdog().watch(self._watch)

    def _return_control(self) -> None:
        with suppress(RuntimeError):  # not locked: the owner was interrupted, and has not taken its last turn
            self._turn_of_owner.release()

    def _instantiate(self) -> wasmtime.Func:
        code, store = self._code, self._store
        limit_store(store, memory_bytes=self._limits.memory_bytes)
        with wasmtime.Linker(code.engine) as linker:  # closed early: its callbacks and this object reference each other
            linker.define_func("host", "next_batch", wasmtime.FuncType([], [_I32()]), self._next_batch)
            linker.define_func("host", "flush", wasmtime.FuncType([_I32()], [_I32()]), self._flush)
            trampoline = linker.instantiate(store, code.trampoline)
            for module in ("trampoline", *FUNCTIONS):
                linker.define_instance(store, module, trampoline)
            linker.define_instance(store, "guest", linker.instantiate(store, code.guest))
            linker.instantiate(store, code.wiring)
            # Exports by name: a view of an instance's exports takes time by their number squared.
            guest_memory, shim_memory = (
                cast(wasmtime.Memory, linker.get(store, "guest", f"{prefix}memory"))
                for prefix in (GUEST_EXPORT, SHIM_EXPORT)
            )
            start = cast(wasmtime.Func, linker.get(store, "guest", f"{GUEST_EXPORT}_start"))
        self._furnish(guest_memory, shim_memory)
        return start

    def _furnish(self, guest_memory: wasmtime.Memory, shim_memory: wasmtime.Memory) -> None:
        self._guest_memory = guest_memory
        self._memory = ShimMemory(
            self._store, shim_memory, limit=self._host.shim_bytes, guest_limit=self._limits.memory_bytes
        )
        self._static = write_environment(self._memory, self._context, self._limits)
        self._inbox = InputColumns(self._memory, self._static.end)
        self._outbox = OutputColumns(self._memory, len(self._context.output_topics))
        self._watch.progress = lambda: self._memory.progress
        self._initial_memory_bytes = guest_memory.data_len(self._store)

    def _next_batch(self) -> int:
        self._running.close()
        self._return_control()
        self._turn_of_guest.acquire()
        try:
            self._begin()  # also to end: the shim does it by a trap
        except BaseException as error:  # no thread for the watchdog
            self._host_error = error
        return 0 if self._stopping or self._host_error else 1

    def _flush(self, need: int) -> int:
        try:
            if not 0 <= need <= self._limits.output_bytes_per_record:
                raise sandbox_violation_error(f"capacity for {need} bytes is requested")
            collected = self._outbox.empty()
            if collected is not None:
                self._flushed.append(collected)
                self._room -= collected.get_total_buffer_size()
            row = self._memory.get("row")
            if not self._end_row - self._rows <= row < self._end_row:
                raise sandbox_violation_error(f"row {row} is written")
            self.stopped = self._room < 0 and self._flushed[0]["row"][0].as_py() < row
            if not self.stopped:
                self._outbox.widen(need)
        except BaseException as error:
            self._host_error = error
        return 1 if self.stopped or self._host_error else 0
