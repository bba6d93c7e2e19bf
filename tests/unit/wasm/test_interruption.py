"""Owners of guests that are interrupted between any two steps, as Ctrl-C and the time limit of a task do it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path

import pyarrow as pa
import pytest

from support.interruption import is_interrupted
from wasmline.record_batches import RECORD_SCHEMA
from wasmline.testing import guests
from wasmline.testing.sandbox import CONTEXT, Sandbox
from wasmline.wasm import TransformInstance, TransformRuntime, guest, trap_handlers, watchdog
from wasmline.wasm.runtime import CompiledTransform

OWNERS = (guest, watchdog, trap_handlers)
RECORD = {"key": b"k", "headers": [], "timestamp": 0, "partition": 0, "offset": 0}
BATCH = pa.RecordBatch.from_pylist([RECORD], schema=RECORD_SCHEMA)


def compiled(folder: Path) -> CompiledTransform:
    return TransformRuntime(folder).compile(guests.guest(guests.WRITE))


def require_nothing_left() -> None:
    assert not watchdog.watchdog()._watches
    assert not trap_handlers.TRAP_HANDLERS._running


def transform_interrupted(folder: Path) -> int:
    """Return the steps of a batch, after each of which one was interrupted."""
    transform = compiled(folder)
    for step in count():
        with transform.instantiate(CONTEXT) as instance:
            if not is_interrupted(lambda: instance.transform(BATCH), OWNERS, step):
                return step
            assert instance.transform(BATCH).outputs.num_rows == 1
        require_nothing_left()
    raise AssertionError


def start_interrupted(folder: Path) -> int:
    transform = compiled(folder)
    for step in count():
        started: list[TransformInstance] = []
        if not is_interrupted(lambda: started.append(transform.instantiate(CONTEXT)), OWNERS, step):  # noqa: B023
            started[0].close()
            return step
        require_nothing_left()
    raise AssertionError


def close_interrupted(folder: Path) -> int:
    transform = compiled(folder)
    for step in count():
        instance = transform.instantiate(CONTEXT)
        instance.transform(BATCH)
        owned = instance._guest
        if not is_interrupted(owned.close, OWNERS, step):
            instance.close()
            return step
        owned.close()
        assert not owned._thread.is_alive()
        instance.close()
        require_nothing_left()
    raise AssertionError


@pytest.mark.parametrize("interrupted", [transform_interrupted, start_interrupted, close_interrupted])
def test_an_owner_that_is_interrupted_leaves_nothing_that_hangs(
    tmp_path: Path, interrupted: Callable[[Path], int]
) -> None:
    with Sandbox(timeout_s=120) as sandbox:
        assert sandbox.call(interrupted, tmp_path) > 2
