"""An Airflow whose components are killed, and started again, one by one."""

from __future__ import annotations

import sys
from pathlib import Path

import psutil  # type: ignore[import-untyped]

from support.supervision.processes import kill, offspring
from wasmline.local.process import Service, wait_until
from wasmline_provider.local import AirflowApi, LocalAirflow

COMPONENTS = ("api-server", "scheduler", "triggerer", "dag-processor")

TASK_PROCESSES = ("airflow worker -- ", "airflow supervisor: ", "airflow task runner: ")
"""Titles of the executor's worker, of the process that watches over a task, and of the task."""

START_TIMEOUT_S = 120.0


class AirflowComponents:
    """The components of a prepared Airflow, each a service of its own."""

    def __init__(self, airflow: LocalAirflow) -> None:
        self._airflow = airflow
        self._services: dict[str, Service] = {}
        self.api = AirflowApi(airflow.url)
        for name in COMPONENTS:
            self.start(name)
        self.await_health()
        self.api.login()

    def start(self, name: str) -> None:
        log = self._airflow.home / f"{name}.log"
        command = [sys.executable, "-m", "airflow", name]
        self._services[name] = Service.start(command, name, log, self._airflow.environment())

    def await_health(self) -> None:
        wanted = ["scheduler", "triggerer", "dag_processor"]
        assert wait_until(lambda: self.api.healthy(wanted), START_TIMEOUT_S), self.log_ends()

    def kill(self, name: str) -> None:
        """Kill a component with every process that it has started, as the end of its machine does."""
        kill(offspring(self._services[name].pid))
        self._services[name].wait(START_TIMEOUT_S)

    def task_processes(self) -> list[psutil.Process]:
        """Return the worker's processes that have a task at this moment, and those of the task."""
        found = offspring(self._services["scheduler"].pid)
        tasks = [each for each in found if _title(each).startswith(TASK_PROCESSES)]
        return [each for each in tasks if "idle" not in _title(each)]

    def log_ends(self) -> str:
        logs = [self._airflow.home / f"{name}.log" for name in COMPONENTS]
        return "\n".join(f"{log.name}: {_end(log)}" for log in logs)

    def close(self) -> None:
        self.api.close()
        for name in COMPONENTS:
            self.kill(name)


def _title(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return ""


def _end(log: Path) -> str:
    return log.read_text(errors="replace")[-2_000:] if log.exists() else ""
