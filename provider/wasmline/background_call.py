"""Calls in daemon threads, which may never return.

A call of confluent-kafka that may fail while an exception is handled is made in one, too: an error of the client keeps
the exception that its own thread handles, and the variables of all its frames, for ever.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from functools import partial
from typing import Generic, TypeVar

T = TypeVar("T")


class BackgroundCall(Generic[T]):
    """A call in a daemon thread of its own. One that hangs blocks neither its caller nor the end of the process."""

    def __init__(self, call: Callable[[], T]) -> None:
        self._call = call
        self._began = time.monotonic()
        self._done = threading.Event()
        self._error: BaseException | None = None
        threading.Thread(target=self._run, name="wasmline-background-call", daemon=True).start()

    @property
    def age(self) -> float:
        """Seconds since the call began."""
        return time.monotonic() - self._began

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is done, at most ``timeout`` seconds; return whether it is."""
        return self._done.wait(timeout)

    def result(self) -> T:
        """Return the call's result, or raise its error, once it is done; an error only once, and RuntimeError after it.

        The frames of an error refer to this object: if it kept the error, only the garbage collector would free them.
        """
        self._done.wait()
        error, self._error = self._error, None
        if error is None:
            if not hasattr(self, "_result"):
                raise RuntimeError("the error of this call has been raised before")
            return self._result
        try:
            raise error
        finally:
            del error

    def _run(self) -> None:
        try:
            self._result = self._call()
        except BaseException as error:
            self._error = error
        finally:
            self._done.set()
            del self  # the frames of an error that nobody takes


def call_each(names: Collection[str], call: Callable[[str], T]) -> dict[str, T]:
    """Call for all names in parallel, and return the results, or raise the error of one.

    Each in a thread, also a single one: the caller may be handling an exception.
    """
    calls = {name: BackgroundCall(partial(call, name)) for name in names}
    return {name: each.result() for name, each in calls.items()}
