"""Service processes: owned ones end with this process, detached ones run until they are stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from wasmline.local import owner_watchdog

POLL_INTERVAL_S = 0.02
"""Seconds between two polls of a process."""

EXEC_TIMEOUT_S = 2.0
"""Seconds until a started program has the command line that identifies it, or has ended."""

STOP_TIMEOUT_S = 15.0
"""Seconds that a service has to end before it is killed."""


class Service:
    """A started program that can be stopped, killed, and waited for.

    ``mark`` is an argument of its command line that no other process has. It distinguishes a service from an unrelated
    process with the same process id later, so that a stored process id is never mistaken for a running service.
    """

    def __init__(self, pid: int, mark: str, *, detached: bool, process: subprocess.Popen[bytes] | None = None) -> None:
        self.pid = pid
        self.detached = detached
        self._mark = mark
        self._process = process

    @classmethod
    def start(
        cls, command: Sequence[str | Path], mark: str, log: Path, environment: Mapping[str, str] | None = None
    ) -> Service:
        """Start a program that ends shortly after this process at the latest, even if this one is SIGKILLed.

        environment: all of the program's; None is this process's.
        """
        # A session of its own: Ctrl-C at the terminal reaches only the owner, which then stops its services in order.
        process = subprocess.Popen(
            _launcher(os.getpid(), command, log), env=environment, stdin=subprocess.DEVNULL, start_new_session=True
        )
        return cls(process.pid, mark, detached=False, process=process)

    @classmethod
    def detach(cls, command: Sequence[str | Path], mark: str, log: Path) -> Service:
        """Start a program that outlives this process."""
        answer = subprocess.run(
            _launcher(0, command, log), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True
        )
        service = cls(int(answer.stdout), mark, detached=True)
        wait_until(service.alive, EXEC_TIMEOUT_S)
        return service

    def alive(self) -> bool:
        """Return whether the service runs."""
        if self._process is not None:
            return self._process.poll() is None
        return self._mark in _command_line(self.pid)

    def wait(self, seconds: float) -> bool:
        """Wait until the service has ended; return False if it has not after ``seconds``."""
        return wait_until(lambda: not self.alive(), seconds)

    def status(self) -> int | None:
        """Return the exit status of an owned service that has ended, else None."""
        return self._process.poll() if self._process is not None else None

    def stop(self, grace: float = STOP_TIMEOUT_S) -> None:
        """Request the service to end, and kill it if it has not after ``grace`` seconds."""
        self._signal(signal.SIGTERM)
        if not self.wait(grace):
            self.kill()

    def kill(self) -> None:
        """End the service at once, as ``kill -9`` does, and return when it has ended."""
        self._signal(signal.SIGKILL if self.detached else signal.SIGUSR1)
        self.wait(STOP_TIMEOUT_S)

    def _signal(self, number: signal.Signals) -> None:
        if self.alive():
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)


def wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    """Poll ``condition`` until it is true; return False if it is not within ``seconds``."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_INTERVAL_S)
    return True


def _launcher(owner: int, command: Sequence[str | Path], log: Path) -> list[str]:
    script = owner_watchdog.__file__
    return [sys.executable, "-I", "-S", script, str(owner), str(log), *map(str, command)]


def _command_line(pid: int) -> list[str]:
    """Return the arguments of a process; empty if there is none, or only its zombie."""
    proc = Path("/proc")
    if (proc / "self").exists():
        with suppress(FileNotFoundError, ProcessLookupError):
            return (proc / str(pid) / "cmdline").read_text(errors="replace").split("\0")
        return []
    answer = subprocess.run(["ps", "-ww", "-o", "command=", "-p", str(pid)], capture_output=True, text=True)
    return answer.stdout.split()
