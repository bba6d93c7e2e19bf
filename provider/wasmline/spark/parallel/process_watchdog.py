"""Process watchdog: a child process that kills its parent when heartbeats stop or a deadline passes.

Spark waits for a task with a frozen process until the executor is lost, in local mode forever, and all other leases
wait for that lease to end. A killed task is retried. Run as a program, this file imports nothing of Wasmline.
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
"""The line that the parent writes when there is nothing to watch."""


class ProcessWatchdog:
    """The parent's side; the child process is started once and runs until this process ends."""

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
        os.set_blocking(self._signs, False)  # a frozen child must not block this process

    @property
    def is_alive(self) -> bool:
        """Whether the child process is running."""
        return self._child.poll() is None

    def beat(self, seconds: float) -> None:
        """Send a heartbeat: the next one follows within ``silence``, and the work ends within ``seconds``."""
        self._write(b"%f\n" % max(0.0, seconds))

    def pause(self) -> None:
        """Stop watching until the next beat."""
        self._write(REST)

    def _write(self, line: bytes) -> None:
        with suppress(BrokenPipeError, BlockingIOError):  # without its child this process is unwatched, as before
            os.write(self._signs, line)


_switch: dict[int, ProcessWatchdog] = {}
"""This process's watchdog, by process id: a forked process has none yet."""


@contextmanager
def under_watchdog(silence: float) -> Iterator[Callable[[float], None]]:
    """Watch this process while the context is open; call the yielded function more often than every ``silence`` s."""
    switch = _switch.get(os.getpid())
    if switch is None or not switch.is_alive:
        switch = _switch[os.getpid()] = ProcessWatchdog(silence)
    try:
        yield switch.beat
    finally:
        switch.pause()


def watch_process(parent: int, silence: float) -> None:
    """Read heartbeats from standard input until it is closed; kill the parent when one is overdue."""
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
