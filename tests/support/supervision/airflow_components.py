"""An Airflow whose components are killed, and started again, one by one."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import psutil  # type: ignore[import-untyped]

from support.supervision.processes import descendants, kill
from wasmline.local.process import Service, wait_until
from wasmline_provider.local import AirflowApi, LocalAirflow

COMPONENTS = ("api-server", "scheduler", "triggerer", "dag-processor")

WORKER = "airflow worker -- LocalExecutor: "
"""Title of a process of the executor, with the task that it watches over."""

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

    def start(self, name: str, *, instance: str = "", environment: Mapping[str, str] | None = None) -> None:
        """Start a component; another one of a kind needs a name, ``instance``, and ports of its own."""
        command = [sys.executable, "-m", "airflow", name]
        settings = {**self._airflow.environment(), **(environment or {})}
        self._services[instance or name] = Service.start(command, name, self._log(instance or name), settings)

    def await_health(self) -> None:
        wanted = ["scheduler", "triggerer", "dag_processor"]
        assert wait_until(lambda: self.api.healthy(wanted), START_TIMEOUT_S), self.log_ends()

    def kill(self, name: str) -> None:
        """Kill a component with every process that it has started, as the end of its machine does."""
        kill(descendants(self._services[name].pid))
        self._services[name].wait(START_TIMEOUT_S)

    def suspend(self, name: str) -> None:
        for each in descendants(self._services[name].pid):
            each.suspend()

    def resume(self, name: str) -> None:
        for each in descendants(self._services[name].pid):
            each.resume()

    def evict_tasks(self) -> None:
        """Send SIGTERM to the processes that watch over tasks, as the end of a pod does; they hand it on."""
        workers = [each for each in self.task_processes() if _title(each).startswith(WORKER)]
        assert workers
        for each in workers:
            each.terminate()

    def log(self, name: str) -> str:
        log = self._log(name)
        return log.read_text(errors="replace") if log.exists() else ""

    def task_processes(self) -> list[psutil.Process]:
        """Return the worker's processes that have a task at this moment, and those of the task."""
        found = descendants(self._services["scheduler"].pid)
        tasks = [each for each in found if _title(each).startswith(TASK_PROCESSES)]
        return [each for each in tasks if "idle" not in _title(each)]

    def log_ends(self) -> str:
        return "\n".join(f"{name}: {self.log(name)[-2_000:]}" for name in self._services)

    def close(self) -> None:
        self.api.close()
        for name in self._services:
            self.kill(name)

    def _log(self, name: str) -> Path:
        return self._airflow.home / f"{name}.log"


def _title(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return ""
