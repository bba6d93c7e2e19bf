"""What a control record of parallel mode takes: the next lease, another generation, a stop."""

from __future__ import annotations

import statistics
import time
import uuid
from collections.abc import Iterable

from rich.progress import track
from stream.bench import Bench, traffic
from stream.row import Row, share, spread

from delivery.generator import generate
from support.leases.lease_harness import LeaseHarness
from support.record_traffic import Record
from wasmline.control import DeploymentSpec, deploy
from wasmline.registry import digest_of

APART = 2.5
"""Seconds from what came of a control record to the next one."""


def gap(bench: Bench) -> Iterable[Row]:
    """Withdraw leases under load, and see how long no output comes."""
    silences = []
    with bench.harness() as harness, bench.on_spark(harness), traffic(harness) as sightings:
        for _ in track(range(bench.times(20, 4)), "gap between leases"):
            epoch, since = _epoch(harness), time.time()
            harness.jobs.withdraw(harness.job.job)
            harness.until(lambda epoch=epoch: _epoch(harness) > epoch, "the next lease")  # type: ignore[misc]
            until = sightings.wait(time.time())
            time.sleep(APART)
            silences.append(sightings.silence(since - 0.2, until + 0.2))
    yield Row(
        what="gap between leases, median",
        figure=statistics.median(silences),
        unit="s",
        goal=0.4,
        at_most=True,
        detail=f"{spread(silences)} s without an output",
    )


def swap(bench: Bench) -> Iterable[Row]:
    """Deploy generations under load that write to another topic than the last, and wait for their first output."""
    rows = list(generate(10_000))
    name = f"t-{uuid.uuid4().hex[:6]}"

    def record(number: int) -> Record:
        row = rows[number % len(rows)]
        return row.key or b"", row.value

    def generation(number: int) -> float:
        """Deploy it, and return when its control record was written."""
        wasm = _marked(bench.module, number)
        spec = DeploymentSpec(
            name=name, version=f"1.0.{number}", digest=digest_of(wasm), input_topic=harness.topic,
            output_topics=(outputs[number % 2], harness.letters), dead_letter_topic=harness.letters,
        )  # fmt: skip
        return deploy(bench.config, spec, wasm).updated_ms / 1_000

    taken = []
    outputs = bench.topics("features", "features")
    with bench.harness(transform=name) as harness:
        generation(0)
        with bench.on_spark(harness), traffic(harness, *outputs, record=record) as sightings:
            for number in track(range(1, bench.times(16, 4) + 1), "another generation"):
                written = generation(number)
                taken.append(sightings.wait(written, outputs[number % 2]) - written)
                time.sleep(APART)
    yield Row(
        what="deployed to first output of it, p95",
        figure=share(taken, 0.95),
        unit="s",
        goal=1,
        at_most=True,
        detail=f"{spread(taken)} s",
    )


def stop(bench: Bench) -> Iterable[Row]:
    """Stop jobs under load, and wait for their final reports."""
    taken = []
    for _ in track(range(bench.times(5, 2)), "stop"):
        with bench.harness() as harness, bench.on_spark(harness) as ended, traffic(harness):
            ordered = time.time()
            harness.stop()
            ended.result()
            taken.append(time.time() - ordered)
    yield Row(
        what="stop ordered to final report, longest",
        figure=max(taken),
        unit="s",
        goal=2,
        at_most=True,
        detail=f"{spread(taken)} s",
    )


def _epoch(harness: LeaseHarness) -> int:
    claim = harness.jobs.last_claim(harness.job.job)
    return claim.batch_id if claim is not None else 0


def _marked(wasm: bytes, number: int) -> bytes:
    """Return a module that does the same and is another one: with a custom section."""
    content = b"\4mark%d" % number
    return wasm + b"\0" + bytes([len(content)]) + content
