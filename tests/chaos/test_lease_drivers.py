"""A driver of leases: its tasks are killed, it is killed itself, and each record's output is there once."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from support.leases.lease_driver import driver
from support.leases.lease_harness import EXACTLY_ONCE, TIMEOUT_S, LeaseHarness
from support.rounds import ROUNDS, rounds
from wasmline.spark.session import TASK_ATTEMPTS
from wasmline.testing.kafka import RunningKafka


@pytest.mark.long
def test_a_task_that_is_killed_is_tried_again_on_a_plain_local_master(kafka: RunningKafka, tmp_path: Path) -> None:
    with (
        LeaseHarness(kafka.config, tmp_path, **EXACTLY_ONCE) as harness,
        driver(harness, tmp_path / "driver.log") as running,
    ):
        for _ in rounds(min(ROUNDS, TASK_ATTEMPTS - 1)):
            harness.produce(1_000)
            harness.until(lambda: harness.seen() > len(harness.written) - 900, "tasks at work")
            os.kill(harness.workers()[0], signal.SIGKILL)
        harness.finish()
        harness.stop()
        assert running.wait(TIMEOUT_S) == 0


def test_a_driver_that_is_killed_goes_on_from_its_checkpoint(kafka: RunningKafka, tmp_path: Path) -> None:
    with LeaseHarness(kafka.config, tmp_path, **EXACTLY_ONCE) as harness:
        for _ in rounds():
            with driver(harness, tmp_path / "driver.log"):
                harness.produce(1_000)
                harness.until(lambda: harness.seen() > len(harness.written) - 900, "tasks at work")
        with driver(harness, tmp_path / "driver.log") as running:
            harness.produce(500)
            harness.finish()
            harness.stop()
            assert running.wait(TIMEOUT_S) == 0
