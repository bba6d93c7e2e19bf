"""Prints progress as lines, and what is waited for again and again: the output is never silent for long."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rich.console import RenderableType

SILENCE_LIMIT_S = 4.0
"""Seconds without a line after which what is waited for is printed."""

CHECK_INTERVAL_S = 0.25


class Progress(Protocol):
    """Shows what a command has done and what it waits for."""

    def say(self, line: str) -> None:
        """Print a line."""

    def note(self, line: str) -> None:
        """Print a line about a change, unless what is drawn shows it."""

    def wait_for(self, what: str) -> None:
        """Show from now on that this is under way."""

    def draw(self, shown: RenderableType | None) -> None:
        """Replace what is drawn at a terminal."""


class ProgressLines:
    """Prints lines with the seconds since the start; after SILENCE_LIMIT_S without one, a line with what is under way.

    Needs nothing but the standard library: the installation uses it. Thread-safe.
    """

    def __init__(self, write: Callable[[str], object], clock: Callable[[], float] = time.monotonic) -> None:
        self._write = write
        self._clock = clock
        self._begun = self._printed = self._since = clock()
        self._awaited = ""
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._repeat, name="progress-lines", daemon=True)

    def say(self, line: str) -> None:
        with self._lock:
            self._print(line, self._clock())

    note = say

    def wait_for(self, what: str) -> None:
        with self._lock:
            if what != self._awaited:
                self._awaited, self._since = what, self._clock()

    def draw(self, shown: RenderableType | None) -> None:
        """Draw nothing: the lines say it."""

    def check(self) -> None:
        """Print what is under way, and for how long, if there was no line for SILENCE_LIMIT_S."""
        with self._lock:
            now = self._clock()
            if self._awaited and now - self._printed >= SILENCE_LIMIT_S:
                self._print(f"{self._awaited} ({now - self._since:.0f} s)", now)

    def _print(self, line: str, now: float) -> None:
        self._printed = now
        self._write(f"[{now - self._begun:6.1f} s] {line}")

    def _repeat(self) -> None:
        while not self._ended.wait(CHECK_INTERVAL_S):
            self.check()

    def __enter__(self) -> ProgressLines:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()
