"""Decides from the readings of a run whether it has ended. Pure, but for the thread of its follower."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import msgspec

from wasmline.job_specs import JobState

if TYPE_CHECKING:
    from wasmline.control import JobOrder, RunReading
    from wasmline.job_specs import JobReport
    from wasmline_provider.job_client import JobRun

MAX_REASONS = 3
"""Maximum reasons of dead letters in a progress line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnd:
    """The end of a run: the state of its last report, or how it ended without one.

    ``lost``: no heartbeat came, or the job was deleted. ``replaced``: a newer run, ``replaced_by``, has the job.
    """

    state: Literal["succeeded", "stopped", "failed", "lost", "replaced"]
    message: str
    replaced_by: str = ""


class RunMonitor:
    """Follows one run to its end by the readings of its order and report.

    A heartbeat is a report with another time, not a recent one: the driver's clock may differ. Time in which the
    cluster could not be read is not a missing heartbeat: call ``reset_heartbeat`` afterwards. The failure of a driver
    that a launcher starts again is none of the run until there was no heartbeat for as long.
    """

    def __init__(self, run: JobRun, *, heartbeat_s: float, now: float) -> None:
        self._run = run
        self._heartbeat_s = heartbeat_s
        self._heartbeat_at = now
        self._updated_ms = 0
        self.progress = ""
        """The last report as one line."""
        self.spark_ui = ""
        """The URL of the driver's UI in the last report."""

    def reset_heartbeat(self, now: float) -> None:
        """Count the time without a heartbeat from now on."""
        self._heartbeat_at = now

    def observe(self, order: JobOrder | None, report: JobReport | None, now: float) -> RunEnd | None:
        """Return the end of the run if it has ended, by its order and its newest report."""
        newer = order.spec.run if order is not None and order.spec.run != self._run.run else ""
        if report is not None:
            self.progress, self.spark_ui = format_report(report), report.spark_ui
            if report.state.final and not (newer and report.error == "Fenced"):
                if self._is_silent(now) or not self._starts_again(order, report):
                    return _reported(report)
            elif report.updated_ms != self._updated_ms:
                self._updated_ms, self._heartbeat_at = report.updated_ms, now
        if newer:
            text = f"job {self._run.job} was replaced by run {newer}; run {self._run.run} ends without a result"
            return RunEnd(state="replaced", message=text, replaced_by=newer)
        if order is None:
            text = f"job {self._run.job} has no order on this cluster: it was deleted, or the cluster is another one"
            return RunEnd(state="lost", message=text)
        if self._is_silent(now):
            return RunEnd(state="lost", message=self._lost())
        return None

    def _starts_again(self, order: JobOrder | None, last: JobReport) -> bool:
        """Return whether the run goes on with another driver."""
        if order is None or order.spec.run != self._run.run or order.wanted != "running":
            return False
        return order.starts_again_after(last)

    def _is_silent(self, now: float) -> bool:
        return now - self._heartbeat_at > self._heartbeat_s

    def _lost(self) -> str:
        return (
            f"job {self._run.job} sent no heartbeat for {self._heartbeat_s:.0f} s (run {self._run.run}, last report: "
            f"{self.progress or 'none'}). Its driver's output is in {self._run.log}, on the machine that started it"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportLine:
    """A changed report of a run that goes on, as one line."""

    line: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkUi:
    """The URL of the driver's UI, as the run's report has it; "" once it has none."""

    url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadFailure:
    """A cluster that could not be read, and is tried again; ``error`` is None once it could."""

    error: Exception | None


RunEvent = RunEnd | ReportLine | SparkUi | ReadFailure


class MonitoringFollower:
    """Gives the readings of a shared reader to a RunMonitor, in the reader's thread, and posts what is new.

    ``post`` must not block.
    """

    def __init__(
        self,
        run: JobRun,
        post: Callable[[RunEvent], object],
        *,
        heartbeat_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._monitor = RunMonitor(run, heartbeat_s=heartbeat_s, now=clock())
        self._post = post
        self._clock = clock
        self._posted = self._posted_ui = ""
        self._has_ended = False
        self._has_failed = False

    def on_reading(self, reading: RunReading) -> None:
        """Observe a reading."""
        if self._has_ended:
            return
        if self._has_failed:
            self._has_failed = False
            self._post(ReadFailure(error=None))
        if reading.error is not None:
            end: RunEnd | None = RunEnd(state="lost", message=str(reading.error))
        else:
            end = self._monitor.observe(reading.order, reading.report, self._clock())
        if self._monitor.progress != self._posted:
            self._posted = self._monitor.progress
            self._post(ReportLine(line=self._posted))
        if self._monitor.spark_ui != self._posted_ui:
            self._posted_ui = self._monitor.spark_ui
            self._post(SparkUi(url=self._posted_ui))
        if end is not None:
            self._has_ended = True
            self._post(end)

    def on_interruption(self) -> None:
        """Forget the time before the next reading: the cluster could not be read."""
        self._monitor.reset_heartbeat(self._clock())

    def on_error(self, error: Exception) -> None:
        """Post the error of a reading that is tried again."""
        self._has_failed = True
        self._post(ReadFailure(error=error))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Counts:
    """What a line says of a stream's totals."""

    records_in: int
    records_out: int
    dead_letters: dict[str, int] = field(default_factory=dict)


def format_report(report: JobReport) -> str:
    """Return the state of a run as one line."""
    facts = [f"job {report.job} {report.state.value}"]
    with suppress(msgspec.ValidationError):  # of a training, or of another release
        totals = msgspec.convert(report.result, _Counts)
        facts.append(f"{totals.records_in:,} records in, {totals.records_out:,} out")
        dead = totals.dead_letters
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in list(dead.items())[:MAX_REASONS])
        facts.append(f"{sum(dead.values()):,} dead letters" + (f" ({reasons})" if reasons else ""))
    if report.message:
        facts.append(report.message)
    return ": ".join([facts[0], ", ".join(facts[1:])]) if facts[1:] else facts[0]


def _reported(report: JobReport) -> RunEnd:
    match report.state:
        case JobState.SUCCEEDED:
            return RunEnd(state="succeeded", message=report.message)
        case JobState.STOPPED:
            return RunEnd(state="stopped", message=report.message)
        case _:
            return RunEnd(state="failed", message=report.message)
