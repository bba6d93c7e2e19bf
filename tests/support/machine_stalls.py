"""Notes when a processor or the disk stood still: a test with a time limit says nothing about the code then, and runs
once more.

A virtual machine's processor that its host does not run for half a minute, or a write that takes as long, lets brokers
fence themselves, and requests time out.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from os import fsync

import pytest

STALL_S = 3.0
"""Seconds by which a short sleep or write has to be late. Where processors are merely busy, it is less than one."""

RECOVERY_S = 60.0
"""Seconds after a stall in which brokers and clients may still recover from it."""

INTERVAL_S = 0.25


class MachineStalls:
    """Is true when a processor or the disk stood still since ``begin``, or shortly before."""

    def __init__(self, stall_s: float = STALL_S, recovery_s: float = RECOVERY_S) -> None:
        self._stall_s = stall_s
        self._recovery_s = recovery_s
        self._began = time.monotonic()
        self._ended = self._began - 2 * recovery_s
        """When the latest stall ended."""
        processors = sorted(os.sched_getaffinity(0)) if sys.platform == "linux" else [0]
        self._seen: dict[int | str, float] = dict.fromkeys([*processors, "disk"], self._began)
        """When each processor last ran its thread, and the disk had last written."""
        for processor in processors:
            self._start(self._watch, processor)
        self._start(self._watch_disk)

    def begin(self) -> None:
        """Forget what was before, except for a stall that may still have consequences."""
        self._began = time.monotonic()

    def __bool__(self) -> bool:
        stands_still = time.monotonic() - min(self._seen.values()) > self._stall_s + INTERVAL_S
        return stands_still or self._ended > self._began - self._recovery_s

    def _start(self, watch: Callable[..., None], *watched: int) -> None:
        threading.Thread(target=watch, args=watched, name="machine-stalls", daemon=True).start()

    def _watch(self, processor: int) -> None:
        if sys.platform == "linux":
            os.sched_setaffinity(threading.get_native_id(), {processor})
        while True:
            time.sleep(INTERVAL_S)
            self._note(processor)

    def _watch_disk(self) -> None:
        with tempfile.TemporaryFile() as file:
            while True:
                time.sleep(INTERVAL_S)
                os.pwrite(file.fileno(), os.urandom(4096), 0)
                fsync(file.fileno())  # bound here: a test may replace that of the module
                self._note("disk")

    def _note(self, watched: int | str) -> None:
        now = time.monotonic()
        if now - self._seen[watched] > self._stall_s + INTERVAL_S:
            self._ended = now
        self._seen[watched] = now


def rerun_after_stalls(items: Iterable[pytest.Item], stalls: MachineStalls) -> None:
    """Let each test that fails while a processor or the disk stands still run once more. Other failures count at once.

    The plugin takes 45 ms for each of these tests in a worker of pytest-xdist: it waits for a delayed TCP ACK.
    """
    for item in items:
        item.add_marker(pytest.mark.flaky(reruns=1, condition=stalls))
