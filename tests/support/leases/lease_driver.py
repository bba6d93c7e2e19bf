"""Drivers of a harness's job: on a session that is there, or a process of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from support.leases.lease_harness import HANDLERS, ROOT, LeaseHarness
from wasmline.job_specs import JobReport
from wasmline.kafka import KafkaConfig
from wasmline.spark import main
from wasmline.spark.parallel.job import ParallelJob
from wasmline.spark.timings import DEFAULT_TIMINGS, StreamTimings


def prepare_session(spark: SparkSession, config: KafkaConfig) -> None:
    """Let a session's Python processes know the cluster and the handlers of ``lease_handlers``."""
    spark.sparkContext.environment["WASMLINE_KAFKA_CONFIG"] = config.to_json()
    spark.sparkContext.addPyFile(str(HANDLERS / "lease_handlers.py"))


@contextmanager
def running(
    spark: SparkSession, harness: LeaseHarness, timings: StreamTimings = DEFAULT_TIMINGS, **changes: Any
) -> Iterator[Future[JobReport]]:
    """Run a harness's job in the background, and stop it at the end if it runs still."""
    order = replace(harness.job, **changes)
    assert order.stream is not None
    job = ParallelJob(spark, harness.config, order, order.stream, timings)
    with ThreadPoolExecutor(1) as thread:
        outcome = thread.submit(job.run)
        try:
            yield outcome
        finally:
            harness.stop()
            outcome.exception(90)


@contextmanager
def driver(
    harness: LeaseHarness, log: Path, settings: str = "", *, master: str = "local[2]", home: Path | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a driver of the harness's run, and a JVM under it; kill both at the end, if they are there.

    ``settings`` are arguments of spark-submit; ``home`` is a SPARK_HOME that a cluster of its own may write into.
    """
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join((str(ROOT / "provider"), str(HANDLERS))),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_SUBMIT_ARGS": f"--master {master} --conf spark.ui.enabled=false {settings} pyspark-shell",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "WASMLINE_KAFKA_CONFIG": harness.config.to_json(),
        **({"SPARK_HOME": str(home)} if home else {}),
    }
    command = [sys.executable, str(main.__file__), "--job", harness.job.job, "--run", harness.job.run]
    with log.open("ab") as output:
        running = subprocess.Popen(command, env=environment, stdout=output, stderr=output, start_new_session=True)
    harness.drivers[running] = log
    try:
        yield running
    finally:
        del harness.drivers[running]
        with suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)  # the tasks' processes are in a group of their own
        running.wait()
