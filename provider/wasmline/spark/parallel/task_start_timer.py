"""Times how long tasks of a job's leases wait for a slot, from samples of Spark's status."""

from __future__ import annotations

from collections.abc import Mapping


class TaskStartTimer:
    """Decides that a job has more tasks than slots. Pure: the time is an argument, in seconds.

    Spark's status lags behind its tasks: in the first sample of a stage none of them may be active yet. Only a later
    sample of the same stage shows that its tasks wait, so leases that end quickly, one after another, show nothing.
    """

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._stages: frozenset[int] = frozenset()
        self._waiting_since: float | None = None

    def is_over(self, now: float, waiting: Mapping[int, int]) -> bool:
        """Take a sample: the tasks of each stage that have not ended and do not run. True once the time is over."""
        known, self._stages = self._stages.intersection(waiting), frozenset(waiting)
        waits = any(waiting[stage] > 0 for stage in known)
        if not any(tasks > 0 for tasks in waiting.values()):
            self._waiting_since = None
        elif waits and self._waiting_since is None:
            self._waiting_since = now
        return waits and self._waiting_since is not None and now - self._waiting_since > self._timeout_s
