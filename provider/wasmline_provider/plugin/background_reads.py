"""Reads of a cluster or a registry that requests ask for, in threads of their own: no request waits for a broker."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from wasmline.background_call import BackgroundCall
from wasmline.printable import bounded_line

WAIT_S = 0.2
"""Seconds for which a request waits for a read that it has begun."""

MAX_READS = 4
"""Reads at one moment."""

MAX_KNOWN = 64
"""Results that are kept, those of the last requests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadResult:
    """The last result of a read, None without one. ``problem``: why the last attempt has failed."""

    state: Literal["reading", "ready", "failed"]
    value: Any = None
    problem: str = ""


@dataclass(slots=True)
class _Known:
    call: BackgroundCall[Any]
    ended_at: float | None = None
    value: Any = None
    problem: str = ""


class BackgroundReads:
    """Reads that are repeated when they are asked for again and their results are old."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[object, _Known] = OrderedDict()

    def get(self, key: object, read: Callable[[], Any], *, max_age_s: float) -> ReadResult:
        """Return the result of ``read``, which ``key`` identifies, at most ``max_age_s`` seconds old; or the last one,
        while a new one is read. A failed read is repeated after as long."""
        with self._lock:
            known = self._begun(key, read, max_age_s)
        if known is None:
            return ReadResult(state="reading")
        known.call.wait(WAIT_S)
        with self._lock:
            self._settle(known)
            if known.ended_at is None:
                return ReadResult(state="reading", value=known.value)
            return ReadResult(state="failed" if known.problem else "ready", value=known.value, problem=known.problem)

    def _begun(self, key: object, read: Callable[[], Any], max_age_s: float) -> _Known | None:
        """Return the read of ``key``, begun anew if it is old; None if too many others are under way."""
        for each in self._known.values():
            self._settle(each)
        known = self._known.get(key)
        is_old = known is None or (known.ended_at is not None and time.monotonic() - known.ended_at > max_age_s)
        if is_old:
            if sum(each.ended_at is None for each in self._known.values()) >= MAX_READS:
                return known
            known = _Known(BackgroundCall(read), value=None if known is None else known.value)
            self._known[key] = known
        self._known.move_to_end(key)
        while len(self._known) > MAX_KNOWN:
            self._known.popitem(last=False)
        return known

    @staticmethod
    def _settle(known: _Known) -> None:
        """Take the outcome of a read that has ended."""
        if known.ended_at is not None or not known.call.wait(0):
            return
        known.ended_at = time.monotonic()
        try:
            known.value, known.problem = known.call.result(), ""
        except Exception as error:
            known.problem = f"{type(error).__name__}: {bounded_line(error)}"
