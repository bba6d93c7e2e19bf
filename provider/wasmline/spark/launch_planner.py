"""Decides which drivers a launcher starts, from the records of jobs and the time."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from wasmline.control.job_topic import JobOrder
from wasmline.control.launcher_topic import LAUNCHER_HEARTBEAT_INTERVAL_S, Launch
from wasmline.job_specs import DRIVER_HEARTBEAT_TIMEOUT_S, DRIVER_START_TIMEOUT_S, JobReport, JobState
from wasmline.restart_policy import DEFAULT_RESTARTS, RestartPolicy, is_restartable


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchTimings:
    """Limits of a launcher, in seconds.

    start_timeout_s: without a heartbeat of a driver that starts; Spark sends none meanwhile.
    heartbeat_timeout_s: without one of a driver that runs. A newer driver fences one that only was slow.
    claim_timeout_s: without one of the process that has the launcher's name, until another one takes over.
    """

    start_timeout_s: float = DRIVER_START_TIMEOUT_S
    heartbeat_timeout_s: float = DRIVER_HEARTBEAT_TIMEOUT_S
    claim_timeout_s: float = 4 * LAUNCHER_HEARTBEAT_INTERVAL_S


DEFAULT_LAUNCH_TIMINGS = LaunchTimings()


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecords:
    """The order of a job, the last report of the ordered run, and the job's last launch."""

    order: JobOrder
    report: JobReport | None = None
    launch: Launch | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Start a driver of a run: the ``attempt``-th since one was healthy."""

    job: str
    run: str
    attempt: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Adopt:
    """A driver that this process did not start sends heartbeats: nothing is to be started."""

    job: str
    run: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Abandon:
    """A run failed by an error that no restart cures: nothing is started."""

    job: str
    run: str
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteFinalReport:
    """Write the last report of a run that has no driver to do so."""

    job: str
    run: str
    state: JobState
    message: str


Action = Start | Adopt | Abandon | WriteFinalReport


@dataclass(slots=True)
class _Followed:
    """The progress of one run as this process saw it. Times are of its own clock."""

    run: str
    attempt: int
    updated_ms: int
    changed: float
    due: float | None = None
    reason: str = ""
    running_since: float | None = None
    started_here: bool = False
    is_logged: bool = False


class LaunchPlanner:
    """The decisions of one launcher. Reads no clock and does no input or output.

    A driver lives while its report changes: times in reports are compared with each other, not with a clock. Only
    continuous streams are started again; the orchestrator repeats other runs.
    """

    def __init__(
        self, launcher: str, policy: RestartPolicy = DEFAULT_RESTARTS, timings: LaunchTimings = DEFAULT_LAUNCH_TIMINGS
    ) -> None:
        self._launcher = launcher
        self._policy = policy
        self._timings = timings
        self._followed: dict[str, _Followed] = {}

    def reset_heartbeats(self, now: float) -> None:
        """Count the time without heartbeats from ``now`` on: the records could not be read until then."""
        for followed in self._followed.values():
            followed.changed = now

    def plan(self, jobs: Mapping[str, JobRecords], ended: Collection[str], now: float) -> list[Action]:
        """Return the actions that are due.

        ``ended`` are the launches whose supervisor had ended before the records were read.
        """
        mine = {
            job: records
            for job, records in jobs.items()
            if records.order.launch is not None and records.order.launch.launcher == self._launcher
        }
        self._followed = {job: each for job, each in self._followed.items() if job in mine}
        return [action for job, records in sorted(mine.items()) for action in self._plan(job, records, ended, now)]

    def _plan(self, job: str, records: JobRecords, ended: Collection[str], now: float) -> list[Action]:
        report, run = records.report, records.order.spec.run
        launch = records.launch if records.launch is not None and records.launch.run == run else None
        followed = self._follow(job, run, report, launch, now)
        if records.order.wanted == "stopped":
            followed.due = None
            return self._report_unstarted(job, run, report, launch)
        if report is not None and report.state.final:
            return self._restart_failed(job, records, report, followed, now)
        if launch is None and (report is None or report.state is JobState.STARTING):
            return [self._start(job, followed, now, "ordered")]
        return self._watch(job, records, launch, followed, ended, now)

    def _follow(self, job: str, run: str, report: JobReport | None, launch: Launch | None, now: float) -> _Followed:
        """Return the progress of a run, with the newest report."""
        updated_ms = report.updated_ms if report is not None else 0
        followed = self._followed.get(job)
        if followed is None or followed.run != run:
            followed = _Followed(run=run, attempt=launch.attempt if launch else 0, updated_ms=updated_ms, changed=now)
            self._followed[job] = followed
        elif followed.updated_ms != updated_ms:
            followed.updated_ms, followed.changed = updated_ms, now
            if report is not None and not report.state.final:
                followed.due = None  # a driver that was late, or one that was started elsewhere
            if report is None or report.state is not JobState.RUNNING:
                followed.running_since = None
            elif followed.running_since is None:
                followed.running_since = now
            elif now - followed.running_since >= self._policy.healthy_s:
                followed.attempt = 0
        return followed

    def _watch(
        self,
        job: str,
        records: JobRecords,
        launch: Launch | None,
        followed: _Followed,
        ended: Collection[str],
        now: float,
    ) -> list[Action]:
        """Return the actions for a run that has a driver, if it lives."""
        running = records.report is not None and records.report.state is JobState.RUNNING
        if followed.due is None:
            timings = self._timings
            timeout = timings.heartbeat_timeout_s if running else timings.start_timeout_s
            if launch is not None and launch.launch in ended:
                self._schedule(followed, now, "its supervisor ended without a report")
            elif now - followed.changed > timeout:
                self._schedule(followed, now, f"no heartbeat for {timeout:.0f} s")
            elif running and followed.running_since is not None and not (followed.started_here or followed.is_logged):
                followed.is_logged = True
                return [Adopt(job=job, run=followed.run)]
        if followed.due is None:
            return []
        if not records.order.spec.is_continuous:
            followed.due = None
            return [WriteFinalReport(job=job, run=followed.run, state=JobState.FAILED, message=followed.reason)]
        return [self._start(job, followed, now, followed.reason)] if now >= followed.due else []

    def _restart_failed(
        self, job: str, records: JobRecords, report: JobReport, followed: _Followed, now: float
    ) -> list[Action]:
        """Return the actions for a run that has ended."""
        if report.state is not JobState.FAILED or not records.order.spec.is_continuous:
            return []
        error = report.error or "no error"
        if not is_restartable(report):
            if followed.is_logged:
                return []
            followed.is_logged = True
            return [Abandon(job=job, run=followed.run, error=error)]
        if followed.due is None:
            self._schedule(followed, now, f"failed: {error}")
        return [self._start(job, followed, now, followed.reason)] if now >= (followed.due or 0) else []

    def _report_unstarted(self, job: str, run: str, report: JobReport | None, launch: Launch | None) -> list[Action]:
        """Return the last report of a run that was stopped before its driver was started."""
        if launch is not None or (report is not None and report.state is not JobState.STARTING):
            return []
        return [
            WriteFinalReport(job=job, run=run, state=JobState.STOPPED, message="stopped before its driver was started")
        ]

    def _schedule(self, followed: _Followed, now: float, reason: str) -> None:
        followed.due, followed.reason = now + self._policy.delay_s(followed.attempt), reason
        followed.running_since = None

    def _start(self, job: str, followed: _Followed, now: float, reason: str) -> Start:
        followed.attempt += 1
        followed.due, followed.changed, followed.running_since = None, now, None
        followed.started_here, followed.is_logged = True, False
        return Start(job=job, run=followed.run, attempt=followed.attempt, reason=reason)
