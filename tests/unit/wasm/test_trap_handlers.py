"""Traps of guests after something else has set handlers of the same signals."""

from __future__ import annotations

import ctypes
import faulthandler
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from wasmtime import _ffi

from wasmline.errors import GuestTrap
from wasmline.record_batches import RECORD_SCHEMA
from wasmline.testing import guests
from wasmline.testing.sandbox import CONTEXT, HostDied, Sandbox
from wasmline.wasm import ResourceLimits, TransformRuntime
from wasmline.wasm.trap_handlers import LIBC, SIGNALS, TrapHandlers

BEYOND_MEMORY = "(drop (i32.load (i32.const -8)))"
DIVISION_BY_ZERO = "(drop (i32.div_s (i32.const 1) (i32.const 0)))"
TRAPS = "".join(map(guests.when_key, "bdu", (BEYOND_MEMORY, DIVISION_BY_ZERO, guests.TRAP)))
BATCH = pa.RecordBatch.from_pylist(
    [
        {"key": key, "headers": [], "timestamp": 0, "partition": 0, "offset": row}
        for row, key in enumerate([*"bdk", "u"])
    ],
    schema=RECORD_SCHEMA,
)


def set_python_handlers() -> None:
    for number in SIGNALS:
        signal.signal(number, lambda *_: None)


def set_default_handlers() -> None:
    for number in SIGNALS:
        signal.signal(number, signal.SIG_DFL)


def ignore_signals() -> None:
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def import_a_dag() -> None:
    from airflow.dag_processing.dagbag import DagBag

    assert DagBag("/dev/null", collect_dags=False).process_file(__file__, safe_mode=False) == []  # type: ignore[no-untyped-call]
    assert callable(signal.getsignal(signal.SIGSEGV))


def nothing() -> None:
    pass


def failures(folder: Path, first: Callable[[], None], then: Callable[[], None]) -> list[list[tuple[int, type]]]:
    """Return the failures of a batch before something is done and after it, in an instance that stays and a new one.

    A third one is closed without another batch: its guest ends by a trap of its shim.
    """
    first()
    transform = TransformRuntime(folder).compile(guests.guest(TRAPS + guests.WRITE))
    with transform.instantiate(CONTEXT) as instance:
        results = [instance.transform(BATCH)]
        then()
        results.append(instance.transform(BATCH))
    with transform.instantiate(CONTEXT) as another, transform.instantiate(CONTEXT) as idle:
        results.append(another.transform(BATCH))
        idle.transform(BATCH.slice(2, 1))
        then()
    return [[(failure.row, type(failure.error)) for failure in result.failures] for result in results]


@pytest.mark.parametrize(
    ("first", "then"),
    [
        (nothing, set_python_handlers),
        (nothing, set_default_handlers),
        (nothing, ignore_signals),
        (nothing, faulthandler.enable),
        (faulthandler.enable, faulthandler.disable),
        (set_python_handlers, nothing),
        (nothing, import_a_dag),
    ],
)
def test_a_trap_costs_its_record_whatever_handlers_were_set(
    tmp_path: Path, first: Callable[[], None], then: Callable[[], None]
) -> None:
    with Sandbox(timeout_s=60) as sandbox:
        assert sandbox.call(failures, tmp_path, first, then) == [[(row, GuestTrap) for row in (0, 1, 3)]] * 3


def handler_of(number: int) -> bytes:
    action = ctypes.create_string_buffer(256)
    LIBC.sigaction(number, None, action)
    return action.raw[:8]


def test_a_handler_of_another_library_stays() -> None:
    handlers = TrapHandlers()
    handlers.keep(_ffi.dll.wasm_engine_new)
    before, foreign = ctypes.create_string_buffer(256), ctypes.create_string_buffer(256)
    LIBC.sigaction(signal.SIGFPE, None, before)
    ctypes.c_void_p.from_buffer(foreign).value = ctypes.cast(LIBC.abort, ctypes.c_void_p).value
    LIBC.sigaction(signal.SIGFPE, foreign, None)
    try:
        with handlers:
            assert handler_of(signal.SIGFPE) == foreign.raw[:8]
    finally:
        LIBC.sigaction(signal.SIGFPE, before, None)


def handlers_between(folder: Path, change: Callable[[], None]) -> list[list[bytes]]:
    """Return the handlers after a change and after a guest that has run since."""
    transform = TransformRuntime(folder).compile(guests.guest(TRAPS + guests.WRITE))
    change()
    found = [[handler_of(number) for number in SIGNALS]]
    with transform.instantiate(CONTEXT) as instance:
        instance.transform(BATCH)
    return [*found, [handler_of(number) for number in SIGNALS]]


