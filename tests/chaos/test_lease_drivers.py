"""A driver of leases that is killed, with what it leaves running, and its successor: each record's output once."""

from __future__ import annotations

from pathlib import Path

from lease_driver import driver
from lease_rig import EXACTLY_ONCE, PATIENCE, ROUNDS, LeaseRig
from rig import long
from wasmline.testing.kafka import RunningKafka


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
