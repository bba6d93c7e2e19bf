"""The limit is of the guest's own CPU time: what its thread waits for a turn does not count."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from wasmline.testing import guests
from wasmline.testing.sandbox import Sandbox

HOGS = 6
COUNT = "(local.tee $zero (i32.sub (local.get $zero) (i32.const 1)))"
WORK = f"(local.set $zero (i32.const 200000000)) (loop $again (br_if $again {COUNT}))" + guests.WRITE


@pytest.fixture
def core() -> int:
    if not hasattr(os, "sched_setaffinity"):
        pytest.skip("needs sched_setaffinity, to have processes compete for one core")
    return min(os.sched_getaffinity(0))


@pytest.fixture
def hogs(core: int) -> Iterator[None]:
    code = f"import os; os.sched_setaffinity(0, [{core}]); print(flush=True)\nwhile True: pass"
    running = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) for _ in range(HOGS)]
    try:
        for process in running:
            assert process.stdout is not None
            process.stdout.readline()
        yield
    finally:
        for process in running:
            process.kill()
            process.communicate()


@pytest.fixture
def cpu_ms(records: Any) -> int:
    """What the work takes of a core."""
    with Sandbox() as sandbox:
        before = sandbox.call(time.process_time)
        sandbox.transform(guests.guest(WORK), [records([b"k"] * 3)])
        return int(1000 * (sandbox.call(time.process_time) - before) / 3)


def test_a_guest_that_waits_for_its_turn_is_not_stopped(cpu_ms: int, core: int, hogs: None, records: Any) -> None:
    limit_ms = 2 * cpu_ms
    with Sandbox() as sandbox:
        sandbox.call(os.sched_setaffinity, 0, [core])
        sandbox.transform(guests.guest(WORK), [], cpu_ms_per_record=limit_ms)
        before = time.monotonic()
        (result,) = sandbox.transform(guests.guest(WORK), [records([b"k"])], cpu_ms_per_record=limit_ms)
        waited_ms = 1000 * (time.monotonic() - before)
    assert (result.outputs.num_rows, result.failures) == (1, ())
    assert waited_ms > limit_ms, "the guest did not have to wait: the test shows nothing"
