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

TIMEOUT_S = 60.0
"""Seconds after which a read counts as failed."""

MAX_READS = 3
"""Reads of one kind at one moment."""

MAX_THREADS = 24
"""Reads at one moment, those that have timed out and hang included."""

MAX_KNOWN = 64
"""Results that are kept, those of the last requests."""

Kind = Literal["dead letters", "record", "versions", "models", "model"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadResult:
    """The last result of a read, None without one. ``problem``: why the last attempt has failed."""

    state: Literal["reading", "ready", "failed"]
    value: Any = None
    problem: str = ""


READING = ReadResult(state="reading")


@dataclass(slots=True)
class _Read:
    kind: Kind
    call: BackgroundCall[Any]
    result: ReadResult
    ended_at: float | None = None

    def settle(self) -> None:
        """Take the outcome of a read that has ended or timed out."""
        if self.ended_at is not None:
            return
        if self.call.wait(0):
            try:
                self.result = ReadResult(state="ready", value=self.call.result())
            except Exception as error:
                self._fail(f"{type(error).__name__}: {bounded_line(error)}")
        elif self.call.age > TIMEOUT_S:
            self._fail(f"no answer for {TIMEOUT_S:.0f} s")
        else:
            return
        self.ended_at = time.monotonic()

    def _fail(self, problem: str) -> None:
        self.result = ReadResult(state="failed", value=self.result.value, problem=problem)


class BackgroundReads:
    """Reads that are repeated when they are asked for again and their results are old.

    One kind of read does not wait for another, which may hang.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reads: OrderedDict[tuple[Kind, object], _Read] = OrderedDict()
        self._hanging: list[BackgroundCall[Any]] = []

    def get(
        self, kind: Kind, key: object, read: Callable[[], Any], *, max_age_s: float, waits: bool = True
    ) -> ReadResult:
        """Return the result of ``read``, which ``key`` identifies, at most ``max_age_s`` seconds old; or the last one,
        while a new one is read. A failed read is repeated after as long. ``waits``: up to WAIT_S for a new one."""
        with self._lock:
            found = self._begun((kind, key), read, max_age_s)
        if found is None:
            return READING
        if waits:
            found.call.wait(WAIT_S)
        with self._lock:
            found.settle()
            return found.result

    def _begun(self, key: tuple[Kind, object], read: Callable[[], Any], max_age_s: float) -> _Read | None:
        """Return the read of ``key``, begun anew if it is old; the old one, or None, if too many are under way."""
        for each in self._reads.values():
            each.settle()
        known = self._reads.get(key)
        is_old = known is None or (known.ended_at is not None and time.monotonic() - known.ended_at > max_age_s)
        if is_old and self._has_room(key[0]):
            if known is not None and not known.call.wait(0):
                self._hanging.append(known.call)
            result = READING if known is None else ReadResult(state="reading", value=known.result.value)
            known = self._reads[key] = _Read(key[0], BackgroundCall(read), result)
        if known is not None:
            self._reads.move_to_end(key)
        self._forget()
        return known

    def _has_room(self, kind: Kind) -> bool:
        self._hanging = [each for each in self._hanging if not each.wait(0)]
        running = [each for each in self._reads.values() if not each.call.wait(0)]
        of_kind = sum(each.kind == kind and each.ended_at is None for each in running)
        return of_kind < MAX_READS and len(running) + len(self._hanging) < MAX_THREADS

    def _forget(self) -> None:
        """Forget the oldest results; a read that is under way is kept."""
        ended = [key for key, each in self._reads.items() if each.call.wait(0)]
        for key in ended[: max(0, len(self._reads) - MAX_KNOWN)]:
            del self._reads[key]
