"""Starts the drivers of jobs on its own machine, as orders ask for, and starts dead ones again."""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from wasmline.clock import now_ms
from wasmline.control import (
    JobOrder,
    Launch,
    LauncherClaim,
    LauncherStatus,
    LaunchRequest,
    control_topics,
)
from wasmline.control.job_keys import launch_key, report_key
from wasmline.control.launcher_topic import LAUNCHER_HEARTBEAT_INTERVAL_S, LAUNCHER_KEY_PREFIX, launcher_status_key
from wasmline.documents import decode, encode
from wasmline.errors import Conflict, InvalidJob, KafkaError, WasmlineError
from wasmline.job_specs import JobReport, JobState
from wasmline.kafka import CompactedTopic, KafkaConfig
from wasmline.kafka.permission_check import PermissionCheck
from wasmline.printable import bounded_line
from wasmline.reading_gaps import ReadingGaps
from wasmline.repeated_errors import RepeatedErrors
from wasmline.restart_policy import DEFAULT_RESTARTS, RestartPolicy
from wasmline.spark.driver_process import (
    FENCED_STATUS,
    driver_environment,
    option_value,
    start_supervisor,
    submit_command,
)
from wasmline.spark.launch_planner import (
    DEFAULT_LAUNCH_TIMINGS,
    Abandon,
    Action,
    Adopt,
    JobRecords,
    LaunchPlanner,
    LaunchTimings,
    Start,
    WriteFinalReport,
)

log = logging.getLogger(__name__)

T = TypeVar("T")

POLL_INTERVAL_S = 1.0
"""Seconds between two readings of the job topic."""

StartDriver = Callable[[LaunchRequest, Launch, str], subprocess.Popen[bytes]]
"""Starts the supervisor of a driver for a request, a launch and a job."""


class DriverStarter:
    """Starts drivers with this machine's Spark, Python, connector's jars and Kafka settings."""

    def __init__(self, config: KafkaConfig, jars: str) -> None:
        self._config = config
        self._jars = jars

    def __call__(self, request: LaunchRequest, launch: Launch, job: str) -> subprocess.Popen[bytes]:
        """Start a driver. Raises InvalidJob for options that an order may not have, OSError if the log is unusable."""
        command = submit_command(request.arguments, self._jars, job, launch.run)
        environment = driver_environment(os.environ, self._config, option_value(request.arguments, "--master"))
        options = ["--launch", launch.launch]
        return start_supervisor(command, environment, job, launch.run, Path(launch.log), options)


