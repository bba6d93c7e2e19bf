"""Executors that are killed under leases: each record's output once, while Spark brings another."""

from __future__ import annotations

from pathlib import Path

import psutil  # type: ignore[import-untyped]

from clustered import MASTER, spark_home
from lease_driver import driver
from lease_rig import EXACTLY_ONCE, PATIENCE, ROUNDS, LeaseRig
from rig import long
from wasmline.testing.kafka import RunningKafka

SETTINGS = "--conf spark.executor.memory=512m"
EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"


@long
def test_an_executor_that_is_killed_is_replaced(kafka: RunningKafka, tmp_path: Path) -> None:
    with LeaseRig(kafka.config, tmp_path, **EXACTLY_ONCE) as rig:
        home = spark_home(tmp_path / "spark")
        with driver(rig, tmp_path / "driver.log", SETTINGS, master=MASTER, home=home) as running:
            for _ in range(ROUNDS):
                rig.feed(1_000)
                rig.until(lambda: rig.seen() > len(rig.written) - 900, "tasks at work")
                _executors(running.pid)[0].kill()
            rig.feed(500)
            rig.finish()
            rig.stop()
            assert running.wait(PATIENCE) == 0


def _executors(driver: int) -> list[psutil.Process]:
    return [each for each in psutil.Process(driver).children(recursive=True) if EXECUTOR in each.cmdline()]
