"""Follows one run to its end, from snapshots of its order and report. Pure: the clock is an argument."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from wasmline.errors import Fenced, JobFailed
from wasmline.log_end import log_end
from wasmline_provider.job_client import HEARTBEAT_TIMEOUT_S, JobRun, format_report

if TYPE_CHECKING:
    from wasmline.control import RunSnapshot
    from wasmline.job_specs import JobReport


class RunMonitor:
    """Reports the progress of one run in one line at each change, and finds out that its driver is lost.

    A heartbeat is a report that changes, whatever the clocks: the driver may be on another machine. The time in which
    the cluster cannot be read is not a missing heartbeat: the driver cannot write either.
    """

    def __init__(
        self,
        run: JobRun,
        tell: Callable[[str], object],
        *,
        heartbeat: float = HEARTBEAT_TIMEOUT_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._run = run
        self._say = tell
        self._heartbeat = heartbeat
        self._clock = clock
        self._alive = clock()
        self._updated_ms = 0
        self._reads = 0
        self._told = ""

    def end(self, snapshot: RunSnapshot) -> JobReport | None:
        """Return the run's last report once it has ended, None while it runs.

        Raises JobFailed without a heartbeat for the heartbeat timeout, Fenced if a newer run replaced it.
        """
        if snapshot.unreadable:
            self._tell(f"cannot read the report of job {self._run.job}: {snapshot.unreadable}")
            self._reset_heartbeat()
            return None
        if snapshot.reads == self._reads:  # the cluster was not read since the last call
            return None
        self._reads, report = snapshot.reads, snapshot.report
        if report is not None and report.state.final:
            self._tell(format_report(report))
            return report
        self._check_order(snapshot)
        if report is not None:
            self._tell(format_report(report))
            if report.updated_ms != self._updated_ms:
                self._updated_ms = report.updated_ms
                self._reset_heartbeat()
        if self._clock() - self._alive > self._heartbeat:
            raise self._lost()
        return None

    def _reset_heartbeat(self) -> None:
        self._alive = self._clock()

    def _check_order(self, snapshot: RunSnapshot) -> None:
        job, run = self._run.job, self._run.run
        if snapshot.order is None:
            raise Fenced(f"job {job} was deleted; run {run} ends without a result", job=job)
        if (current := snapshot.order.spec.run) != run:
            raise Fenced(f"job {job} was replaced by run {current}; run {run} ends without a result", job=job)

    def _tell(self, line: str) -> None:
        if line != self._told:
            self._say(line)
            self._told = line

    def _lost(self) -> JobFailed:
        end = log_end(Path(self._run.log))
        quoted = f", and ends with:\n{end}" if end else ""
        return JobFailed(
            f"job {self._run.job} sent no heartbeat for {self._heartbeat:.0f} s (run {self._run.run}, last report: "
            f"{self._told or 'none'}). Its driver's output is in {self._run.log}{quoted}",
            report={"job": self._run.job, "run": self._run.run, "state": "lost"},
        )
