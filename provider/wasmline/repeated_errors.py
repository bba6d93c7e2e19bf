"""Tells an error that repeats once."""

from __future__ import annotations

from wasmline.printable import bounded_line


class RepeatedErrors:
    """The last error of each thing that is tried again and again, for its log. For one thread."""

    def __init__(self) -> None:
        self._last: dict[str, str] = {}

    def changed(self, what: str, error: Exception) -> str:
        """Return the error of ``what`` as one line; empty if that failed with the same one last time."""
        line = error_line(error)
        last, self._last[what] = self._last.get(what), line
        return "" if line == last else line

    def is_failing(self, what: str) -> bool:
        """Return whether ``what`` failed last time."""
        return what in self._last

    def solved(self, what: str) -> None:
        """Forget the error of ``what``: the next one is told, even if it is the same."""
        self._last.pop(what, None)


def error_line(error: Exception) -> str:
    """Return the type and the text of an error as one printable line."""
    return f"{type(error).__name__}: {bounded_line(error)}"
