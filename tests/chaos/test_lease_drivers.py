"""A driver of leases that is killed, with what it leaves running, and its successor: each record's output once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from lease_rig import EXACTLY_ONCE, FOLDER, PATIENCE, ROOT, ROUNDS, LeaseRig
from rig import long
from wasmline.spark import main
from wasmline.testing.kafka import RunningKafka


@contextmanager
def driver(rig: LeaseRig, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Start a driver of the rig's run, and a JVM under it; kill both at the end, if they are there."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join((str(ROOT / "provider"), str(FOLDER))),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_SUBMIT_ARGS": "--master local[2] --conf spark.ui.enabled=false pyspark-shell",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "WASMLINE_KAFKA_CONFIG": rig.config.to_json(),
    }
    command = [sys.executable, str(main.__file__), "--job", rig.job.job, "--run", rig.job.run]
    with log.open("ab") as output:
        running = subprocess.Popen(command, env=environment, stdout=output, stderr=output, start_new_session=True)
    try:
        yield running
    finally:
        with suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)  # the tasks' processes are in a group of their own
        running.wait()


@long
def test_a_driver_that_is_killed_goes_on_from_its_checkpoint(kafka: RunningKafka, tmp_path: Path) -> None:
    with LeaseRig(kafka.config, tmp_path, **EXACTLY_ONCE) as rig:
        for _ in range(ROUNDS):
            with driver(rig, tmp_path / "driver.log"):
                rig.feed(1_000)
                rig.until(lambda: rig.seen() > len(rig.written) - 900, "tasks at work")
        with driver(rig, tmp_path / "driver.log") as running:
            rig.feed(500)
            rig.finish()
            rig.stop()
            assert running.wait(PATIENCE) == 0
