"""The job's own micro-batches, written by tasks in transactions and by Spark's sink."""

from __future__ import annotations

import statistics
import uuid
from collections.abc import Iterable

from rich.progress import track
from stream.bench import Bench
from stream.row import Row, spread

from delivery.generator import generate
from wasmline.control import DeploymentSpec, JobTopic, deploy
from wasmline.job_specs import JobSpec, StreamSpec
from wasmline.kafka import produce_all, read_to_end
from wasmline.registry import digest_of
from wasmline.spark.microbatch.job import MicrobatchJob

BATCH = 100_000
ROWS = 50_000
WARM_UP = 1
"""Batches of a run that do not count: the first ones start Python and find their clients cold."""


def exactly_once(bench: Bench) -> Iterable[Row]:
    """Time the same job with exactly-once and without, in turns."""
    [source, letters] = bench.topics("raw", "letters")
    made = list(generate(ROWS))
    records = bench.times(700_000, 300_000)
    produce_all(bench.config, source, ((made[i % ROWS].key, made[i % ROWS].value, [], None) for i in range(records)))
    times: dict[str, list[float]] = {"exactly_once": [], "at_least_once": []}
    counts = set()
    for turn in track(range(bench.times(3, 1) + 1), "exactly-once micro-batches"):
        for delivery, batches in times.items():
            [target] = bench.topics("features")
            spec = DeploymentSpec(
                name=f"t-{uuid.uuid4().hex[:6]}", version="1.0.0", digest=digest_of(bench.module), input_topic=source,
                output_topics=(target, letters), dead_letter_topic=letters,
            )  # fmt: skip
            deploy(bench.config, spec, bench.module)
            stream = StreamSpec(transform=spec.name, delivery=delivery, max_offsets_per_trigger=BATCH)  # type: ignore[arg-type]
            order = JobSpec(job=f"job-{spec.name}", run="r1", storage=str(bench.folder), stream=stream)
            JobTopic(bench.config).submit(order)
            totals = MicrobatchJob(bench.spark, bench.config, order, stream).run().result
            full = [each for each in totals["batches"] if each["records_in"] > BATCH * 0.9]
            if turn:  # before, the JVM compiles what it runs often
                batches += [each["duration_ms"]["triggerExecution"] for each in full[WARM_UP:]]
            counts.add((totals["records_out"], sum(1 for _ in read_to_end(bench.config, target))))
    if len(counts) != 1:
        raise SystemExit(f"the runs wrote unlike numbers of records: {counts}")
    ours, rival = times["exactly_once"], times["at_least_once"]
    yield Row(
        what="micro-batch, exactly once, over Spark's sink",
        figure=statistics.median(rival) / statistics.median(ours),
        unit="×",
        goal=0.8,
        detail=f"{spread(ours)} and {spread(rival)} ms for {BATCH:,}",
    )
