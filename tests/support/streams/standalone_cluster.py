"""A standalone Spark cluster on the loopback address: a master, and workers that start executors in processes."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from support.streams.local_cluster import spark_home
from wasmline.local.process import Service, wait_until

START_TIMEOUT_S = 60.0
"""Seconds until a process of the cluster must listen, or be registered."""

WORKERS = 2
CORES = 2
"""Cores of each worker."""

MEMORY = "2g"
"""Memory that each worker offers to executors; it reserves none."""


@dataclass(frozen=True)
class Executor:
    """A process that runs tasks of one application."""

    pid: int
    app: str


class StandaloneCluster:
    """A master and workers, which end with this process at the latest."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._home = spark_home(folder / "spark")
        self._logs: list[Path] = []
        self._master = self._start("org.apache.spark.deploy.master.Master")
        self.master = self._found(self._logs[0], r"Starting Spark master at (spark://[\d.]+:\d+)")
        self.workers: list[Service] = []
        for _ in range(WORKERS):
            self.add_worker()

    def add_worker(self) -> None:
        """Start a worker, and return when the master knows it."""
        number = len(self._logs)
        work = self._folder / f"work-{number}"
        self.workers.append(
            self._start(
                "org.apache.spark.deploy.worker.Worker",
                *("--cores", str(CORES), "--memory", MEMORY, "--work-dir", str(work), self.master),
            )
        )
        self._found(self._logs[number], r"(Successfully registered with master)")

    def executors(self, worker: int | None = None) -> list[Executor]:
        """Return the executors that run now: of one worker, by its number, or of all."""
        listed = subprocess.run(["ps", "-ww", "-ax", "-o", "pid=,command="], capture_output=True, text=True, check=True)
        found = []
        for line in listed.stdout.splitlines():
            if str(self._home) in line and "CoarseGrainedExecutorBackend" in line:
                app = re.search(r"--app-id (\S+)", line)
                url = re.search(r"--worker-url spark://Worker@(\S+)", line)
                if app and url and (worker is None or url[1] == self._address(worker)):
                    found.append(Executor(int(line.split()[0]), app[1]))
        return found

    def close(self) -> None:
        """Stop the workers, which end their executors, and the master."""
        for each in (*self.workers, self._master):
            each.stop()

    def _address(self, worker: int) -> str:
        return self._found(self._logs[1 + worker], r"Starting Spark worker ([\d.]+:\d+)")

    def _start(self, class_name: str, *arguments: str) -> Service:
        log = self._folder / f"{len(self._logs)}.log"
        self._logs.append(log)
        settings = {"SPARK_HOME": str(self._home), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "192m"}
        listen = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        command = [str(self._home / "bin" / "spark-class"), class_name, *listen, *arguments]
        return Service.start(command, str(log), log, {**os.environ, **settings})

    def _found(self, log: Path, pattern: str) -> str:
        """Wait for a line of a log, and return its group."""

        def found() -> re.Match[str] | None:
            return re.search(pattern, log.read_text(errors="replace")) if log.exists() else None

        assert wait_until(lambda: found() is not None, START_TIMEOUT_S), log.read_text(errors="replace")
        match = found()
        assert match is not None
        return match[1]


@contextmanager
def standalone_cluster(folder: Path) -> Iterator[StandaloneCluster]:
    """Yield a cluster that is stopped at the end."""
    folder.mkdir(parents=True, exist_ok=True)
    cluster = StandaloneCluster(folder)
    try:
        yield cluster
    finally:
        cluster.close()


def is_alive(executor: Executor) -> bool:
    """Return whether the process is there."""
    try:
        os.kill(executor.pid, 0)
    except ProcessLookupError:
        return False
    return True
