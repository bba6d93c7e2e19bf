"""Traps of guests after something else has set handlers of the same signals."""

from __future__ import annotations

import ctypes
import faulthandler
import signal
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from wasmline.errors import GuestTrap
from wasmline.record_batches import RECORD_SCHEMA
from wasmline.testing import guests
from wasmline.testing.sandbox import CONTEXT, Sandbox
from wasmline.wasm import TransformRuntime
from wasmline.wasm.trap_handlers import SIGNALS, TrapHandlers

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
    """Return the failures of a batch before something is done and after it, in an instance that stays and a new one."""
    first()
    transform = TransformRuntime(folder).compile(guests.guest(TRAPS + guests.WRITE))
    with transform.instantiate(CONTEXT) as instance:
        results = [instance.transform(BATCH)]
        then()
        results.append(instance.transform(BATCH))
    with transform.instantiate(CONTEXT) as another:
        results.append(another.transform(BATCH))
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


def test_a_handler_of_another_library_stays() -> None:
    handlers = TrapHandlers()
    library = ctypes.CDLL(None)
    before, foreign, after = (ctypes.create_string_buffer(256) for _ in range(3))
    library.sigaction(signal.SIGFPE, None, before)
    ctypes.c_void_p.from_buffer(foreign).value = ctypes.cast(library.abort, ctypes.c_void_p).value
    library.sigaction(signal.SIGFPE, foreign, None)
    try:
        handlers.restore()
        library.sigaction(signal.SIGFPE, None, after)
        assert after.raw[:8] == foreign.raw[:8]
    finally:
        library.sigaction(signal.SIGFPE, before, None)
