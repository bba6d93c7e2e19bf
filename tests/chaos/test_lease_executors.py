"""Executors that are killed under leases: each record's output once, while Spark brings another."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest

from support.chaos.outages import at_work
from support.leases.lease_driver import driver
from support.leases.lease_harness import EXACTLY_ONCE, TIMEOUT_S, LeaseHarness
from support.rounds import rounds
from support.streams.local_cluster import MASTER, spark_home
from wasmline.local.process import wait_until
from wasmline.testing.kafka import RunningKafka

SETTINGS = "--conf spark.executor.memory=512m --conf spark.task.maxFailures=1000"
"""Spark ends a job whose task failed four times, and one lease may see as many executors killed."""

EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"


@pytest.mark.long
def test_an_executor_that_is_killed_is_replaced(
    kafka: RunningKafka, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = spark_home(tmp_path / "spark")
    with (
        LeaseHarness(kafka.config, tmp_path, **EXACTLY_ONCE) as harness,
        driver(harness, tmp_path / "driver.log", SETTINGS, master=MASTER, home=home) as running,
    ):
        with at_work(harness) as stalls:
            for _ in rounds():
                stalls.after(lambda: _kill_one(running.pid))
        harness.stop()
        assert running.wait(TIMEOUT_S) == 0
    stalls.tell(capsys)


def _kill_one(driver: int) -> None:
    """Kill an executor, once there is one: the last may have been killed just now."""
    assert wait_until(lambda: bool(_executors(driver)), TIMEOUT_S)
    _executors(driver)[0].kill()


def _executors(driver: int) -> list[psutil.Process]:
    """Return the executors that run; one that was killed has no command line, and may be gone by now."""
    found = []
    for each in psutil.Process(driver).children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if EXECUTOR in each.cmdline():
                found.append(each)
    return found
