"""Detects continuous streams that are wanted and have no driver, by the reports of their runs."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from wasmline.control.job_topic import JobOrder, JobTopic
from wasmline.errors import JobNotFound, UnsupportedSpecVersion
from wasmline.job_specs import DRIVER_START_TIMEOUT_S, JobReport, JobState
from wasmline.reading_gaps import ReadingGaps
from wasmline.repeated_errors import RepeatedErrors
from wasmline.restart_policy import RestartPolicy, is_restartable

logger = logging.getLogger(__name__)

EVENT_DELAYS = RestartPolicy(first_delay_s=10.0, max_delay_s=900.0, healthy_s=20.0)
"""Delays between two events about one job: a DAG run orders a dead run anew within seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadRun:
    """A run without a driver. ``state`` is that of its last report, ``lost`` for one that ended without a final one.

    ``updated_ms`` is the time in its last report, 0 without one.
    """

    job: str
    run: str
    state: str
    error: str | None
    message: str
    updated_ms: int = 0


@dataclass(slots=True)
class _Watched:
    """What was seen of one job: its last report, since when, since when its run is RUNNING, and the events about it.

    ``processing_run``: the last run that has processed records.
    """

    run: str = ""
    report: JobReport | None = None
    changed_at: float = 0.0
    running_at: float | None = None
    processing_run: str = ""
    events: int = 0
    last_event_at: float = 0.0


class DeadRunDetector:
    """Tells of the dead runs of some jobs, of each again after a growing delay while nobody starts it, or while its
    runs die before they have processed anything.

    A job that a user has stopped is not wanted; one that failed by an error that a restart does not cure is left to its
    users. A heartbeat is a report that changes, whatever the clocks. Time in which the cluster could not be read, or
    only slowly, is not a missing heartbeat. For one thread.
    """

    def __init__(
        self,
        jobs: Iterable[str],
        *,
        interval_s: float,
        delays: RestartPolicy = EVENT_DELAYS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``interval_s``: seconds between two polls."""
        self._watched = {job: _Watched() for job in jobs}
        self._delays = delays
        self._clock = clock
        self._gaps = ReadingGaps(interval_s)
        self._errors = RepeatedErrors()

    def poll(self, topic: JobTopic) -> list[DeadRun]:
        """Return the dead runs that are due to be told of.

        Raises errors of the cluster, such as BrokerUnavailable: no event is lost by that, because the orders and
        reports of all jobs are read before any is decided on.
        """
        try:
            read = {job: self._read(topic, job) for job in self._watched}
        except BaseException:
            self._gaps.reset()
            raise
        now = self._clock()
        if self._gaps.is_after_gap(now):
            for watched in self._watched.values():
                watched.changed_at = now
        found = (
            self._decide(self._watched[job], *records, now) for job, records in read.items() if records is not None
        )
        return [dead for dead in found if dead is not None]

    def _read(self, topic: JobTopic, job: str) -> tuple[JobOrder, JobReport | None] | None:
        """Return the order of a job and the report of its run; None without an order, or if one cannot be read."""
        try:
            order = topic.order(job)
            report = topic.report(job, order.spec.run)
        except JobNotFound:
            return None
        except UnsupportedSpecVersion as error:
            if told := self._errors.changed(job, error):
                logger.warning("job %s is skipped, its order or report cannot be read: %s", job, told)
            return None
        self._errors.solved(job)
        return order, report

    def _decide(self, watched: _Watched, order: JobOrder, report: JobReport | None, now: float) -> DeadRun | None:
        if order.spec.run != watched.run or report != watched.report:
            watched.run, watched.report, watched.changed_at = order.spec.run, report, now
        self._forget_events(report, watched, now)
        dead = self._dead(order, report, now - watched.changed_at)
        if dead is None:
            return None
        watched.running_at = None
        if watched.events and now - watched.last_event_at < self._delays.delay_s(watched.events):
            return None
        watched.events, watched.last_event_at = watched.events + 1, now
        return dead

    def _forget_events(self, report: JobReport | None, watched: _Watched, now: float) -> None:
        """Begin with the first delay again after a healthy while, and once for each run that has processed records."""
        if report is not None and report.result.get("records_in") and watched.processing_run != report.run:
            watched.processing_run, watched.events = report.run, 0
        if report is None or report.state is not JobState.RUNNING:
            watched.running_at = None
        elif watched.running_at is None:
            watched.running_at = now
        elif now - watched.running_at > self._delays.healthy_s:
            watched.events = 0

    @staticmethod
    def _dead(order: JobOrder, report: JobReport | None, silent_s: float) -> DeadRun | None:
        """Return the run if it has no driver, and should have one that a restart may give."""
        if order.is_stopped_by_user or not order.spec.is_continuous:
            return None
        job, run, updated_ms = order.spec.job, order.spec.run, report.updated_ms if report is not None else 0
        if report is None or not report.state.final:
            if silent_s < (report.timeout_s if report is not None else DRIVER_START_TIMEOUT_S):
                return None
            message = f"no heartbeat for {silent_s:.0f} s"
            return DeadRun(job=job, run=run, state="lost", error=None, message=message, updated_ms=updated_ms)
        if report.state is JobState.FAILED and not is_restartable(report):
            return None
        state, error = report.state.value, report.error
        return DeadRun(job=job, run=run, state=state, error=error, message=report.message, updated_ms=updated_ms)
