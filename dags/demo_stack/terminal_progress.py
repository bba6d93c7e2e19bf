"""Shows progress at a terminal: a drawing and a spinner with what is waited for, below the lines that stay."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from demo_stack.progress_lines import ProgressLines


class TerminalProgress:
    """A live display, which disappears at its end; lines are printed above it."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._spinner = Spinner("dots")
        self._drawn: RenderableType | None = None
        self._awaited, self._since = "", time.monotonic()
        self._live = Live(console=console, get_renderable=self._render, refresh_per_second=4, transient=True)

    def say(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    def note(self, line: str) -> None:
        """Print nothing: what is drawn shows it."""

    def wait_for(self, what: str) -> None:
        if what != self._awaited:
            self._awaited, self._since = what, time.monotonic()

    def draw(self, shown: RenderableType | None) -> None:
        self._drawn = shown

    def _render(self) -> RenderableType:
        awaited = f"{self._awaited} ({time.monotonic() - self._since:.0f} s)"
        self._spinner.update(text=Text(awaited, no_wrap=True, overflow="ellipsis"))
        return Group(self._drawn, self._spinner) if self._drawn is not None else self._spinner

    def __enter__(self) -> TerminalProgress:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()


def progress_on(console: Console) -> TerminalProgress | ProgressLines:
    """Return the progress of a command on a console: drawn at a terminal, lines elsewhere."""
    if console.is_terminal:
        return TerminalProgress(console)
    return ProgressLines(lambda line: console.print(line, markup=False, highlight=False, soft_wrap=True))
