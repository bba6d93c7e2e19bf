"""Client of job runs for tasks: orders, monitors and stops a run; a restarted task finds its live run."""

from __future__ import annotations

import hashlib
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from wasmline.clock import now_ms
from wasmline.errors import BrokerUnavailable, Fenced, JobBusy, JobFailed, JobNotFound
from wasmline.job_specs import HEARTBEAT_INTERVAL_S, JobReport, JobSpec, JobState

if TYPE_CHECKING:
    from wasmline.control import JobOrder, JobTopic, LaunchRequest

POLL_INTERVAL_S = 1.0
"""Seconds between two polls of a run."""

HEARTBEAT_TIMEOUT_S = 24 * HEARTBEAT_INTERVAL_S
"""Seconds without a heartbeat after which a run counts as lost: long enough to start Spark."""

STOP_TIMEOUT_S = 25.0
"""Seconds to wait for a stopped run's last report: slightly less than Airflow's limit for a trigger's ``on_kill``."""


MAX_REASONS = 3
"""Maximum reasons of dead letters in a progress line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRun:
    """Identifies a run for a restarted task. ``log`` is the driver's output, on the machine that started it."""

    job: str
    run: str
    log: str


class JobClient:
    """The orders and reports of jobs on one cluster, for tasks. Not thread-safe. Must be closed."""

    def __init__(self, jobs: JobTopic, *, heartbeat: float = HEARTBEAT_TIMEOUT_S) -> None:
        self._jobs = jobs
        self._heartbeat = heartbeat

    def submit_or_attach(
        self,
        spec: JobSpec,
        owner: str,
        log_folder: Path,
        launch: Callable[[JobRun], Any],
        request: LaunchRequest | None = None,
    ) -> JobRun:
        """Return a live run of ``spec``: the owner's own if there is one, else a new one that ``launch`` starts.

        With ``request`` a launcher starts the driver, not ``launch``; ``log_folder`` is then on its machine.
        ``spec.run`` is chosen here; it begins with ``owner``. A live run of the owner that is stopping, or has another
        specification, is waited for first. Raises JobBusy if another owner's run of the job is live.
        """
        standing = self._living(spec.job)
        if standing is not None:
            if not standing.spec.run.startswith(f"{owner}-"):
                run = standing.spec.run
                raise JobBusy(
                    f"job {spec.job} runs already, as {run}, ordered by another task: stop that run, wait for it, or "
                    "give this job another name (jobs of one name share a checkpoint)",
                    job=spec.job,
                    run=run,
                )
            found = JobRun(job=spec.job, run=standing.spec.run, log=str(_log(log_folder, standing.spec)))
            if standing.wanted == "running" and replace(standing.spec, run="") == replace(spec, run=""):
                return found
            self.stop(found, timeout=self._heartbeat)
        return self._start(replace(spec, run=f"{owner}-{uuid.uuid4().hex[:8]}"), log_folder, launch, request)

    def _start(
        self, spec: JobSpec, log_folder: Path, launch: Callable[[JobRun], Any], request: LaunchRequest | None
    ) -> JobRun:
        run = JobRun(job=spec.job, run=spec.run, log=str(_log(log_folder, spec)))
        self._jobs.submit(spec, request)
        # Before the launch, so that the driver's own reports come after it.
        self._jobs.write_report(JobReport.now(run.job, run.run, JobState.STARTING))
        if request is not None:
            return run
        try:
            launch(run)
        except BaseException as error:
            failed = JobReport.now(run.job, run.run, JobState.FAILED, str(error), error=type(error).__name__)
            self._jobs.write_report(failed)
            raise
        return run

    def state(self, run: JobRun) -> JobState | Literal["lost"]:
        """Return the state of a run; an unknown one, or one without heartbeats, is lost."""
        report = self._jobs.report(run.job, run.run)
        if report is None or not (report.state.final or self._fresh(report)):
            return "lost"
        return report.state

    def report(self, run: JobRun) -> JobReport:
        """Return the last report of a run. Raises JobNotFound."""
        report = self._jobs.report(run.job, run.run)
        if report is None:
            raise JobNotFound(
                f"no report of run {run.run} of job {run.job} is left: a newer run replaced it", job=run.job
            )
        return report

    def stop(self, run: JobRun, *, timeout: float = STOP_TIMEOUT_S) -> JobReport | None:
        """Request a run to end at its next safe point; return its last report, None if it did not end in time."""
        with suppress(JobNotFound):
            self._jobs.stop(run.job, run.run)
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            report = self._jobs.report(run.job, run.run)
            if report is None or report.state.final:
                return report
            time.sleep(POLL_INTERVAL_S / 4)
        return None

    def close(self) -> None:
        """Close the Kafka clients."""
        self._jobs.close()

    def _living(self, job: str) -> JobOrder | None:
        try:
            order = self._jobs.order(job)
        except JobNotFound:
            return None
        report = self._jobs.report(job, order.spec.run)
        return order if report and not report.state.final and self._fresh(report) else None

    def _fresh(self, report: JobReport) -> bool:
        return now_ms() - report.updated_ms < self._heartbeat * 1000


