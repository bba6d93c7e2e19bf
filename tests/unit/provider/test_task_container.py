"""Containers that end with their task are told from those of workers; a pid namespace stands for a container."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from support.supervision.processes import PID_NAMESPACE, has_pid_namespaces
from wasmline.errors import EphemeralContainer
from wasmline.local.process import wait_until
from wasmline.spark.driver_process import SUPERVISOR
from wasmline_provider import task_container
from wasmline_provider.task_container import ephemeral_container_reason

WORKLOAD = ["python", "-m", task_container.WORKLOAD_RUNNER, "--json-string", '{"token": "hunter2"}']

ENDING = {
    "a pod of the Kubernetes executor": ({"AIRFLOW_IS_K8S_EXECUTOR_POD": "True"}, 9, ["dumb-init"], []),
    "a runner of one workload": ({}, 9, WORKLOAD, []),
    "the same behind an init process": ({}, 9, ["/usr/bin/dumb-init", "--", "/entrypoint", *WORKLOAD], []),
    "the same in a shell": ({}, 9, ["sh", "-c", " ".join(WORKLOAD)], []),
    "the same below another process 1": ({}, 9, ["/pause"], [["airflow worker -- 1"], WORKLOAD]),
    "its process title": ({}, 9, ["airflow supervisor: dag.task run"], []),
    "a task by hand": ({}, 9, ["dumb-init", "--", "/entrypoint", "/usr/local/bin/airflow", "tasks", "test", "d"], []),
    "a DAG by hand": ({}, 9, ["airflow", "dags", "test", "d"], []),
    "the task itself": ({}, 1, ["python", "dag.py"], []),
}
LASTING = {
    "a machine": ({}, 4711, ["/sbin/init"], [["airflow supervisor: dag.task"], ["airflow", "scheduler"]]),
    "a container of Celery's worker": ({}, 9, ["dumb-init", "--", "/entrypoint", "celery", "worker"], []),
    "Celery's worker in a pod": ({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, 9, ["airflow", "celery", "worker"], []),
    "the local executor": (
        {},
        9,
        ["dumb-init", "--", "/entrypoint", "scheduler"],
        [["airflow worker -- LocalExecutor"]],
    ),
    "a standalone Airflow": ({}, 9, ["airflow", "standalone"], [["airflow", "scheduler"]]),
    "an edge worker": ({}, 9, ["airflow", "edge", "worker"], []),
    "an empty mark": ({"AIRFLOW_IS_K8S_EXECUTOR_POD": ""}, 9, ["/sbin/init"], []),
    "a system without /proc": ({}, 9, [], []),
}


@pytest.mark.parametrize("name", ENDING)
def test_a_container_of_one_task_is_recognised_and_its_token_is_not_shown(name: str) -> None:
    environment, pid, first_process, ancestors = ENDING[name]
    sign = ephemeral_container_reason(environment, pid, first_process, ancestors)
    assert sign
    assert "hunter2" not in sign


@pytest.mark.parametrize("name", LASTING)
def test_a_container_of_a_worker_is_not(name: str) -> None:
    environment, pid, first_process, ancestors = LASTING[name]
    assert ephemeral_container_reason(environment, pid, first_process, ancestors) is None


def test_this_process_may_start_drivers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(task_container.KUBERNETES_EXECUTOR_VARIABLE, raising=False)
    task_container.require_lasting_container()
    monkeypatch.setenv(task_container.KUBERNETES_EXECUTOR_VARIABLE, "True")
    with pytest.raises(EphemeralContainer, match=r"wasmline launcher.*deploy-mode cluster") as refused:
        task_container.require_lasting_container()
    assert not refused.value.retryable


def test_the_parents_of_this_process_are_read() -> None:
    if not task_container.PROC.joinpath("self").exists():
        pytest.skip("needs /proc")
    assert task_container._parent(os.getpid()) == os.getppid()
    assert task_container._command_line(os.getpid())[0]


RUNNER = """
import os, sys
from pathlib import Path
from wasmline.errors import EphemeralContainer
from wasmline.kafka.config import VARIABLE
from wasmline.spark.driver_process import start_supervisor
from wasmline_provider.task_container import require_lasting_container

if os.fork():  # the supervisor of the task: the container ends when it does
    os.wait()
    sys.exit()
try:
    require_lasting_container()
    print("passed", flush=True)
except EphemeralContainer as error:
    print("refused:", error.sign, flush=True)
command = [sys.executable, "-c", "import time; time.sleep(600)", sys.argv[1]]
environment = {**os.environ, VARIABLE: '{"bootstrap.servers": "127.0.0.1:1"}'}
start_supervisor(command, environment, "job", "run", Path(sys.argv[0]).with_name("driver.log"))
os._exit(0)
"""

WORKER = """
import subprocess, sys
subprocess.run([sys.executable, *sys.argv[3:]], check=True)
print("the task has ended", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def container() -> tuple[str, ...]:
    """The command that makes its argument process 1 of a pid namespace."""
    if not has_pid_namespaces():
        pytest.skip("needs unshare and the right to make a pid namespace")
    return PID_NAMESPACE


def driver_lives(mark: str) -> bool:
    return subprocess.run(["pgrep", "-f", "--", mark], capture_output=True, check=False).returncode == 0


def test_where_the_task_is_the_container_it_is_refused_and_a_driver_would_end_with_it(
    container: tuple[str, ...], tmp_path: Path
) -> None:
    mark, script = f"driver-{uuid.uuid4()}", tmp_path / "runner.py"
    script.write_text(RUNNER)
    pod = [*container, sys.executable, str(script), mark, task_container.WORKLOAD_RUNNER, "--json-string", "{}"]
    done = subprocess.run(pod, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("refused: process 1 of this container runs one task")
    assert wait_until(lambda: not driver_lives(mark), 10)


def test_where_the_container_is_a_workers_the_task_passes_and_the_driver_outlives_it(
    container: tuple[str, ...], tmp_path: Path
) -> None:
    mark, task, worker = f"driver-{uuid.uuid4()}", tmp_path / "runner.py", tmp_path / "worker.py"
    task.write_text(RUNNER)
    worker.write_text(WORKER)
    command = [*container, sys.executable, str(worker), "celery", "worker", str(task), mark]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as pod:
        assert pod.stdout is not None
        assert pod.stdin is not None
        assert pod.stdout.readline() == "passed\n"
        assert pod.stdout.readline() == "the task has ended\n"
        lived = [each for each in _ps() if mark in each and SUPERVISOR in each]
        pod.stdin.close()
    assert lived
    assert wait_until(lambda: not driver_lives(mark), 10)  # the worker's container has ended


def _ps() -> list[str]:
    return subprocess.run(
        ["ps", "-ww", "-e", "-o", "args="], capture_output=True, text=True, check=True
    ).stdout.splitlines()
