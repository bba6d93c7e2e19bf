"""Recognises a container that ends with its task: a driver started in it ends, too."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from wasmline.errors import EphemeralContainer

KUBERNETES_EXECUTOR_VARIABLE = "AIRFLOW_IS_K8S_EXECUTOR_POD"
"""Set by Airflow's Kubernetes executor in each pod that it makes for a task."""

WORKLOAD_RUNNER = "airflow.sdk.execution_time.execute_workload"
"""The module that executors of containers (Kubernetes, ECS, Batch …) run in a container of one task."""

TASK_TITLES = ("airflow supervisor: ", "airflow worker -- ")
"""Process titles of Airflow's task supervisor and of the task itself; the first hides the runner's command line."""

TASK_COMMANDS = (("tasks", "run"), ("tasks", "test"), ("dags", "test"))
"""Commands of ``airflow`` that end with their tasks."""

FIRST_PROCESS = 1
"""The process id of a container's first process: the kernel kills all others with it."""

PROC = Path("/proc")

Command = Sequence[str]


def ephemeral_container_reason(
    environment: Mapping[str, str], pid: int, first_process: Command, ancestors: Sequence[Command]
) -> str | None:
    """Return the sign that the container ends with its task, or None where the driver outlives the task.

    ``environment`` and ``pid`` are the task process's own, ``first_process`` is the command line of process 1,
    ``ancestors`` are those of its parents, the nearest first. Unknown command lines are empty.
    """
    if environment.get(KUBERNETES_EXECUTOR_VARIABLE):
        return f"{KUBERNETES_EXECUTOR_VARIABLE} is set: this is a pod of Airflow's Kubernetes executor"
    if pid == FIRST_PROCESS:
        return "the task is process 1 of its container"
    if _runs_one_task(first_process):
        return f"process 1 of this container runs one task: {_shortened(first_process)}"
    for ancestor in ancestors:
        if any(WORKLOAD_RUNNER in each for each in ancestor):
            return f"a parent of this process runs one task in its container: {_shortened(ancestor)}"
    return None


def require_lasting_container() -> None:
    """Raise EphemeralContainer if a driver started by this process would end with the task."""
    pid = os.getpid()
    sign = ephemeral_container_reason(os.environ, pid, _command_line(FIRST_PROCESS), _ancestors(pid))
    if sign is not None:
        raise EphemeralContainer(
            f"a driver started here would end with the task ({sign}). Nothing was ordered. Either set the operator's "
            "launcher to the name of a running `wasmline launcher`, or use a Spark connection with deploy-mode cluster "
            "on Kubernetes or YARN: see docs/executors.md",
            sign=sign,
        )


def _runs_one_task(command: Command) -> bool:
    """Return whether a command line, maybe behind an init process such as dumb-init, is that of one task."""
    if any(WORKLOAD_RUNNER in each for each in command):
        return True
    if command and command[0].startswith(TASK_TITLES):
        return True
    return any(
        Path(command[at]).name == "airflow" and tuple(command[at + 1 : at + 3]) in TASK_COMMANDS
        for at in range(len(command))
    )


def _shortened(command: Command) -> str:
    """Return the beginning of a command line, without the workload, a JSON object that holds a token."""
    return " ".join(command).partition("{")[0].strip()[:160]


def _ancestors(pid: int) -> list[list[str]]:
    commands = []
    while (pid := _parent(pid)) > FIRST_PROCESS:
        commands.append(_command_line(pid))
    return commands


def _parent(pid: int) -> int:
    """Return the parent of a process; 0 if it is not known, as on a system without /proc."""
    try:
        status = (PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return 0
    return int(status.rpartition(")")[2].split()[1])  # the name before it may hold spaces and brackets


def _command_line(pid: int) -> list[str]:
    try:
        return (PROC / str(pid) / "cmdline").read_text(errors="replace").rstrip("\0").split("\0")
    except OSError:
        return []
