"""Executors that are killed under leases: each record's output once, while Spark brings another."""

from __future__ import annotations

from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest

from clustered import MASTER, spark_home
from lease_driver import driver
from lease_rig import EXACTLY_ONCE, PATIENCE, ROUNDS, LeaseRig
from rig import long
from stalls import at_work
from wasmline.testing.kafka import RunningKafka

SETTINGS = "--conf spark.executor.memory=512m"
EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"


@long
def test_an_executor_that_is_killed_is_replaced(
    kafka: RunningKafka, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = spark_home(tmp_path / "spark")
    with (
        LeaseRig(kafka.config, tmp_path, **EXACTLY_ONCE) as rig,
        driver(rig, tmp_path / "driver.log", SETTINGS, master=MASTER, home=home) as running,
    ):
        with at_work(rig) as stalls:
            for _ in range(ROUNDS):
                stalls.after(lambda: _executors(running.pid)[0].kill())
        rig.stop()
        assert running.wait(PATIENCE) == 0
    stalls.tell(capsys)


def _executors(driver: int) -> list[psutil.Process]:
    return [each for each in psutil.Process(driver).children(recursive=True) if EXECUTOR in each.cmdline()]
