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
from wasmline.errors import Conflict, Fenced, JobBusy, JobFailed, JobNotFound, WasmlineError
from wasmline.job_specs import DRIVER_START_TIMEOUT_S, JobReport, JobSpec, JobState
from wasmline_provider.run_decision import Action, CurrentRun, decide

if TYPE_CHECKING:
    from wasmline.control import ChangeCause, JobOrder, JobTopic, LaunchRequest, StoppedBy

POLL_INTERVAL_S = 1.0
"""Seconds between two polls of a run."""

HEARTBEAT_TIMEOUT_S = DRIVER_START_TIMEOUT_S
"""Seconds without a heartbeat after which a task takes its run for lost: long enough to start Spark."""

STOP_TIMEOUT_S = 25.0
"""Seconds to wait for a stopped run's last report: slightly less than Airflow's limit for a trigger's ``on_kill``."""


ENSURE_ATTEMPTS = 10
"""Attempts of ensuring a run while other clients order the same job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRun:
    """Identifies a run for a restarted task. ``log`` is the driver's output, on the machine that started it."""

    job: str
    run: str
    log: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SilentRun:
    """A run whose last report is that of ``updated_ms``, and that sent no heartbeat for the time-out of one."""

    run: str
    updated_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EnsuredRun:
    """A run that is live, or a stopped one that was left so, the action that this took, and the changed fields."""

    run: JobRun
    action: Action
    changed: tuple[str, ...] = ()

    def __str__(self) -> str:
        changed = f" ({', '.join(self.changed)} changed)" if self.changed else ""
        return f"job {self.run.job}, run {self.run.run}: {self.action.replace('_', ' ')}{changed}"


