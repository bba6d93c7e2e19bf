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

IDLE = "<idle>"

START_TIMEOUT_S = 120.0


class AirflowComponents:
    """The components of a prepared Airflow, each a service of its own."""

    def __init__(self, airflow: LocalAirflow, settings: Mapping[str, str] | None = None) -> None:
        """``settings`` are environment variables beside those of ``airflow``."""
        self._airflow = airflow
        self._settings = dict(settings or {})
        self._services: dict[str, Service] = {}
        self.api = AirflowApi(airflow.url)
        for name in COMPONENTS:
            self.start(name)
        self.await_health()
        self.api.login()

    def start(self, name: str, *, instance: str = "", environment: Mapping[str, str] | None = None) -> None:
        """Start a component, a command of ``airflow``; a second one needs an ``instance`` name and ports of its own."""
        command = [sys.executable, "-m", "airflow", *name.split()]
        settings = {**self._airflow.environment(), **self._settings, **(environment or {})}
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
        workers = self.workers_of("")
        assert workers
        for each in workers:
            each.terminate()

    def log(self, name: str) -> str:
        log = self._log(name)
        return log.read_text(errors="replace") if log.exists() else ""

    def workers_of(self, task: str) -> list[psutil.Process]:
        """Return the executor's processes that watch over the task instance of this id now; of any, if it is empty."""
        titles = {each: _title(each) for each in descendants(self._services["scheduler"].pid)}
        return [
            each for each, title in titles.items() if title.startswith(WORKER) and task in title and IDLE not in title
        ]

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
