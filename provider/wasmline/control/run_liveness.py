"""Tells whether runs have a driver, by their reports."""

from __future__ import annotations

import time
from collections.abc import Mapping

from wasmline.clock import now_ms
from wasmline.control.job_topic import JobTopic
from wasmline.job_specs import (
    DRIVER_HEARTBEAT_TIMEOUT_S,
    DRIVER_START_TIMEOUT_S,
    HEARTBEAT_INTERVAL_S,
    JobReport,
)
from wasmline.reading_gaps import ReadingGaps

RECENT_HEARTBEAT_S = 3 * HEARTBEAT_INTERVAL_S
"""Age in seconds of a running driver's report, by this machine's clock, up to which the driver counts as live."""

POLL_INTERVAL_S = 0.25


def is_live(jobs: JobTopic, job: str, run: str, *, starting_timeout_s: float = DRIVER_START_TIMEOUT_S) -> bool:
    """Return whether a run has a driver, or gets one.

    A recent report is enough, also that of an order. If it is older, the clocks may differ, or the driver is held up:
    the report has to change while this waits, for up to DRIVER_HEARTBEAT_TIMEOUT_S, in which the time that readings
    take does not count. So a wrong clock costs time only, and a run that is taken for dead is fenced by the next one.
    While Spark starts there are no reports: ``starting_timeout_s`` counts from the last one.
    """
    return job in live_jobs(jobs, {job: run}, starting_timeout_s=starting_timeout_s)


def live_jobs(
    jobs: JobTopic, runs: Mapping[str, str], *, starting_timeout_s: float = DRIVER_START_TIMEOUT_S
) -> frozenset[str]:
    """Return the jobs whose runs, given by job, have a driver or get one; waits once for all as ``is_live`` does."""
    live, undecided = set(), dict(runs)
    gaps = ReadingGaps(POLL_INTERVAL_S)
    first = {job: jobs.report(job, run) for job, run in undecided.items()}
    reports, left_s = first, DRIVER_HEARTBEAT_TIMEOUT_S
    while True:
        if gaps.is_after_gap(read_at := time.monotonic()):
            left_s = DRIVER_HEARTBEAT_TIMEOUT_S
        for job, report in reports.items():
            verdict = _is_live(first[job], report, starting_timeout_s)
            if verdict is not None:
                del undecided[job]
            if verdict:
                live.add(job)
        if not undecided or left_s < 0:
            return frozenset(live)
        time.sleep(POLL_INTERVAL_S)
        left_s -= time.monotonic() - read_at
        reports = {job: jobs.report(job, run) for job, run in undecided.items()}


def _is_live(first: JobReport | None, report: JobReport | None, starting_timeout_s: float) -> bool | None:
    """Return whether a run with these reports has a driver; None if a later report decides."""
    if report is None or report.state.final:
        return False
    if report.is_driver_starting:
        return _is_recent(report, starting_timeout_s)
    if report != first or _is_recent(report, RECENT_HEARTBEAT_S):
        return True
    return None


def _is_recent(report: JobReport, seconds: float) -> bool:
    return abs(now_ms() - report.updated_ms) < seconds * 1_000
