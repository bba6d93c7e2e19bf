"""Notes when the machine stood still: a test with a time limit says nothing about the code then, and is run again once.

A virtual machine that gets no processor for twenty seconds lets brokers fence themselves, and requests time out.
"""

from __future__ import annotations

import threading
import time

import pytest

STALL_S = 3.0
"""Seconds by which a short sleep has to be late. Where processors are merely busy, it is less than one."""

INTERVAL_S = 0.25


class MachineStalls:
    """Is true when this process did not run for a while since ``begin``."""

    def __init__(self, stall_s: float = STALL_S) -> None:
        self._stall_s = stall_s
        self._began = self._latest = time.monotonic()
        self.longest_s = 0.0
        threading.Thread(target=self._watch, name="machine-stalls", daemon=True).start()

    def begin(self) -> None:
        """Forget what was before."""
        self._began = time.monotonic()

    def __bool__(self) -> bool:
        return self._latest > self._began

    def _watch(self) -> None:
        while True:
            before = time.monotonic()
            time.sleep(INTERVAL_S)
            now = time.monotonic()
            if (stall := now - before - INTERVAL_S) > self._stall_s:
                self._latest = now
                self.longest_s = max(self.longest_s, stall)


def rerun_after_stalls(items: list[pytest.Item], stalls: MachineStalls) -> None:
    """Let each test that fails while the machine stands still run once more. All other failures count at once."""
    for item in items:
        item.add_marker(pytest.mark.flaky(reruns=1, condition=stalls))