class JobClient:
    """The orders and reports of jobs on one cluster, for tasks. Not thread-safe. Must be closed."""

    def __init__(self, jobs: JobTopic, *, heartbeat: float = HEARTBEAT_TIMEOUT_S) -> None:
        self._jobs = jobs
        self._heartbeat = heartbeat

    def ensure(
        self,
        spec: JobSpec,
        owner: str,
        log_folder: Callable[[], Path],
        start_driver: Callable[[JobRun], Any],
        *,
        before_order: Callable[[JobRun], object] = lambda run: None,
        launch_request: LaunchRequest | None = None,
        submit_digest: str = "",
        restart_stopped: bool = True,
        earlier_run: str = "",
        silent_run: SilentRun | None = None,
        cause: ChangeCause | None = None,
    ) -> EnsuredRun:
        """Ensure that a run of ``spec`` is live, and return it with the action that this took.

        A continuous stream is compared by its specification, whoever ordered it: a live run with the same one is
        adopted, a change that it takes over by itself is written to its order, and any other change restarts it. A run
        that ends by itself is only adopted by its ``owner``. ``spec.run`` is chosen here; it begins with ``owner``. The
        order of a newer run is the stop of a stream's run before it, for whose driver the newer one waits; a training
        is stopped first.

        log_folder: returns the folder for drivers' output; whatever it raises, nothing is ordered.
        before_order: called with a new run before it is ordered; whatever it raises, nothing is ordered.
        launch_request: a launcher starts the driver, not ``start_driver``; ``log_folder`` is then on its machine, and
            not called for a run that is adopted.
        submit_digest: identifies the settings of ``start_driver``; a run with others is restarted.
        restart_stopped: False leaves a job that a user has stopped as it is.
        earlier_run: the run of an earlier try of the caller; one that a user has stopped is left as it is, too.
        silent_run: a run that was watched in vain for another report: it is not waited for if it has none by now,
            unless its driver is being started.
        cause: the user and the task, kept with the order of a run that this starts.

        Raises DuplicateJob if another job does the same processing, JobBusy if another owner's run is live that is not
        a continuous stream, or while others order the job again and again.
        """
        for _ in range(ENSURE_ATTEMPTS):
            current = self._read_current(spec.job, silent_run)
            decision = decide(
                current, spec, owner, submit_digest, restart_stopped=restart_stopped, earlier_run=earlier_run
            )
            try:
                if current is not None and decision.action in ("adopted", "updated", "left_stopped"):
                    found = self._current_run(current.order, log_folder if launch_request is None else None)
                    if decision.action == "updated" and spec.stream is not None:
                        self._jobs.update(current.order, spec.stream)
                    return EnsuredRun(run=found, action=decision.action, changed=decision.changed)
                folder = log_folder()
                if current is not None and current.is_live and current.order.spec.stream is None:
                    self.stop(_run(folder, current.order.spec), timeout=self._heartbeat, by="system")
                run = _run(folder, replace(spec, run=f"{owner}-{uuid.uuid4().hex[:8]}"))
                before_order(run)
                self._start(
                    replace(spec, run=run.run), run, start_driver, current, launch_request, submit_digest, cause
                )
            except Conflict:
                continue  # another client ordered the job since it was read
            return EnsuredRun(run=run, action=decision.action, changed=decision.changed)
        raise JobBusy(f"job {spec.job} is ordered by several clients at this moment", job=spec.job, run="")

    def _current_run(self, order: JobOrder, log_folder: Callable[[], Path] | None) -> JobRun:
        spec = order.spec
        if order.launch is None:
            return _run(log_folder() if log_folder is not None else Path("wasmline"), spec)
        last = self._jobs.last_launch(spec.job)
        log = last.log if last is not None and last.run == spec.run else f"a folder of launcher {order.launch.launcher}"
        return JobRun(job=spec.job, run=spec.run, log=log)

    def _start(
        self,
        spec: JobSpec,
        run: JobRun,
        start_driver: Callable[[JobRun], Any],
        replaced: CurrentRun | None,
        launch_request: LaunchRequest | None,
        submit_digest: str,
        cause: ChangeCause | None,
    ) -> None:
        """Order a run and start its driver, unless a launcher does. Raises Conflict.

        A run that has no driver by an error, or by the exception of a signal, is reported as failed.
        """
        from wasmline.control import NO_CAUSE

        ordered = False
        try:
            self._jobs.submit(
                spec,
                submit_digest=submit_digest,
                launch=launch_request,
                replaces=None if replaced is None else replaced.order,
                dead_report=None if replaced is None or replaced.is_live else replaced.report,
                cause=cause or NO_CAUSE,
            )
            ordered = True
            if launch_request is None:
                start_driver(run)
        except BaseException as error:
            if launch_request is None and (ordered or not isinstance(error, WasmlineError)):
                failed = JobReport.now(run.job, run.run, JobState.FAILED, str(error), error=type(error).__name__)
                self._jobs.write_report(failed)
            raise

    def state(self, run: JobRun) -> JobState | Literal["lost"]:
        """Return the state of a run; an unknown one, or one without heartbeats, is lost."""
        report = self._jobs.report(run.job, run.run)
        if report is None or not (report.state.final or self._fresh(report)):
            return "lost"
        return report.state

    def report(self, run: JobRun) -> JobReport:
        """Return the last report of a run. Raises JobNotFound if newer runs replaced it, or the job was deleted."""
        report = self._jobs.report(run.job, run.run)
        if report is None:
            raise JobNotFound(
                f"no report of run {run.run} of job {run.job} is left: newer runs replaced it, or it was deleted",
                job=run.job,
            )
        return report

    def stop(self, run: JobRun, *, timeout: float = STOP_TIMEOUT_S, by: StoppedBy = "user") -> JobReport | None:
        """Request a run to end at its next safe point; return its last report, None if it did not end in time."""
        with suppress(JobNotFound):
            self._jobs.stop(run.job, run.run, by=by)
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

    def await_start(self, run: JobRun) -> JobReport:
        """Return the first report of a run's driver, or a final one of its supervisor.

        A driver that waits for the end of the run before repeats its report, as no one else does: it has started.

        Raises JobFailed without a report for the heartbeat timeout, if nobody starts the driver for a shorter one, or
        if a newer run replaces the run; each may pass.
        """
        begun, first = time.monotonic(), self._jobs.report(run.job, run.run)
        while (waited_s := time.monotonic() - begun) < self._heartbeat:
            report = self._jobs.report(run.job, run.run)
            if report is None or report.error == Fenced.__name__:
                raise JobFailed(
                    f"run {run.run} of job {run.job} was replaced before its driver started",
                    report={"job": run.job, "run": run.run, "state": "replaced"},
                )
            if report.state is not JobState.STARTING or _is_repeated(first, report):
                return report
            if not report.is_driver_starting and waited_s > report.timeout_s:
                break
            if first is None or first.message != report.message:
                first = report
            time.sleep(POLL_INTERVAL_S / 4)
        raise JobFailed(
            f"the driver of job {run.job}, run {run.run}, did not start within {waited_s:.0f} s. Its output is in "
            f"{run.log}, on the machine that was to start it",
            report={"job": run.job, "run": run.run, "state": "lost"},
        )

    def _read_current(self, job: str, silent_run: SilentRun | None) -> CurrentRun | None:
        from wasmline.control import is_live

        try:
            order = self._jobs.order(job)
        except JobNotFound:
            return None
        run, report = order.spec.run, self._jobs.report(job, order.spec.run)
        last = SilentRun(run=run, updated_ms=report.updated_ms) if report is not None else None
        if report is not None and not report.is_driver_starting and silent_run == last:
            return CurrentRun(order=order, is_live=False, report=report)
        live = is_live(self._jobs, job, run, starting_timeout_s=self._heartbeat)
        return CurrentRun(order=order, is_live=live, report=report)

    def _fresh(self, report: JobReport) -> bool:
        return abs(now_ms() - report.updated_ms) < self._heartbeat * 1000


def task_instance_key(*identity: object) -> str:
    """Return a short name that is the same for every try of a task instance, and unique to it."""
    return hashlib.sha256("\0".join(map(str, identity)).encode()).hexdigest()[:12]


def _is_repeated(earlier: JobReport | None, report: JobReport) -> bool:
    """Return whether a report is a heartbeat: an earlier one with another time."""
    return earlier is not None and earlier != report and earlier == replace(report, updated_ms=earlier.updated_ms)


def _run(folder: Path, spec: JobSpec) -> JobRun:
    return JobRun(job=spec.job, run=spec.run, log=str(folder / spec.job / f"{spec.run}.log"))
