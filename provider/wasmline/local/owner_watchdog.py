"""Supervisor process between an owner and its service: the service never outlives the owner.

Run as a script by path, so that it loads only the standard library: ``owner_watchdog.py OWNER_PID LOG PROGRAM ARG...``.
SIGTERM stops the service, SIGUSR1 kills it; the supervisor ends after it, with its status. With an owner of 0 the
service is detached: it is started, its process id is printed, and this process ends.

Why a process: PR_SET_PDEATHSIG alone is Linux only and fires when the *thread* that started the child ends, which a
pool's thread does early; a pipe whose end of file signals the owner's end stays open in every fork of the owner. The
parent's process id has neither problem.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from functools import partial

POLL_INTERVAL_S = 0.25
"""Seconds between two polls of the owner."""

HANDED_ON = (signal.SIGTERM, signal.SIGUSR1)
PR_SET_PDEATHSIG = 1


def supervise(owner: int, log: str, command: list[str]) -> int:
    """Run ``command`` until it ends, and return its status; kill it as soon as ``owner`` is no longer the parent."""
    signal.pthread_sigmask(signal.SIG_BLOCK, HANDED_ON)  # blocked until there is a service to forward them to
    with open(log, "ab") as stream:  # noqa: PTH123  (importing pathlib would double the start-up time)
        # This process has one thread, which lasts as long as the process: preexec_fn is safe here, and so is PDEATHSIG.
        service = subprocess.Popen(command, stdout=stream, stderr=stream, preexec_fn=partial(_prepare, os.getpid()))
    signal.signal(signal.SIGTERM, lambda *_: service.terminate())
    signal.signal(signal.SIGUSR1, lambda *_: service.kill())
    signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDED_ON)
    while os.getppid() == owner:
        with contextlib.suppress(subprocess.TimeoutExpired):
            status = service.wait(POLL_INTERVAL_S)
            return status if status >= 0 else 128 - status
    service.kill()
    service.wait()
    return 1


def _prepare(supervisor: int) -> None:
    """Prepare the service before its program: unblock signals, and end with the supervisor if the kernel can."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDED_ON)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != supervisor:  # it ended before the request to the kernel
            os._exit(1)


def detach(log: str, command: list[str]) -> int:
    """Start ``command`` in a session of its own and return its process id; the system's first process adopts it."""
    with open(log, "ab") as stream:  # noqa: PTH123
        return subprocess.Popen(command, stdout=stream, stderr=stream, start_new_session=True).pid


def main(owner: int, log: str, command: list[str]) -> int:
    """Run the service under supervision, or detached."""
    if owner:
        return supervise(owner, log, command)
    os.write(1, b"%d" % detach(log, command))
    os._exit(0)  # an interpreter that ended in order would warn that its child still runs


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2], sys.argv[3:]))
