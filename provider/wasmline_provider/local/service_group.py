"""Runs a group of services in a process: no service and none of its descendants outlives it or its owner.

Run as a script: ``service_group.py PLAN OWNER``. PLAN is a JSON file, ``{"environment": {…}, "services": [{"command":
[…], "log": PATH}, …]}``; OWNER is the process that must live, 0 for a group that runs until it is stopped. SIGTERM
ends the services in order, and slow ones are killed; SIGUSR1 kills them all. If one of them ends by itself, the
others are killed, and the status is 1.

Why a process of its own: processes that Airflow's tasks start (executor workers, Spark drivers) leave their parents'
sessions and groups. Under Linux orphaned descendants of this process become its children ("child subreaper"), so that
it finds them.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import TypedDict

import psutil  # type: ignore[import-untyped]

POLL_INTERVAL_S = 0.2
STOP_TIMEOUT_S = 5.0
"""Seconds for the services to end in order. An idle triggerer would take ten; its state is in the database."""

PR_SET_CHILD_SUBREAPER = 36


class ServicePlan(TypedDict):
    """One service: its command line, and its log file."""

    command: list[str]
    log: str


class Plan(TypedDict):
    """Services in the order of their start, and the environment that they share."""

    environment: dict[str, str]
    services: list[ServicePlan]


class ServiceGroup:
    """The services of a plan, while they run."""

    def __init__(self, plan: Plan, owner: int) -> None:
        self._owner = owner
        self._asked: signal.Signals | None = None
        signal.signal(signal.SIGTERM, self._ask)
        signal.signal(signal.SIGUSR1, self._ask)
        self._services = [_start(service, plan["environment"]) for service in plan["services"]]

    def keep(self) -> int:
        """Wait for a signal, the owner's end or a service's end; stop all services, and return the exit status."""
        while self._asked is None and self._owned() and all(service.poll() is None for service in self._services):
            _reap({service.pid for service in self._services})
            time.sleep(POLL_INTERVAL_S)
        asked = self._asked
        if asked is signal.SIGTERM:
            self._end()
        _kill_offspring()
        return 0 if asked else 1

    def _end(self) -> None:
        for service in self._services:
            service.terminate()
        deadline = time.monotonic() + STOP_TIMEOUT_S
        while any(service.poll() is None for service in self._services) and time.monotonic() < deadline:
            if self._asked is not signal.SIGTERM:
                return
            time.sleep(POLL_INTERVAL_S / 4)

    def _owned(self) -> bool:
        return not self._owner or os.getppid() == self._owner

    def _ask(self, number: int, _: FrameType | None) -> None:
        self._asked = signal.Signals(number)


def _start(service: ServicePlan, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    with Path(service["log"]).open("ab") as output:
        return subprocess.Popen(
            service["command"],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )


def _reap(services: set[int]) -> None:
    """Collect orphans that have ended; the services themselves are collected by their Popen."""
    for child in psutil.Process().children():
        try:
            if child.pid not in services and child.status() == psutil.STATUS_ZOMBIE:
                os.waitpid(child.pid, os.WNOHANG)
        except (psutil.NoSuchProcess, ChildProcessError):
            continue


def _kill_offspring() -> None:
    """Kill every descendant, repeatedly until there is none: they may be starting others."""
    while living := [child for child in psutil.Process().children(recursive=True) if _alive(child)]:
        for child in living:
            try:
                child.kill()
            except psutil.NoSuchProcess:
                continue
        with suppress(FileNotFoundError):  # psutil's, where a process ends as it begins to wait for it
            psutil.wait_procs(living, timeout=1)


def _alive(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def main(plan: str, owner: str) -> int:
    """Run the services of a plan."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    return ServiceGroup(json.loads(Path(plan).read_text()), int(owner)).keep()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