@pytest.mark.parametrize("change", [set_python_handlers, set_default_handlers, faulthandler.enable, nothing])
def test_what_was_set_is_there_again_when_no_guest_runs(tmp_path: Path, change: Callable[[], None]) -> None:
    with Sandbox(timeout_s=60) as sandbox:
        set_by_others, left = sandbox.call(handlers_between, tmp_path, change)
    assert left == set_by_others


def crash_after_a_guest(folder: Path) -> None:
    """Read at an address of nothing, once ``faulthandler``, which was there before the engine, has ended."""
    faulthandler.enable()
    transform = TransformRuntime(folder).compile(guests.guest(TRAPS + guests.WRITE))
    with transform.instantiate(CONTEXT) as instance:
        faulthandler.disable()
        instance.transform(BATCH)
    ctypes.string_at(0)


def test_a_crash_of_the_process_still_ends_it(tmp_path: Path) -> None:
    with Sandbox(timeout_s=60) as sandbox, pytest.raises(HostDied, match=f"exit code -{signal.SIGSEGV:d}"):
        sandbox.call(crash_after_a_guest, tmp_path)


COUNT_DOWN = """
    (i32.store (i32.const 4096) (i32.const 2000000000))
    (loop $more
        (i32.store (i32.const 4096) (i32.sub (i32.load (i32.const 4096)) (i32.const 1)))
        (br_if $more (i32.load (i32.const 4096))))
"""
"""Takes half a second and more."""


def failures_of_a_slow_batch(folder: Path) -> list[tuple[int, type]]:
    """Return the failures of a batch during which another thread sets handlers."""
    limits = ResourceLimits(cpu_ms_per_record=30_000)
    transform = TransformRuntime(folder).compile(guests.guest(COUNT_DOWN + TRAPS + guests.WRITE))
    with transform.instantiate(CONTEXT, limits) as instance, ThreadPoolExecutor(1) as pool:
        result = pool.submit(instance.transform, BATCH.slice(0, 1))
        time.sleep(0.1)
        assert not result.done()
        set_python_handlers()
        return [(failure.row, type(failure.error)) for failure in result.result().failures]


def test_a_trap_costs_its_record_where_handlers_are_set_while_it_is_processed(tmp_path: Path) -> None:
    with Sandbox(timeout_s=60) as sandbox:
        assert sandbox.call(failures_of_a_slow_batch, tmp_path) == [(0, GuestTrap)]


def crash_after_a_guest_during_which_faulthandler_ended(folder: Path) -> None:
    limits = ResourceLimits(cpu_ms_per_record=30_000)
    transform = TransformRuntime(folder).compile(guests.guest(COUNT_DOWN + guests.WRITE))
    with transform.instantiate(CONTEXT, limits) as instance, ThreadPoolExecutor(1) as pool:
        faulthandler.enable()  # after the engine's handlers, which it will set again
        result = pool.submit(instance.transform, BATCH.slice(0, 1))
        time.sleep(0.1)
        assert not result.done()
        faulthandler.disable()
        result.result()
    ctypes.string_at(0)


def test_a_crash_ends_the_process_where_faulthandler_ended_while_a_guest_ran(tmp_path: Path) -> None:
    with Sandbox(timeout_s=20) as sandbox, pytest.raises(HostDied, match=f"exit code -{signal.SIGSEGV:d}"):
        sandbox.call(crash_after_a_guest_during_which_faulthandler_ended, tmp_path)


def failures_where_signals_are_blocked(folder: Path) -> list[tuple[int, type]]:
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    transform = TransformRuntime(folder).compile(guests.guest(TRAPS + guests.WRITE))
    with transform.instantiate(CONTEXT) as instance:
        return [(failure.row, type(failure.error)) for failure in instance.transform(BATCH).failures]


def test_a_trap_costs_its_record_where_the_owner_s_thread_blocks_signals(tmp_path: Path) -> None:
    with Sandbox(timeout_s=60) as sandbox:
        assert sandbox.call(failures_where_signals_are_blocked, tmp_path) == [(row, GuestTrap) for row in (0, 1, 3)]


def test_handlers_that_were_replaced_before_are_told_of(caplog: pytest.LogCaptureFixture) -> None:
    TrapHandlers().keep(LIBC.abort)  # in whose library the current ones are not
    assert "a guest's trap may end this process" in caplog.text