class RunMonitor:
    """Follows one run to its end, and reports its progress in one line at each change."""

    def __init__(
        self,
        jobs: JobTopic,
        run: JobRun,
        tell: Callable[[str], object],
        *,
        heartbeat: float = HEARTBEAT_TIMEOUT_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._jobs = jobs
        self._run = run
        self._say = tell
        self._heartbeat = heartbeat
        self._clock = clock
        self._alive = clock()
        self._seen = 0
        self._told = ""

    def poll(self) -> JobReport | None:
        """Return the run's last report once it has ended, None while it runs.

        Raises JobFailed without a heartbeat for the heartbeat timeout, Fenced if a newer run replaced it. An
        unreachable broker counts as a missing heartbeat.
        """
        try:
            report = self._jobs.report(self._run.job, self._run.run)
            if report is None or not report.state.final:
                self._check_order()
        except BrokerUnavailable as error:
            self._tell(f"cannot read the report of job {self._run.job}: {error}")
            report = None
        if report is not None:
            self._tell(format_report(report))
            if report.state.final:
                return report
            # A changed time, not a recent one: the driver may be on another machine with another clock.
            if report.updated_ms != self._seen:
                self._seen, self._alive = report.updated_ms, self._clock()
        if self._clock() - self._alive > self._heartbeat:
            raise self._lost()
        return None

    def _check_order(self) -> None:
        current = self._jobs.order(self._run.job).spec.run
        if current != self._run.run:
            raise Fenced(
                f"job {self._run.job} was replaced by run {current}; run {self._run.run} ends without a result",
                job=self._run.job,
            )

    def _tell(self, line: str) -> None:
        if line != self._told:
            self._say(line)
            self._told = line

    def _lost(self) -> JobFailed:
        return JobFailed(
            f"job {self._run.job} sent no heartbeat for {self._heartbeat:.0f} s (run {self._run.run}, last report: "
            f"{self._told or 'none'}). Its driver's output is in {self._run.log}",
            report={"job": self._run.job, "run": self._run.run, "state": "lost"},
        )


def task_instance_key(*identity: object) -> str:
    """Return a short name that is the same for every try of a task instance, and unique to it."""
    return hashlib.sha256("\0".join(map(str, identity)).encode()).hexdigest()[:12]


def format_report(report: JobReport) -> str:
    """Return the state of a run as one line."""
    facts = [f"job {report.job} {report.state.value}"]
    totals = report.result
    if "records_in" in totals:
        facts.append(f"{totals['records_in']:,} records in, {totals['records_out']:,} out")
        dead = totals.get("dead_letters") or {}
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in list(dead.items())[:MAX_REASONS])
        facts.append(f"{sum(dead.values()):,} dead letters" + (f" ({reasons})" if reasons else ""))
    if report.message:
        facts.append(report.message)
    return ": ".join([facts[0], ", ".join(facts[1:])]) if facts[1:] else facts[0]


def _log(folder: Path, spec: JobSpec) -> Path:
    return folder / spec.job / f"{spec.run}.log"
