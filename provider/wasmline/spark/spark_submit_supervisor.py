"""Supervises one spark-submit.

``python -m wasmline.spark.spark_submit_supervisor --job J --run R --log FILE [--launch ID] [--submits] -- COMMAND …``

It outlives the task that started it. If the command ends without a final report (Spark is missing, the JVM was killed,
the machine ran out of memory), it writes one, so that no client waits for a dead driver.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from wasmline.control import JobTopic
from wasmline.job_specs import JobReport, JobState
from wasmline.kafka import KafkaConfig

LOG_TAIL = 4_000


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

    Processes that the command leaves in its session are ended first: no part of a driver outlives it. There is no
    report for a driver that was started again by a later launch than ``launch``. With ``submits`` the command only
    submits the driver, in deploy mode cluster: if it succeeds, the reports are the driver's.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        try:
            status = _run(command, output)
        except OSError as error:
            output.write(f"{command[0]}: {error}\n".encode())
            status = 127
    if submits and status == 0:
        return status
    jobs = JobTopic(config)
    try:
        report = jobs.report(job, run)
        if (report is None or not report.state.final) and not _superseded(jobs, job, launch):
            jobs.write_report(_lost(job, run, status, log))
    finally:
        jobs.close()
    return status


def _run(command: list[str], output: BinaryIO) -> int:
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True)
    status = process.wait()
    with suppress(ProcessLookupError, PermissionError):  # macOS: the group of a process that has ended
        os.killpg(process.pid, signal.SIGKILL)
    return status


def _superseded(jobs: JobTopic, job: str, launch: str) -> bool:
    """Return whether a launcher has started another driver of the job since ``launch``."""
    newest = jobs.last_launch(job) if launch else None
    return newest is not None and newest.launch != launch


def _lost(job: str, run: str, status: int, log: Path) -> JobReport:
    tail = log.read_bytes()[-LOG_TAIL:].decode(errors="replace")
    message = f"spark-submit ended with status {status} and no final report; {log} ends with:\n{tail}"
    return JobReport.now(job, run, JobState.FAILED, message, error="JobFailed")


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
