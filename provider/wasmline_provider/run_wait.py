"""Waits for the end of a run, and requests its stop, in the process of a task."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from wasmline.repeated_errors import RepeatedErrors, error_line
from wasmline_provider.job_client import POLL_INTERVAL_S, STOP_TIMEOUT_S, JobRun
from wasmline_provider.run_monitor import MonitoringFollower, ReadFailure, ReportLine, RunEnd, RunEvent, SparkUi
from wasmline_provider.shared_run_reader import cluster_clients
from wasmline_provider.stop_writer import stop_failure_message

if TYPE_CHECKING:
    from wasmline.control import StoppedBy


class TaskLog(Protocol):
    """A task's logger; of the standard library's or Airflow's."""

    def info(self, message: str, /, *arguments: object) -> object: ...

    def warning(self, message: str, /, *arguments: object) -> object: ...

    def error(self, message: str, /, *arguments: object) -> object: ...


def await_end(
    settings: Mapping[str, Any],
    run: JobRun,
    log: TaskLog,
    *,
    heartbeat_s: float,
    timeout_s: float | None = None,
    on_spark_ui: Callable[[str], object] = lambda url: None,
) -> RunEnd | None:
    """Return the end of a run, None if ``timeout_s`` is over before. A cluster that is away delays it.

    on_spark_ui: called with each new URL of the driver's UI, "" once it has none.
    """
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    errors = RepeatedErrors()
    events: queue.SimpleQueue[RunEvent] = queue.SimpleQueue()  # a signal's handler may use it at any moment
    follower = MonitoringFollower(run, events.put, heartbeat_s=heartbeat_s)
    following = cluster_clients(settings).reader.follow(run.job, run.run, follower, interval_s=POLL_INTERVAL_S)
    try:
        while True:
            match events.get(timeout=None if deadline is None else max(0.0, deadline - time.monotonic())):
                case RunEnd() as end:
                    return end
                case ReportLine(line=line):
                    log.info("%s", line)
                case SparkUi(url=url):
                    on_spark_ui(url)
                case ReadFailure(error=None):
                    errors.solved("read")
                case ReadFailure(error=error):
                    if error is not None and (told := errors.changed("read", error)):
                        log.warning("cannot read the reports of job %s, and tries again: %s", run.job, told)
    except queue.Empty:
        return None
    finally:
        following.stop()


def stop_run(
    settings: Mapping[str, Any], run: JobRun, log: TaskLog, *, by: StoppedBy, timeout_s: float = STOP_TIMEOUT_S
) -> None:
    """Request a run to end at its next safe point, and wait for its end, both within ``timeout_s``.

    Logs the end; an error if the request could not be written.
    """
    deadline = time.monotonic() + timeout_s
    answers: queue.SimpleQueue[Exception | None] = queue.SimpleQueue()
    request = cluster_clients(settings).stops.request(run.job, run.run, answers.put, by=by)
    told = "no answer"
    log.info("requesting the stop of job %s, run %s; if no answer follows: wasmline stop %s", run.job, run.run, run.job)
    try:
        while (error := answers.get(timeout=max(0.0, deadline - time.monotonic()))) is not None:
            told = error_line(error)
    except queue.Empty:
        is_withdrawn = request.cancel()
        log.error("%s", stop_failure_message(run.job, run.run, told, may_be_written=not is_withdrawn))
        return
    finally:
        request.cancel()
    end = await_end(settings, run, log, heartbeat_s=timeout_s, timeout_s=max(0.0, deadline - time.monotonic()))
    log.info("job %s, run %s: %s", run.job, run.run, end.state if end else "stop requested; still running")
