"""What the rows share: one broker, one Spark, and jobs of leases on it or beside it."""

from __future__ import annotations

import functools
import itertools
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from support.leases.lease_driver import running
from support.leases.lease_harness import EXACTLY_ONCE, NOTHING, TIMEOUT_S, LeaseHarness
from support.record_traffic import Feed, Record, Watch
from wasmline.build import build, load_project
from wasmline.job_specs import JobReport
from wasmline.kafka import KafkaConfig, Topics
from wasmline.local.process import wait_until

PARTITIONS = 4
KEYS = 400
RATE = 1_000
"""Records a second where a figure is not about throughput."""

SETTLED = 5.0
"""Seconds from the first output until measuring begins: statuses, caches and the JVM are warm by then."""


@dataclass(frozen=True, kw_only=True)
class Bench:
    """``quick`` is a look, and no figure."""

    spark: SparkSession
    config: KafkaConfig
    folder: Path
    quick: bool

    def times(self, whole: int, quick: int) -> int:
        """Return how often something is done."""
        return quick if self.quick else whole

    def topics(self, *nouns: str) -> list[str]:
        names = [f"{noun}-{uuid.uuid4().hex[:6]}" for noun in nouns]
        for name in names:
            Topics(self.config).create(name, PARTITIONS, config={"retention.ms": "-1"})
        return names

    @functools.cached_property
    def module(self) -> bytes:
        """The deliveries' transform."""
        project = load_project(Path(__file__).parents[3] / "wasm_modules" / "delivery_distance")
        with tempfile.TemporaryDirectory() as folder:
            build(project, output=Path(folder) / "m.wasm")
            return (Path(folder) / "m.wasm").read_bytes()

    @contextmanager
    def harness(self, **options: Any) -> Iterator[LeaseHarness]:
        """Yield a job that writes each record's output with the time of its input, unless told of another function."""
        options = {"function": "lease_handlers:relay", "partitions": PARTITIONS, "tasks": 2, **EXACTLY_ONCE, **options}
        with LeaseHarness(self.config, self.folder, **options) as harness:
            yield harness

    @contextmanager
    def on_spark(self, harness: LeaseHarness) -> Iterator[Future[JobReport]]:
        """Run a job by Spark."""
        with running(self.spark, harness) as ended:
            yield ended

    @contextmanager
    def beside_spark(self, harness: LeaseHarness) -> Iterator[None]:
        """Run the same worker in a process for each task."""
        lessor = harness.lessor()
        tasks = harness.work(lessor.leases(lessor.next(NOTHING)))
        yield
        harness.stop()
        for task in tasks:
            task.reason()


@dataclass
class Sightings:
    """Outputs: when a read_committed reader had each, and when its input was written, in Unix seconds."""

    seen: list[tuple[float, float, str]] = field(default_factory=list)

    def add(self, message: Any, now: float) -> None:
        self.seen.append((now, message.timestamp()[1] / 1_000, message.topic()))

    def wait(self, since: float = 0.0, topic: str | None = None) -> float:
        """Wait for an output that was visible after ``since``, and return when the first one was."""
        found: list[float] = []

        def look() -> bool:
            found.extend(at for at, _, name in self.seen if at > since and topic in (None, name))
            return bool(found)

        if not wait_until(look, TIMEOUT_S):
            raise SystemExit("no output came")
        return found[0]

    def latencies(self, since: float, until: float) -> list[float]:
        """Return seconds from writing to visibility, of all that was written in between."""
        return [at - sent for at, sent, _ in self.seen if since <= sent < until]

    def silence(self, since: float, until: float) -> float:
        """Return the longest time without an output in between."""
        times = sorted({at for at, _, _ in self.seen if since <= at < until})
        return max(after - before for before, after in itertools.pairwise(times))


@contextmanager
def traffic(harness: LeaseHarness, *outputs: str, record: Callable[[int], Record] | None = None) -> Iterator[Sightings]:
    """Write records at RATE, and yield what a reader sees of their outputs, once that is steady."""
    sightings = Sightings()
    with ExitStack() as stack:
        stack.enter_context(Watch(harness.config, outputs or (harness.output,), sightings.add))
        stack.enter_context(Feed(harness.config, harness.topic, RATE, record or keyed))
        sightings.wait()
        time.sleep(SETTLED)
        yield sightings


def keyed(number: int) -> Record:
    return b"key-%d" % (number % KEYS), b"value"
