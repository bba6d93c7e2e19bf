"""A driver of leases: its tasks are killed, it is killed itself, and each record's output is there once."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from support.leases.lease_driver import driver
from support.leases.lease_harness import EXACTLY_ONCE, PATIENCE, LeaseRig
from support.rounds import ROUNDS, rounds
from wasmline.spark.session import TASK_ATTEMPTS
from wasmline.testing.kafka import RunningKafka


@pytest.mark.long
def test_a_task_that_is_killed_is_tried_again_on_a_plain_local_master(kafka: RunningKafka, tmp_path: Path) -> None:
    with LeaseRig(kafka.config, tmp_path, **EXACTLY_ONCE) as rig, driver(rig, tmp_path / "driver.log") as running:
        for _ in rounds(min(ROUNDS, TASK_ATTEMPTS - 1)):
            rig.feed(1_000)
            rig.until(lambda: rig.seen() > len(rig.written) - 900, "tasks at work")
            os.kill(rig.workers()[0], signal.SIGKILL)
        rig.finish()
        rig.stop()
        assert running.wait(PATIENCE) == 0


def test_a_driver_that_is_killed_goes_on_from_its_checkpoint(kafka: RunningKafka, tmp_path: Path) -> None:
    with LeaseRig(kafka.config, tmp_path, **EXACTLY_ONCE) as rig:
        for _ in rounds():
            with driver(rig, tmp_path / "driver.log"):
                rig.feed(1_000)
                rig.until(lambda: rig.seen() > len(rig.written) - 900, "tasks at work")
        with driver(rig, tmp_path / "driver.log") as running:
            rig.feed(500)
            rig.finish()
            rig.stop()
            assert running.wait(PATIENCE) == 0
