"""Shows the progress of a DAG run: a live table at a terminal, a line for each change elsewhere."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from types import MappingProxyType, TracebackType

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from wasmline_provider.local.api_client import TaskState

DONE = frozenset({"success", "failed", "upstream_failed", "skipped"})
STYLES = {"success": "green", "failed": "bold red", "upstream_failed": "red", "running": "cyan", "deferred": "cyan"}
WORDS = {"deferred": "running", "upstream_failed": "not run", "None": "waiting", "scheduled": "waiting"}


class RunProgress:
    """Shows the tasks of a run in the given order, and how long each took."""

    def __init__(self, console: Console, order: Sequence[str]) -> None:
        self._console = console
        self._order = {task: place for place, task in enumerate(order)}
        self._told: dict[str, str] = {}
        self._news: dict[str, str] = {}
        self._began = time.monotonic()
        self._bar = Progress(TextColumn("steps"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._bar_task = self._bar.add_task("steps", total=len(order))
        self._live = Live(console=console, refresh_per_second=8, transient=True) if console.is_terminal else None

    def show(self, tasks: Sequence[TaskState], news: Mapping[str, str] = MappingProxyType({})) -> None:
        """Show the current state of the tasks; ``news`` has messages of some."""
        ordered = sorted(tasks, key=lambda task: self._order.get(task.task, len(self._order)))
        if self._live is not None:
            self._bar.update(self._bar_task, completed=sum(task.state in DONE for task in tasks), total=len(tasks))
            self._live.update(Group(_table(ordered, news), self._bar))
            return
        for task in ordered:
            word = WORDS.get(task.state, task.state)
            if word != self._told.get(task.task) and word not in ("waiting", "queued"):
                took = f" after {task.seconds:.1f} s" if task.state in DONE and task.seconds is not None else ""
                self._print(f"{task.task}: {word}{took}")
                self._told[task.task] = word
            line = news.get(task.task)
            if line and line != self._news.get(task.task):
                self._print(f"{task.task}: {line}")
                self._news[task.task] = line

    def _print(self, line: str) -> None:
        elapsed = time.monotonic() - self._began
        self._console.print(f"[{elapsed:6.1f} s] {line}", markup=False, highlight=False, soft_wrap=True)

    def __enter__(self) -> RunProgress:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()


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
