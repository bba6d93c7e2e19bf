"""Shows the progress of a DAG run: a table at a terminal, a line for each change elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from types import MappingProxyType, TracebackType

from rich.console import Group
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars
from rich.table import Table
from rich.text import Text

from demo_stack.progress_lines import Progress
from wasmline_provider.local.api_client import TaskState

ACTIVE = frozenset({"running", "deferred"})
DONE = frozenset({"success", "failed", "upstream_failed", "skipped"})
STYLES = {"success": "green", "failed": "bold red", "upstream_failed": "red", "running": "cyan", "deferred": "cyan"}
WORDS = {"deferred": "running", "upstream_failed": "not run", "None": "waiting", "scheduled": "waiting"}


class RunProgress:
    """Shows the tasks of a run in the given order, how long each took, and which are waited for."""

    def __init__(self, progress: Progress, order: Sequence[str]) -> None:
        self._progress = progress
        self._order = {task: place for place, task in enumerate(order)}
        self._told: dict[str, str] = {}
        self._news: dict[str, str] = {}
        self._bars = Bars(TextColumn("steps"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._bar = self._bars.add_task("steps", total=len(order))

    def show(self, tasks: Sequence[TaskState], news: Mapping[str, str] = MappingProxyType({})) -> None:
        """Show the current state of the tasks; ``news`` has messages of some."""
        ordered = sorted(tasks, key=lambda task: self._order.get(task.task, len(self._order)))
        self._bars.update(self._bar, completed=sum(task.state in DONE for task in tasks), total=len(tasks))
        self._progress.draw(Group(_table(ordered, news), self._bars))
        for task in ordered:
            self._note_change(task, news.get(task.task))
        self._progress.wait_for(_awaited(ordered, news))

    def _note_change(self, task: TaskState, line: str | None) -> None:
        word = WORDS.get(task.state, task.state)
        if word != self._told.get(task.task) and word not in ("waiting", "queued"):
            took = f" after {task.seconds:.1f} s" if task.state in DONE and task.seconds is not None else ""
            self._progress.note(f"{task.task}: {word}{took}")
            self._told[task.task] = word
        if line and line != self._news.get(task.task):
            self._progress.note(f"{task.task}: {line}")
            self._news[task.task] = line

    def __enter__(self) -> RunProgress:
        self._progress.wait_for("Airflow starts the run")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.draw(None)
        self._progress.wait_for("reading the results")


def _awaited(tasks: Sequence[TaskState], news: Mapping[str, str]) -> str:
    """Return what the run is waiting for: its active tasks with their last messages, else the next one to start."""
    active = [f"{task.task}: {news.get(task.task, 'running')}" for task in tasks if task.state in ACTIVE]
    waiting = [f"Airflow starts {task.task}" for task in tasks if task.state not in DONE]
    return "; ".join(active or waiting[:1] or ["Airflow ends the run"])


def _table(tasks: Sequence[TaskState], news: Mapping[str, str]) -> Table:
    table = Table.grid(padding=(0, 2))
    for task in tasks:
        seconds = task.seconds
        if seconds is None and task.started is not None:
            seconds = (datetime.now(UTC) - task.started).total_seconds()
        word = Text(WORDS.get(task.state, task.state), style=STYLES.get(task.state, "dim"))
        said = Text(news.get(task.task, ""), style="dim")
        table.add_row(task.task, word, "" if seconds is None else f"{seconds:6.1f} s", said)
    return table
