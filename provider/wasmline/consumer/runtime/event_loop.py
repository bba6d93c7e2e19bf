"""The event loop of a process's coroutine handlers, in its own thread, with timers as exact as a thread's."""

from __future__ import annotations

import asyncio
import os
import select
import selectors
import threading

MAX_SELECT_FD = 1_024
"""Limit of the file descriptors that select(2) supports."""

_loops: dict[int, asyncio.AbstractEventLoop] = {}
_starting = threading.Lock()


def event_loop() -> asyncio.AbstractEventLoop:
    """Return this process's loop for handlers: what they keep between calls, such as a session, needs one loop."""
    with _starting:
        loop = _loops.get(os.getpid())
        if loop is None:
            loop = _loops[os.getpid()] = _new()
            threading.Thread(target=loop.run_forever, name="wasmline-asyncio", daemon=True).start()
        return loop


def abandon() -> None:
    """Leave the loop to a handler that blocks it: the next request gets a new one."""
    _loops.pop(os.getpid(), None)


def _new() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    if type(loop) is not asyncio.SelectorEventLoop or not hasattr(selectors, "EpollSelector"):
        return loop  # such as uvloop's, or another system's
    loop.close()
    return asyncio.SelectorEventLoop(_PunctualSelector())


if hasattr(selectors, "EpollSelector"):

    class _PunctualSelector(selectors.EpollSelector):
        """Waits to the microsecond; epoll's own time-outs are whole milliseconds, which makes timers late.

        An epoll file descriptor is readable once one of its registered descriptors is.
        """

        def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
            if timeout is not None and timeout > 0 and self.fileno() < MAX_SELECT_FD:
                select.select([self], [], [], timeout)
                timeout = 0
            return super().select(timeout)
