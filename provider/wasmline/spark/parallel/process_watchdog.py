"""A dead man's switch: a child process that kills its parent when the parent gives no sign of life, or takes too long.

Spark waits for a task whose process is frozen until its executor is lost, and locally for ever, and with it for the end
of a lease wait all others. A killed task is tried again. As a program this file imports nothing of ours.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

REST = b"rest\n"
"""What the parent writes when there is nothing to watch."""


class ProcessWatchdog:
    """The parent's end of the switch; the child is started once and serves until this process ends."""

    def __init__(self, silence: float) -> None:
        import subprocess

        self._child = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, str(silence)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        assert self._child.stdin is not None
        self._signs = self._child.stdin.fileno()
        os.set_blocking(self._signs, False)  # a child that is frozen itself holds nobody up

    @property
    def is_alive(self) -> bool:
        """Whether the child is there."""
        return self._child.poll() is None

    def beat(self, seconds: float) -> None:
        """Give a sign of life: the next one comes within ``silence``, and the work is over in so many seconds."""
        self._write(b"%f\n" % max(0.0, seconds))

    def rest(self) -> None:
        """Stop watching until the next beat."""
        self._write(REST)

    def _write(self, line: bytes) -> None:
        with suppress(BrokenPipeError, BlockingIOError):  # without its child this process is as it was before
            os.write(self._signs, line)


_switch: dict[int, ProcessWatchdog] = {}
"""This process's switch, by its process id: a forked process has none yet."""


@contextmanager
def under_watchdog(silence: float) -> Iterator[Callable[[float], None]]:
    """Watch this process while the context is open; what is returned is to be called more often than ``silence``."""
    switch = _switch.get(os.getpid())
    if switch is None or not switch.is_alive:
        switch = _switch[os.getpid()] = ProcessWatchdog(silence)
    try:
        yield switch.beat
    finally:
        switch.rest()


def watch_process(parent: int, silence: float) -> None:
    """Read signs of life from standard input, until there is nobody left to send any or they fail to come."""
    until: float | None = None
    heard = time.monotonic()
    while True:
        timeout = None if until is None else max(0.0, min(heard + silence, until) - time.monotonic())
        if not select.select([0], [], [], timeout)[0]:
            if os.getppid() == parent:
                os.kill(parent, signal.SIGKILL)
            return
        data = os.read(0, 65_536)
        if not data:
            return
        heard = time.monotonic()
        last = data.splitlines()[-1]
        until = None if last == REST.strip() else heard + float(last)


if __name__ == "__main__":
    watch_process(os.getppid(), float(sys.argv[1]))