class Launcher:
    """Follows the orders for one launcher's name, while no other process has the name.

    Drivers outlive it: the next process of the name adopts those that send heartbeats. Not thread-safe.
    """

    def __init__(
        self,
        config: KafkaConfig,
        name: str,
        log_folder: Path,
        start: StartDriver,
        *,
        policy: RestartPolicy = DEFAULT_RESTARTS,
        timings: LaunchTimings = DEFAULT_LAUNCH_TIMINGS,
    ) -> None:
        self._config = config
        self._name = name
        self._log_folder = log_folder.absolute()
        self._start_driver = start
        self._policy = policy
        self._timings = timings
        self._planner = LaunchPlanner(name, policy, timings)
        self._status = LauncherStatus(
            launcher=name,
            instance=uuid.uuid4().hex,
            host=socket.gethostname(),
            process=os.getpid(),
            log_folder=str(self._log_folder),
            updated_ms=0,
        )
        self._topic = CompactedTopic(config, control_topics.JOBS, keep=_concerns_launchers)
        self._gaps = ReadingGaps(POLL_INTERVAL_S)
        self._claim: LauncherClaim | None = None
        self._last_heartbeat_at = 0.0
        self._other_status: LauncherStatus | None = None
        self._other_changed = 0.0
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._unstarted: set[str] = set()
        """Launches of which it is not known whether they were recorded, because of an error of the cluster."""
        self._errors = RepeatedErrors()
        self._permission = PermissionCheck()

    @property
    def active(self) -> bool:
        """Whether this process has the launcher's name."""
        return self._claim is not None

    def run(self, stopping: threading.Event) -> None:
        """Serve until ``stopping`` is set. Raises errors of the cluster that waiting does not mend at the start."""
        self._connect(stopping)
        while not stopping.is_set():
            self.step()
            stopping.wait(POLL_INTERVAL_S)

    def step(self) -> None:
        """Read the records once and do what is due. An error of the cluster is logged, and delays it.

        Raises NotAuthorized until this has succeeded once.
        """
        try:
            self._serve()
            self._errors.solved("kafka")
            self._permission.passed()
        except (KafkaError, Conflict) as error:
            if self._permission.is_missing(error):
                self._drop_claim()
                raise
            if line := self._errors.changed("kafka", error):
                log.warning("launcher %s: waits for the cluster: %s", self._name, line)
            self._gaps.reset()
            self._drop_claim()  # after a failed write its client is of no use; the name is claimed again

    def close(self) -> None:
        """Give up the name and close the Kafka clients; drivers go on."""
        if self._claim is not None:
            with suppress(WasmlineError):
                self._claim.release()
        self._drop_claim()
        self._topic.close()
        for child in self._children.values():
            child.returncode = child.returncode or 0  # it goes on: without this, Popen warns when it is collected

    def _connect(self, stopping: threading.Event) -> None:
        while not stopping.is_set():
            try:
                control_topics.ensure(self._config)
            except KafkaError as error:
                if not error.retryable:
                    raise
                if line := self._errors.changed("kafka", error):
                    log.warning("launcher %s: waits for the cluster: %s", self._name, line)
                stopping.wait(POLL_INTERVAL_S)
            else:
                return

    def _serve(self) -> None:
        statuses = {launch: child.poll() for launch, child in self._children.items()}
        gone = {launch for launch, status in statuses.items() if status is not None}
        ended = {launch for launch in gone if statuses[launch] != FENCED_STATUS} | self._unstarted
        view = self._topic.read()  # after the look at the processes: each wrote its report before it ended
        now = time.monotonic()
        if self._gaps.is_after_gap(now):
            self._other_changed = now
            self._planner.reset_heartbeats(now)
        if self._claim is None and not self._take_name(view, now):
            return
        if now - self._last_heartbeat_at >= LAUNCHER_HEARTBEAT_INTERVAL_S:
            self._write({})
        jobs = self._job_records(view)
        for action in self._planner.plan(jobs, ended, now):
            self._do(action, jobs)
        self._unstarted -= ended
        for launch in gone:
            del self._children[launch]

    # -- the name ----------------------------------------------------------------------------------------------------

    def _take_name(self, view: Mapping[bytes, bytes], now: float) -> bool:
        """Claim the name if no other process of it sends heartbeats; return whether this process has it."""
        data = view.get(launcher_status_key(self._name))
        current = self._decoded("the status of this launcher", LauncherStatus, data) if data else None
        if current is not None and current.instance != self._status.instance:
            if self._other_status != current:
                if self._other_status is None or self._other_status.instance != current.instance:
                    where = f"process {current.process} on {current.host}"
                    log.info("launcher %s: %s has the name; this process waits", self._name, where)
                self._other_status, self._other_changed = current, now
            if now - self._other_changed < self._timings.claim_timeout_s:
                return False
        self._status = replace(self._status, updated_ms=now_ms())
        try:
            self._claim = LauncherClaim(self._config, self._topic, self._status, data)
        except Conflict:
            return False
        self._last_heartbeat_at, self._other_status = now, None
        self._planner = LaunchPlanner(self._name, self._policy, self._timings)  # what it knew may be out of date
        log.info("launcher %s: active; drivers' output goes to %s", self._name, self._log_folder)
        return True

    def _drop_claim(self) -> None:
        if self._claim is not None:
            self._claim.close()
            self._claim = None

    def _write(self, records: Mapping[bytes, bytes | None]) -> None:
        """Write a heartbeat and other records. Raises Conflict if another process has taken the name."""
        if self._claim is None:
            raise Conflict(f"this process does not have the launcher {self._name}", name=self._name, generation=None)
        self._status = replace(self._status, updated_ms=max(now_ms(), self._status.updated_ms + 1))
        self._claim.write(self._status, records)
        self._last_heartbeat_at = time.monotonic()

    # -- jobs --------------------------------------------------------------------------------------------------------

    def _job_records(self, view: Mapping[bytes, bytes]) -> dict[str, JobRecords]:
        """Return the records of the jobs that this launcher is asked for.

        A job is skipped if its order or report cannot be read: its driver may be alive, and of a newer release.
        """
        found = {}
        for key, value in view.items():
            if b"/" in key:
                continue
            job = key.decode(errors="replace")
            order = self._decoded(f"the order of job {job}", JobOrder, value)
            if order is None or order.launch is None or order.launch.launcher != self._name:
                continue
            if order.spec.job != job:
                if self._errors.changed(job, InvalidJob("its order is of another job")):
                    log.warning("launcher %s: skips job %s, its order is of another job", self._name, bounded_line(job))
                continue
            report = view.get(report_key(job, order.spec.run))
            launch = view.get(launch_key(job))
            records = JobRecords(
                order=order,
                report=self._decoded(f"the report of job {job}", JobReport, report) if report else None,
                launch=self._decoded(f"the launch of job {job}", Launch, launch) if launch else None,
            )
            if records.report is not None or report is None:
                found[job] = records
        return found

    def _decoded(self, what: str, kind: type[T], data: bytes) -> T | None:
        """Return a document; None, and a line in the log, for one that this release cannot read."""
        try:
            document = decode(kind, data)
        except WasmlineError as error:
            if line := self._errors.changed(what, error):
                log.warning("launcher %s: skips %s: %s", self._name, bounded_line(what), line)
            return None
        self._errors.solved(what)
        return document

    def _do(self, action: Action, jobs: Mapping[str, JobRecords]) -> None:
        job, run = action.job, action.run
        match action:
            case Start():
                self._start(action, jobs[job].order.launch)
            case Adopt():
                log.info("launcher %s: job %s, run %s: adopted, its driver sends heartbeats", self._name, job, run)
            case Abandon(error=error):
                log.error("launcher %s: job %s, run %s: not started again after %s", self._name, job, run, error)
            case WriteFinalReport(state=state, message=message):
                cause = "JobFailed" if state is JobState.FAILED else None
                self._write(_record(JobReport.now(job, run, state, message, error=cause)))
                log.info("launcher %s: job %s, run %s: %s: %s", self._name, job, run, state.value, message)

    def _start(self, action: Start, request: LaunchRequest | None) -> None:
        """Record a launch and start its driver.

        The record is a proof that no other process has the name, and tells the supervisor of an earlier driver of the
        run that its report does not matter any more.
        """
        job, run = action.job, action.run
        if request is None:
            return
        output = self._log_folder / job / f"{run}.log"
        launch = Launch(
            run=run,
            launch=uuid.uuid4().hex,
            launcher=self._name,
            host=self._status.host,
            log=str(output),
            attempt=action.attempt,
            launched_ms=now_ms(),
        )
        reason = bounded_line(action.reason)
        where = f"launcher {self._name} starts a driver on {launch.host} (attempt {launch.attempt}: {reason})"
        self._unstarted.add(launch.launch)
        self._write({launch_key(job): encode(launch), **_record(JobReport.now(job, run, JobState.STARTING, where))})
        self._unstarted.discard(launch.launch)
        try:
            self._children[launch.launch] = self._start_driver(request, launch, job)
        except (WasmlineError, OSError, ValueError) as error:  # ValueError: an argument with a null byte
            self._write(_record(JobReport.now(job, run, JobState.FAILED, str(error), error=type(error).__name__)))
            log.error("launcher %s: job %s, run %s: no driver started: %s", self._name, job, run, bounded_line(error))
            return
        log.info(
            "launcher %s: job %s, run %s: driver started, attempt %d (%s); output in %s",
            self._name, job, run, launch.attempt, reason, output,
        )  # fmt: skip


def _record(report: JobReport) -> dict[bytes, bytes]:
    return {report_key(report.job, report.run): encode(report)}


def _concerns_launchers(key: bytes) -> bool:
    """Return whether a launcher reads records of this key: orders, reports, launches and statuses of launchers."""
    _, slash, kind = key.partition(b"/")
    return not slash or key.startswith(LAUNCHER_KEY_PREFIX.encode()) or kind == b"launch" or kind.startswith(b"report/")
