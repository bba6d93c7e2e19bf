"""A call of a handler, as an executor runs it. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wasmline.consumer.state.work_manager import PartitionWork


class Call:
    """One call of the handler with records of one partition."""

    __slots__ = ("began", "result", "seconds", "work")

    def __init__(self, work: PartitionWork) -> None:
        self.work = work
        self.result: Any = None
        """The result: None if it has not returned or was not begun, an exception if it failed as a whole."""
        self.began: float | None = None
        """Time of the handler's call, by ``time.monotonic``."""
        self.seconds = 0.0
        """Duration of that call, once it has a result."""

    def run(self, handle: Any) -> Any:
        """Call a thread's handler with the records, and return its result."""
        raise NotImplementedError

    def set_result(self, result: Any, seconds: float) -> None:
        """Set what the handler returned, or its exception, and how long that took."""
        self.seconds = seconds
        self.result = result  # last: another thread reads the duration of what has a result

    @property
    def is_wanted(self) -> bool:
        """Whether a worker should still begin it: not where its partition is about to be released."""
        return not self.work.held

    @property
    def is_running(self) -> bool:
        """Whether its handler has been called, and has not returned."""
        return self.began is not None and self.result is None

    @property
    def returned(self) -> float | None:
        """Time of the handler's return, by ``time.monotonic``; None before."""
        return None if self.began is None or self.result is None else self.began + self.seconds

    @property
    def first_offset(self) -> int:
        raise NotImplementedError

    def follow(self) -> Call | None:
        """Return the call that the same worker makes next. To be called once, by the worker, after this call."""
        return None

    def lasts(self, now: float) -> float:
        """Return the seconds since the call of its handler."""
        return 0.0 if self.began is None else max(0.0, now - self.began)
