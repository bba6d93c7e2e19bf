"""CPU time from /proc."""

from __future__ import annotations

import os
import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

import psutil  # type: ignore[import-untyped]

TICKS = os.sysconf("SC_CLK_TCK")
LOOK_S = 0.5
"""Seconds between two looks for new children: a look reads the state of every process."""


class ProcessTree:
    """Some processes with all that they start."""

    def __init__(self, roots: Collection[int]) -> None:
        self._roots = roots
        self._members: set[int] = set()
        self._next_look = 0.0

    def cpu_seconds(self) -> float:
        """Return the CPU time so far of those that run, and of their children that have ended."""
        if time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + LOOK_S
            for root in self._roots:
                self._members.add(root)
                with suppress(psutil.NoSuchProcess):
                    self._members.update(each.pid for each in psutil.Process(root).children(recursive=True))
        return sum(map(_seconds, self._members))


def machine_seconds() -> float:
    """Return the CPU time of all processors so far that was not idle, with what the hypervisor took."""
    times = psutil.cpu_times()
    busy: float = times.user + times.nice + times.system + times.irq + times.softirq + times.steal
    return busy


def own_seconds() -> float:
    """Return the CPU time of this process alone."""
    return time.process_time()


def _seconds(pid: int) -> float:
    """Return utime, stime, cutime and cstime of a process (proc_pid_stat(5)); 0 of one that has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return sum(map(int, fields[11:15])) / TICKS
