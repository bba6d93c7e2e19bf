"""Tells whether a run has a driver, by its reports."""

from __future__ import annotations

import time

from wasmline.clock import now_ms
from wasmline.control.job_topic import JobTopic
from wasmline.job_specs import HEARTBEAT_INTERVAL_S, JobReport, JobState

STARTING_TIMEOUT_S = 24 * HEARTBEAT_INTERVAL_S
"""Seconds after its order in which a driver starts: Spark's start, or the wait for a launcher."""

RECENT_HEARTBEAT_S = 3 * HEARTBEAT_INTERVAL_S
"""Age in seconds of a running driver's report, by this machine's clock, up to which the driver counts as live."""

HEARTBEAT_CHANGE_TIMEOUT_S = 6 * HEARTBEAT_INTERVAL_S
"""Seconds in which the report of a running driver has to change if it is not recent."""

POLL_INTERVAL_S = 0.25


def is_live(jobs: JobTopic, job: str, run: str, *, starting_timeout_s: float = STARTING_TIMEOUT_S) -> bool:
    """Return whether a run has a driver, or gets one.

    A recent report is enough. If it is older, the clocks may differ, or the driver is held up: the report has to change
    while this waits, for up to HEARTBEAT_CHANGE_TIMEOUT_S. So a wrong clock costs time only, and a run that is taken
    for dead is fenced by the next one.
    """
    first = report = jobs.report(job, run)
    deadline = time.monotonic() + HEARTBEAT_CHANGE_TIMEOUT_S
    while True:
        if report is None or report.state.final:
            return False
        if report.state is JobState.STARTING:
            return _age_s(report) < starting_timeout_s
        if report != first or _age_s(report) < RECENT_HEARTBEAT_S:
            return True
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_INTERVAL_S)
        report = jobs.report(job, run)


def _age_s(report: JobReport) -> float:
    return abs(now_ms() - report.updated_ms) / 1_000
