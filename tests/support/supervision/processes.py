"""Finds and kills the processes of supervised streams; pid namespaces."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable
from contextlib import suppress

import psutil  # type: ignore[import-untyped]

from wasmline.local.process import wait_until
from wasmline.spark.driver_process import SUPERVISOR

PID_NAMESPACE = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
"""A command in a pid namespace, whose processes all end with the first one, as those of a pod."""


def has_pid_namespaces() -> bool:
    """Return whether this machine has pid namespaces for us."""
    return (
        bool(shutil.which(PID_NAMESPACE[0])) and subprocess.run([*PID_NAMESPACE, "true"], check=False).returncode == 0
    )


def descendants(pid: int) -> list[psutil.Process]:
    """Return the descendants of a process, but no supervisors of drivers, nor theirs: they have a life of their own."""
    found: list[psutil.Process] = []
    with suppress(psutil.NoSuchProcess):
        for child in psutil.Process(pid).children():
            with suppress(psutil.NoSuchProcess):
                if SUPERVISOR not in child.cmdline():
                    found += [child, *descendants(child.pid)]
    return found


def drivers(job: str) -> list[psutil.Process]:
    """Return the JVM of the driver of a job and its Python process, if they run."""
    return [each for each, command in _of_job(job) if SUPERVISOR not in command]


def with_supervisors(job: str) -> list[psutil.Process]:
    """Return the same, and the supervisors of the job's drivers."""
    return [each for each, _ in _of_job(job)]


def _of_job(job: str) -> list[tuple[psutil.Process, list[str]]]:
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.NoSuchProcess):
            command = process.cmdline()
            if f"--job {job} --run" in " ".join(command):
                found.append((process, command))
    return found


def kill(processes: Iterable[psutil.Process]) -> None:
    """Send SIGKILL, and return when they have ended."""
    killed = list(processes)
    for process in killed:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    assert wait_until(lambda: not any(is_alive(each) for each in killed), 30)


def is_alive(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def processes_of(variable: str, value: str) -> list[psutil.Process]:
    """Return the processes that have an environment variable with this value."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            if process.environ().get(variable) == value:
                found.append(process)
    return found
