"""Decides how many tasks the rounds of a job have, from samples of Spark's status."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from wasmline.spark.parallel.task_start_timer import TaskStartTimer


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundSample:
    """The tasks of a job's stages at one moment.

    tasks, waiting: by stage, the tasks that have not ended, and those of them that do not run. slots: how many tasks
    the executors that are there can run at once. wanted: how many tasks the job would have with slots for all.
    """

    tasks: Mapping[int, int]
    waiting: Mapping[int, int]
    slots: int
    wanted: int


class TaskLimit:
    """Lowers the number of tasks while slots are missing, and raises it once they are back. Pure: time is an argument.

    A task that gets no slot holds up its partitions until the end of the others' leases, and again in the next round:
    so after ``timeout_s`` the next rounds have as many tasks as run. Slots that come back are used after the same time.
    """

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._start_timer = TaskStartTimer(timeout_s)
        self._spare_since: float | None = None

    def changed(self, now: float, sample: RoundSample) -> int | None:
        """Take a sample; return the limit of the next rounds if it is another, at least 1. ``now`` is in seconds."""
        tasks, waiting = sum(sample.tasks.values()), sum(sample.waiting.values())
        if self._start_timer.is_over(now, sample.waiting) and tasks > waiting:
            return self._restart(tasks - waiting)
        has_spare = 0 < tasks < min(sample.slots, sample.wanted) and not waiting
        if not has_spare:
            self._spare_since = None
        elif self._spare_since is None:
            self._spare_since = now
        elif now - self._spare_since > self._timeout_s:
            return self._restart(sample.slots)
        return None

    def _restart(self, limit: int) -> int:
        self._start_timer, self._spare_since = TaskStartTimer(self._timeout_s), None
        return limit
