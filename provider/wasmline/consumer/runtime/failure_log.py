"""Logs failed attempts of handlers: a line for each, and a rate-limited traceback."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterator
from typing import Any

from wasmline import dead_letters
from wasmline.consumer.records import ConsumedRecord, record_coordinates
from wasmline.errors import TerminalFailure, TransformError

logger = logging.getLogger(__name__)

LINES_PER_S = 50
"""Maximum of lines in one second; omitted lines are counted."""

TRACEBACK_INTERVAL_S = 60.0
"""Seconds from a traceback of one kind of failure to the next."""

MAX_KINDS = 1_000
"""Kinds of failures that are remembered."""

MAX_FRAMES = 30
MAX_CAUSES = 5

HAS_LINES = {"has_lines": True}
"""Marks a log record with a message of several lines: a formatter may keep them."""

OURS = "wasmline.consumer"
"""The package whose frames are omitted from tracebacks."""

Kind = tuple[type[BaseException], str, int]


class FailureLog:
    """Logs failed records and their errors; never their values, except for values in an exception's text.

    A kind of failure is the type of its exception and the line that raised it. The first failure of a kind is logged
    with its traceback, and so is the next one a minute later. ``now`` is in seconds of a monotonic clock.
    """

    def __init__(self) -> None:
        self._traceback_times: dict[Kind, float] = {}
        """Time of the last traceback of a kind."""
        self._second = 0.0
        self._lines = 0
        self._omitted = 0

    def retried(self, record: ConsumedRecord, error: Exception, now: float) -> None:
        """Log a failed attempt that is followed by another."""
        trace = self._trace(error, now)
        if not trace and not self._has_room(now):
            self._omitted += 1
            return
        reason = f"{type(error).__name__}({dead_letters.reason_of(error)!r})"
        logger.warning(
            "%s failed at attempt %d, retrying: %s%s",
            record_coordinates(record),
            record.attempt,
            reason,
            trace,
            extra=HAS_LINES,
        )

    def dead_lettered(self, record: ConsumedRecord, error: Exception, now: float) -> None:
        """Log the traceback of the last attempt; the dead letter's own log line says that it was the last."""
        if isinstance(error, TerminalFailure | TransformError):
            return  # raised on purpose by the handler or a guest: the reason is complete
        if trace := self._trace(error, now):
            logger.warning(
                "%s failed at attempt %d:%s", record_coordinates(record), record.attempt, trace, extra=HAS_LINES
            )

    def _has_room(self, now: float) -> bool:
        if now - self._second >= 1.0:
            if self._omitted:
                logger.warning("%d more attempts failed, retrying", self._omitted)
            self._second, self._lines, self._omitted = now, 0, 0
        self._lines += 1
        return self._lines <= LINES_PER_S

    def _trace(self, error: Exception, now: float) -> str:
        """Return the traceback of a failure, on lines of its own, unless its kind was logged recently."""
        stack = _stack(error)
        if not stack:
            return ""
        kind = (type(error), stack[-1].filename, stack[-1].lineno or 0)
        if now - self._traceback_times.get(kind, float("-inf")) < TRACEBACK_INTERVAL_S:
            return ""
        if len(self._traceback_times) >= MAX_KINDS:
            self._traceback_times.clear()
        self._traceback_times[kind] = now
        lines = ["", "Traceback (most recent call last):", *_lines(stack)]
        for cause in list(_causes(error))[:MAX_CAUSES]:
            lines += [f"caused by {type(cause).__name__}({dead_letters.reason_of(cause)!r})", *_lines(_stack(cause))]
        return "\n".join(lines)


def forget_frames(error: BaseException) -> None:
    """Drop the frames of an exception, of its causes and of a group's members: their variables may hold much memory."""
    left, seen = [error], set()
    while left:
        each = left.pop()
        if id(each) not in seen:
            seen.add(id(each))
            BaseException.with_traceback(each, None)
            causes = (_attribute(each, "__cause__"), _attribute(each, "__context__"))
            left += [cause for cause in causes if cause is not None]
            if issubclass(type(each), BaseExceptionGroup):
                left += vars(BaseExceptionGroup)["exceptions"].__get__(each)


def _attribute(error: BaseException, name: str) -> Any:
    """Return an attribute of Python's own, also of a class of exceptions that has another by its name."""
    return vars(BaseException)[name].__get__(error)


def _stack(error: BaseException) -> traceback.StackSummary:
    """Return the frames of an exception, from the handler's own on."""
    trace = _attribute(error, "__traceback__")
    while trace is not None and trace.tb_frame.f_globals.get("__name__", "").startswith(OURS):
        trace = trace.tb_next
    return traceback.extract_tb(trace, limit=-MAX_FRAMES)


def _lines(stack: traceback.StackSummary) -> list[str]:
    return "".join(stack.format()).splitlines()


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the causes and contexts of an exception, in turn."""
    seen = {id(error)}
    while True:
        cause = _attribute(error, "__cause__")
        if cause is None and not _attribute(error, "__suppress_context__"):
            cause = _attribute(error, "__context__")
        if cause is None or id(cause) in seen:
            return
        seen.add(id(cause))
        yield cause
        error = cause
