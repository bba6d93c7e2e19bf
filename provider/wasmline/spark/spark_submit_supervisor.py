"""Supervises one spark-submit.

``python -m wasmline.spark.spark_submit_supervisor --job J --run R --log FILE [--launch ID] [--submits] -- COMMAND …``

It outlives the task that started it, and reports that a driver is being started. If the command ends without a final
report (Spark is missing, the JVM was killed, the machine ran out of memory), it writes one, so that no client waits for
a dead driver.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from wasmline.control import JobTopic
from wasmline.errors import KafkaError
from wasmline.job_specs import JobReport, JobState
from wasmline.kafka import KafkaConfig
from wasmline.log_end import log_end
from wasmline.repeated_errors import RepeatedErrors
from wasmline.spark.driver_process import FENCED_STATUS

logger = logging.getLogger(__name__)

REPORT_TIMEOUT_S = 600.0
"""Seconds for which the final report is tried while the cluster is unavailable."""

REPORT_RETRY_DELAY_S = 5.0

SIGNAL_STATUS_OFFSET = 128
"""Added to a signal's number in the exit status of a shell, Spark or JVM whose program was ended by it."""


def supervise(
    config: KafkaConfig,
    job: str,
    run: str,
    command: list[str],
    log: Path,
    *,
    launch: str = "",
    submits: bool = False,
) -> int:
    """Run ``command`` with its output in ``log``; ensure a final report and return the exit status.

    Until the first report, a run without a launch is an order that nobody may be carrying out. Processes that the
    command leaves in its session are ended first: no part of a driver outlives it. There is no report for a driver that
    was started again by a later launch than ``launch``, or that says that its run goes on with another driver. With
    ``submits`` the command only submits the driver, in deploy mode cluster: if it succeeds, the reports are the
    driver's.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    if not launch:
        _report_start(config, job, run)
    with log.open("ab") as output:
        try:
            status = _run(command, output)
        except OSError as error:
            output.write(f"{command[0]}: {error}\n".encode())
            status = 127
    if status == (0 if submits else FENCED_STATUS):
        return status
    failed = JobReport.now(job, run, JobState.FAILED, _reason(status, log), error="JobFailed")
    _ensure_final_report(config, failed, launch)
    return status


def _report_start(config: KafkaConfig, job: str, run: str) -> None:
    """Report that the driver is being started, before it can report by itself.

    Without this report another run may be ordered while Spark starts: that costs time only.
    """
    starting = JobReport.now(job, run, JobState.STARTING, f"spark-submit started on {socket.gethostname()}")
    try:
        with closing(JobTopic(config)) as jobs:
            jobs.write_report(starting)
    except KafkaError as error:
        logger.warning("the start of job %s, run %s, was not reported: %s", job, run, error)


def _ensure_final_report(config: KafkaConfig, failed: JobReport, launch: str) -> None:
    """Write ``failed``, with the totals of the report before, unless the run has a final report.

    The cluster may be the reason of the driver's end, so any error of it is retried for REPORT_TIMEOUT_S: a broker that
    comes back may also deny requests, or show a transaction as hanging, for a moment.
    """
    deadline, errors = time.monotonic() + REPORT_TIMEOUT_S, RepeatedErrors()
    while True:
        try:
            with closing(JobTopic(config)) as jobs:
                report = jobs.report(failed.job, failed.run)
                if (report is None or not report.state.final) and not _superseded(jobs, failed.job, launch):
                    jobs.write_report(replace(failed, result=report.result if report is not None else {}))
            return
        except KafkaError as error:
            if time.monotonic() > deadline:
                logger.error("the report of job %s, run %s, was not written: %s", failed.job, failed.run, error)
                return
            if line := errors.changed(failed.job, error):
                logger.warning("the report of job %s cannot be written yet: %s", failed.job, line)
        time.sleep(REPORT_RETRY_DELAY_S)


def _run(command: list[str], output: BinaryIO) -> int:
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True)
    status = process.wait()
    with suppress(ProcessLookupError, PermissionError):  # macOS: the group of a process that has ended
        os.killpg(process.pid, signal.SIGKILL)
    return status


def _reason(status: int, log: Path) -> str:
    end = log_end(log)
    quoted = f"{log} ends with:\n{end}" if end else f"its output is in {log}"
    return f"spark-submit {describe_exit_status(status)} and no final report; {quoted}"


def describe_exit_status(status: int) -> str:
    """Return an exit status in words, with the signal's name if a signal ended the command or its driver."""
    if status < 0:
        return f"was killed by {_signal_name(-status) or f'signal {-status}'}"
    if name := _signal_name(status - SIGNAL_STATUS_OFFSET):
        return f"ended with status {status}, because its driver was killed by {name}"
    return f"ended with status {status}"


def _signal_name(number: int) -> str:
    """Return the name of a signal, "" for a number that is none."""
    try:
        name = signal.Signals(number).name
    except ValueError:
        return ""
    return f"{name} (out of memory, or kill -9)" if name == "SIGKILL" else name


def _superseded(jobs: JobTopic, job: str, launch: str) -> bool:
    """Return whether a launcher has started another driver of the job since ``launch``."""
    newest = jobs.last_launch(job) if launch else None
    return newest is not None and newest.launch != launch


def main() -> int:
    """Parse the command line and supervise."""
    parser = argparse.ArgumentParser(prog="wasmline-spark-submit-supervisor")
    parser.add_argument("--job", required=True)
    parser.add_argument("--run", required=True)
    parser.add_argument("--log", required=True, type=Path)
    parser.add_argument("--launch", default="")
    parser.add_argument("--submits", action="store_true")
    parser.add_argument("command", nargs="+")
    arguments = parser.parse_args()
    config = KafkaConfig.from_environment()
    return supervise(
        config,
        arguments.job,
        arguments.run,
        arguments.command,
        arguments.log,
        launch=arguments.launch,
        submits=arguments.submits,
    )


if __name__ == "__main__":
    sys.exit(main())
