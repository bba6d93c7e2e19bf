"""An executor of Airflow that makes a container for each task; a pid namespace stands for the container."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from airflow.executors.base_executor import BaseExecutor

from support.supervision.processes import PID_NAMESPACE
from wasmline_provider.task_container import WORKLOAD_RUNNER


class PodExecutor(BaseExecutor):
    """Runs the command of the executors of containers, without the variable that tells the pods of Kubernetes."""

    def start(self) -> None:
        self._pods: dict[Any, subprocess.Popen[bytes]] = {}

    def _process_workloads(self, workloads: Sequence[Any]) -> None:
        for workload in workloads:
            self.queued_tasks.pop(workload.key)
            self.running.add(workload.key)
            command = [sys.executable, "-m", WORKLOAD_RUNNER, "--json-string", workload.model_dump_json()]
            self._pods[workload.key] = subprocess.Popen([*PID_NAMESPACE, *command])

    def sync(self) -> None:
        for key, pod in list(self._pods.items()):
            status = pod.poll()
            if status is not None:
                del self._pods[key]
                (self.fail if status else self.success)(key)

    def end(self) -> None:
        for pod in self._pods.values():
            pod.wait()
        self.sync()

    def terminate(self) -> None:
        for pod in self._pods.values():
            pod.kill()
