"""Enforces the CPU limit per record: one thread polls every running guest and interrupts those without progress.

Wasmtime's public Python API can stop a guest only through its engine's epoch: there is no deadline callback per
store. So every instance has its own engine, a store's deadline is the next epoch, and the epoch is incremented only to
interrupt a guest. Polls are so frequent that an interrupt is late by about a hundredth of the limit. A guest may finish
its record between the poll and the interrupt; the thread that finds the guest dead compares the progress at the
interrupt with the final progress (``Watch.progressed_before_interrupt``). A wall-clock limit is not needed, because no
import blocks.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

import wasmtime

from wasmline.wasm.trap_handlers import TRAP_HANDLERS

TICK_S = 0.03
"""Maximum seconds between two polls; one takes a tenth of a millisecond."""
SHORTEST_TICK_S = 0.001
TICKS_PER_LIMIT = 100
LINGER_TICKS = 33
"""Polls without a running guest before the thread ends: about a second, so that batches do not start many threads."""


class Watch:
    """One guest under the limit: its engine, its progress counter, and the clock of the thread it runs on."""

    def __init__(self, engine: wasmtime.Engine, limit_ms: int) -> None:
        self._engine = engine
        self._limit = limit_ms / 1000
        self.tick = min(TICK_S, max(self._limit / TICKS_PER_LIMIT, SHORTEST_TICK_S))
        self._clock: Callable[[], float] | None = None
        self.progress: Callable[[], int] = lambda: 0
        self._seen: int | None = None
        self._since = 0.0
        self.killed_at: int | None = None

    def adopt_thread(self) -> None:
        """Count the CPU time of the calling thread from now on; wall time where the system has no such clock."""
        if hasattr(time, "pthread_getcpuclockid"):
            clock = time.pthread_getcpuclockid(threading.get_ident())
            self._clock = lambda: time.clock_gettime(clock)
        else:
            self._clock = time.monotonic

    def reset(self) -> None:
        """Reset the observed progress: the guest is idle until it is watched again."""
        self._seen = None

    def look(self) -> float:
        """Interrupt the guest if it made no progress within its limit; return the seconds until the next poll."""
        if self._clock is None or self.killed_at is not None:
            return self.tick  # its thread has not started, or is interrupted already
        try:
            progress, now = self.progress(), self._clock()
        except OSError:
            return self.tick  # its thread has just ended: the owner will detect that
        if progress != self._seen:
            self._seen, self._since = progress, now
        left = self._limit - (now - self._since)
        if left <= 0:
            self.killed_at = progress
            self._engine.increment_epoch()
        return min(self.tick, max(left, SHORTEST_TICK_S))

    def progressed_before_interrupt(self) -> bool:
        """Return True if the guest had made progress before the interrupt: its current record must be retried."""
        return self.killed_at is not None and self.killed_at != self.progress()


class Watchdog:
    """Watches guests between ``watch`` and ``release``. Its thread runs only while there are guests to watch."""

    def __init__(self, linger_ticks: int = LINGER_TICKS) -> None:
        self._linger_ticks = linger_ticks
        self._lock = threading.Condition(threading.Lock())
        self._watches: set[Watch] = set()
        self._thread: threading.Thread | None = None
        self._pause = TICK_S

    def watch(self, watch: Watch) -> None:
        """Start to watch a guest."""
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="wasmline-watchdog", daemon=True)
                self._thread.start()
            self._watches.add(watch)
            if watch.tick < self._pause:
                self._lock.notify()

    def release(self, watch: Watch) -> None:
        """Stop watching: when this returns, the guest's memory may be freed and its engine will not be interrupted."""
        with self._lock:
            self._watches.discard(watch)
            watch.reset()

    def _run(self) -> None:
        idle = 0
        with self._lock:
            while idle < self._linger_ticks:
                self._lock.wait(self._pause)
                if self._watches:
                    TRAP_HANDLERS.renew()
                self._pause = min((watch.look() for watch in self._watches), default=TICK_S)
                idle = 0 if self._watches else idle + 1
            self._thread = None


_watchdog = Watchdog()


def watchdog() -> Watchdog:
    """Return the watchdog of this process."""
    return _watchdog


def _after_fork() -> None:
    global _watchdog
    _watchdog = Watchdog()  # a fork does not copy the thread, and its lock may be held forever


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
