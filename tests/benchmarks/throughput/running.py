"""The processes of one contestant, from their start to their end."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from throughput.cpu import ProcessTree
from throughput.outputs import Outputs

REPOSITORY = Path(__file__).parents[3]
END_TIMEOUT_S = 60.0
STATUSES = (0, 128 + signal.SIGTERM)
"""Exit statuses of an end in order; the second is a JVM's, whose shutdown hooks have run."""

LOG_LINES = 20

Delivery = Literal["at_least_once", "exactly_once"]
DELIVERIES: tuple[Delivery, ...] = ("at_least_once", "exactly_once")


class Ended(Exception):
    """A contestant ended before it was stopped, or not in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What a contestant is to do: read a topic as a new group, and write two others. ``folder`` is its own.

    ``broker`` is the broker's process.
    """

    bootstrap: str
    broker: int
    group: str
    delivery: Delivery
    topic: str
    outputs: Outputs
    folder: Path

    def arguments(self) -> list[str]:
        """Return the arguments of the rivals in Python."""
        outputs = self.outputs
        return [self.bootstrap, self.group, self.topic, outputs.features, outputs.dead_letters, self.delivery]


class Running:
    """Processes of one command, each with a log in ``folder``."""

    def __init__(
        self, command: Sequence[str | Path], folder: Path, *, processes: int = 1, more: Mapping[str, str] | None = None
    ) -> None:
        folders = ("tests/benchmarks", "tests", "provider", "dags")
        path = os.pathsep.join(str(REPOSITORY / folder) for folder in folders)
        environment = {**os.environ, "PYTHONPATH": path, **(more or {})}
        self._logs = [folder / f"{number}.log" for number in range(processes)]
        self._processes: list[subprocess.Popen[str]] = []
        for log in self._logs:
            with log.open("wb") as stream:
                self._processes.append(
                    subprocess.Popen(
                        command,
                        stdin=subprocess.PIPE,
                        stdout=stream,
                        stderr=stream,
                        text=True,
                        env=environment,
                        cwd=REPOSITORY,
                    )
                )

    @property
    def pids(self) -> list[int]:
        """The numbers of the processes."""
        return [process.pid for process in self._processes]

    def tree(self) -> ProcessTree:
        """Return the processes, for their CPU time."""
        return ProcessTree(self.pids)

    def tell(self, line: str) -> None:
        """Write a line to the standard input of each."""
        for process in self._processes:
            assert process.stdin
            process.stdin.write(line + "\n")
            process.stdin.flush()

    def check(self) -> None:
        """Raise Ended, with the end of the log, if one of them has ended."""
        for process, log in zip(self._processes, self._logs, strict=True):
            if process.poll() is not None:
                raise Ended(f"status {process.returncode}\n{_end(log)}")

    def stop(self) -> None:
        """End all in order, by SIGTERM. Raises Ended if one fails to."""
        self.check()
        for process in self._processes:
            process.terminate()
        for process, log in zip(self._processes, self._logs, strict=True):
            try:
                status = process.wait(END_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                raise Ended(f"still there {END_TIMEOUT_S:g} s after SIGTERM\n{_end(log)}") from None
            if status not in STATUSES:
                raise Ended(f"status {status}\n{_end(log)}")

    def kill(self) -> None:
        """End all that still run, at once."""
        for process in self._processes:
            process.kill()
            process.communicate()


def _end(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-LOG_LINES:])
