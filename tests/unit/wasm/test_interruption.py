"""Owners of guests that are interrupted between any two steps, as Ctrl-C and the time limit of a task do it."""

from __future__ import annotations

import signal
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path

import pyarrow as pa
import pytest

from support.interruption import Interrupted, is_interrupted
from wasmline.record_batches import RECORD_SCHEMA
from wasmline.testing import guests
from wasmline.testing.sandbox import CONTEXT, Sandbox
from wasmline.wasm import TransformInstance, TransformRuntime, guest, transform_instance, trap_handlers, watchdog
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
        owned._thread.join(30)
        assert not owned._thread.is_alive()
        instance.close()
        require_nothing_left()
    raise AssertionError


def spin_interrupted_twice(folder: Path) -> int:
    """Return how often a guest was interrupted by one signal, and the wait for its end by the next."""
    left, twice = 0, 0

    def raise_interrupted(*_: object) -> None:
        nonlocal left
        if left:
            left -= 1
            raise Interrupted

    signal.signal(signal.SIGALRM, raise_interrupted)
    transform = TransformRuntime(folder).compile(guests.guest(guests.SPIN))
    for number in range(200):
        with transform.instantiate(CONTEXT) as instance:
            left = 2
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.002, 0.00002 * (1 + number % 50))
                try:
                    instance.transform(BATCH)
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
            except Interrupted:
                twice += not left
            left = 0
    require_nothing_left()
    return twice


@pytest.mark.parametrize(
    "interrupted", [transform_interrupted, start_interrupted, close_interrupted, spin_interrupted_twice]
)
def test_an_owner_that_is_interrupted_leaves_nothing_that_hangs(
    tmp_path: Path, interrupted: Callable[[Path], int]
) -> None:
    with Sandbox(timeout_s=120) as sandbox:
        assert sandbox.call(interrupted, tmp_path) > 2


def outputs_after_an_interruption(folder: Path) -> set[tuple[bytes, ...]]:
    """Return the keys of a batch's outputs after one that was interrupted at each of its steps.

    Its guest asked for a batch in the middle of a record, and had written an output of it.
    """
    snippet = guests.when_key("n", guests.NEXT_BATCH) + guests.WRITE
    transform = TransformRuntime(folder).compile(guests.guest(snippet))
    found: set[tuple[bytes, ...]] = set()
    first, second = (
        pa.RecordBatch.from_pylist([{**RECORD, "key": key.encode()} for key in keys], schema=RECORD_SCHEMA)
        for keys in ("na", "yz")
    )
    for step in count():
        with transform.instantiate(CONTEXT) as instance:
            if not is_interrupted(partial(instance.transform, first), (guest, transform_instance), step):
                return found
            found.add(tuple(instance.transform(second).outputs["key"].to_pylist()))
    raise AssertionError


def test_outputs_of_an_interrupted_batch_are_not_those_of_the_next(tmp_path: Path) -> None:
    with Sandbox(timeout_s=120) as sandbox:
        assert sandbox.call(outputs_after_an_interruption, tmp_path) == {(b"y", b"z")}
