"""A job of leases that runs for long: nothing is lost, doubled or out of order, and its memory does not grow."""

from __future__ import annotations

import os
import time
import uuid
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from support.leases.lease_driver import driver
from support.leases.lease_harness import EXACTLY_ONCE, ROOT, TIMEOUT_S, LeaseHarness
from support.record_traffic import Feed, Record, Watch
from support.soak.account import Account
from support.soak.memory import SETTINGS, Memory
from wasmline.control import DeploymentSpec, deploy
from wasmline.kafka import Topics, read_to_end
from wasmline.local.process import wait_until
from wasmline.registry import digest_of
from wasmline.testing.guests import SCRATCH, WRITE, guest, store
from wasmline.testing.kafka import RunningKafka

MINUTES = float(os.environ.get("SOAK_MINUTES", "60"))
FOLDER = ROOT / "build" / "soak"
LOG = FOLDER / "driver.log"
RATE = 500
KEYS = 200
SAMPLED = 10.0
"""Seconds between two samples of the memory."""

CHANGED = 3
"""Samples between two ends of a lease: a withdrawal and a generation of other bytes take turns."""


def generation(harness: LeaseHarness, name: str, number: int) -> None:
    wasm = guest(store(SCRATCH, b"%d" % number) + WRITE)
    spec = DeploymentSpec(
        name=name, version=f"1.0.{number}", digest=digest_of(wasm), input_topic=harness.topic,
        output_topics=(harness.output,), dead_letter_topic=harness.letters,
    )  # fmt: skip
    deploy(harness.config, spec, wasm)


def record(number: int) -> Record:
    return b"key-%d" % (number % KEYS), b"%d" % number


def traced(harness: LeaseHarness, account: Account) -> str:
    """Say of what was due and did not come where another reader finds it: it was lost, comes late, or is doubled."""
    due: dict[tuple[bytes, bytes], bytes | None] = dict.fromkeys(account.missing().items())
    due |= {(key, value): came for key, (value, came) in account.wrong.items()}
    places = defaultdict(list)
    for topic in (harness.topic, harness.output, harness.letters):
        for message in read_to_end(harness.config, topic):
            if (each := (message.key(), message.value())) in due:
                places[each].append(f"{topic}-{message.partition()}@{message.offset()}")
    lines = [f"{each} was due, {came!r} came, found at {places[each]}" for each, came in due.items()]
    (FOLDER / "traces.txt").write_text("\n".join(lines))
    return "\n".join(lines[:20])


@pytest.mark.long
def test_leases_lose_nothing_and_take_no_more_memory_however_long_they_follow_each_other(
    kafka: RunningKafka, tmp_path: Path
) -> None:
    account, name = Account(), f"t-{uuid.uuid4().hex[:8]}"

    def written(number: int, _: Any) -> None:
        account.put_in(*record(number))

    def seen(message: Any, _: float) -> None:
        account.take_out(message.key(), message.value())

    with LeaseHarness(kafka.config, tmp_path, partitions=4, transform=name, **EXACTLY_ONCE) as harness:
        generation(harness, name, 0)
        FOLDER.mkdir(parents=True, exist_ok=True)
        LOG.write_text("")
        with driver(harness, LOG, SETTINGS) as running, Watch(harness.config, [harness.output], seen):
            with Feed(harness.config, harness.topic, RATE, record, written):
                harness.until(lambda: account.matched > 0, "the first lease")
                memory = Memory(running.pid, FOLDER / "memory.tsv")
                for number in range(1, int(MINUTES * 60 / SAMPLED) + 1):
                    time.sleep(SAMPLED)
                    memory.sample()
                    assert running.poll() is None, LOG.read_text()[-4_000:]
                    assert not account.wrong, traced(harness, account)
                    if number % (2 * CHANGED) == 0:
                        generation(harness, name, number)
                    elif number % CHANGED == 0:
                        harness.jobs.withdraw(harness.job.job)
            wait_until(lambda: account.open == 0, TIMEOUT_S)
            assert (account.open, account.wrong) == (0, {}), traced(harness, account)
            harness.stop()
            assert running.wait(TIMEOUT_S) == 0
    assert (account.open, account.wrong) == (0, {}), traced(harness, account)
    assert Topics(kafka.config).end_offsets(harness.letters) == {0: 0}
    assert memory.grown() == []
