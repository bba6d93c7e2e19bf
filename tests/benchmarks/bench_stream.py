"""Streams on Spark beside what they are measured against, as ratios of one run.

    make bench-stream                       # ARGS="--quick", ARGS="--only exactly-once"

Each row has its rivals take turns on one broker and one Spark, so that a slow moment of the machine falls on both, and
its figure is a ratio of medians. Prints a table and writes build/bench/stream.json.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from pyspark.sql import SparkSession
from rich.console import Console
from rich.progress import track
from rich.table import Table

REPOSITORY = Path(__file__).parents[2]
sys.path.insert(0, str(REPOSITORY / "dags"))

from local_spark import local_spark  # noqa: E402

from delivery.generator import generate  # noqa: E402
from wasmline.build import build, load_project  # noqa: E402
from wasmline.deploy import DeploymentSpec, JobLog, deploy  # noqa: E402
from wasmline.jobs import JobSpec, StreamSpec  # noqa: E402
from wasmline.kafka import KafkaConfig, Topics, produce_all, read_to_end  # noqa: E402
from wasmline.local import LocalKafka  # noqa: E402
from wasmline.spark.microbatch import MicrobatchJob  # noqa: E402

PARTITIONS = 4
WARM_UP = 1
"""Batches of a run that do not count: the first ones start Python and find their clients cold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One comparison: ``ratio`` is ours beside the rival's, and 1 or more is as good or better."""

    what: str
    ours: str
    rival: str
    ratio: float
    spread: str
    goal: float

    @property
    def met(self) -> bool:
        return self.ratio >= self.goal


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What the rows share."""

    spark: SparkSession
    config: KafkaConfig
    folder: Path
    records: int
    batch: int
    rounds: int

    def name(self, noun: str) -> str:
        return f"{noun}-{uuid.uuid4().hex[:6]}"

    def topics(self, *nouns: str) -> list[str]:
        names = [self.name(noun) for noun in nouns]
        for name in names:
            Topics(self.config).create(name, PARTITIONS, config={"retention.ms": "-1"})
        return names


def exactly_once(bench: Bench) -> Iterable[Row]:
    """Time the job's own micro-batches, written by tasks in transactions and by Spark's sink."""
    [source, letters] = bench.topics("raw", "letters")
    made = list(generate(min(bench.records, 50_000)))
    produce_all(bench.config, source, ((made[i % len(made)].key, made[i % len(made)].value, [], None)
                                       for i in range(bench.records)))  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        project = load_project(REPOSITORY / "wasm_modules" / "delivery_distance")
        report = build(project, output=Path(folder) / "m.wasm")
        module = (Path(folder) / "m.wasm").read_bytes()
    times: dict[str, list[float]] = {"exactly_once": [], "at_least_once": []}
    counts = set()
    for turn in track(range(bench.rounds + 1), "exactly-once micro-batches"):
        for delivery, batches in times.items():
            [target] = bench.topics("features")
            spec = DeploymentSpec(
                name=bench.name("t"), version="1.0.0", digest=report.digest, input_topic=source,
                output_topics=(target, letters), dead_letter_topic=letters,
            )  # fmt: skip
            deploy(bench.config, spec, module)
            stream = StreamSpec(transform=spec.name, delivery=delivery, max_offsets_per_trigger=bench.batch)  # type: ignore[arg-type]
            order = JobSpec(job=bench.name("job"), run="r1", storage=str(bench.folder), stream=stream)
            JobLog(bench.config).submit(order)
            totals = MicrobatchJob(bench.spark, bench.config, order, stream).run().result
            full = [each for each in totals["batches"] if each["records_in"] > bench.batch * 0.9]
            if turn:  # before, the JVM compiles what it runs often
                batches += [each["duration_ms"]["triggerExecution"] for each in full[WARM_UP:]]
            counts.add((totals["records_out"], sum(1 for _ in read_to_end(bench.config, target))))
    if len(counts) != 1:
        raise SystemExit(f"the runs wrote unlike numbers of records: {counts}")
    ours, rival = (statistics.median(times[name]) for name in ("exactly_once", "at_least_once"))
    yield Row(
        what="micro-batch, exactly once, vs Spark's sink",
        ours=f"{ours:,.0f} ms / {bench.batch:,}",
        rival=f"{rival:,.0f} ms / {bench.batch:,}",
        ratio=rival / ours,
        spread=spread(times["exactly_once"], times["at_least_once"]),
        goal=0.8,
    )


ROWS: dict[str, Callable[[Bench], Iterable[Row]]] = {"exactly-once": exactly_once}


def spread(ours: list[float], rival: list[float]) -> str:
    """Return the quartiles of both, as what a ratio may be off by."""
    texts = []
    for values in (ours, rival):
        low, _, high = statistics.quantiles(values, n=4) if len(values) > 1 else values * 3
        texts.append(f"{low:,.0f}–{high:,.0f}")
    return f"{' vs '.join(texts)} ({len(ours)} each)"


def options() -> argparse.Namespace:
    """Return what the command line asks for."""
    parser = argparse.ArgumentParser(description="streams on Spark beside what they are measured against")
    parser.add_argument("--only", choices=sorted(ROWS), action="append", help="this row only; may be repeated")
    parser.add_argument("--quick", action="store_true", help="fewer records and rounds: a look, and no figure")
    parser.add_argument("--records", type=int, help="records of a run")
    parser.add_argument("--batch", type=int, default=100_000, help="records of a micro-batch")
    parser.add_argument("--rounds", type=int, help="times that each rival runs")
    return parser.parse_args()


def main() -> None:
    """Measure, print and write."""
    asked, console = options(), Console(width=120)
    results = REPOSITORY / "build" / "bench"
    results.mkdir(parents=True, exist_ok=True)
    rows: list[Row] = []
    with (
        tempfile.TemporaryDirectory() as data,
        LocalKafka(Path(data) / "kafka") as kafka,
        local_spark("bench-stream", "local[2,4]") as spark,
    ):
        bench = Bench(
            spark=spark,
            config=KafkaConfig({"bootstrap.servers": kafka.bootstrap_servers}),
            folder=Path(data),
            records=asked.records or (300_000 if asked.quick else 700_000),
            batch=asked.batch,
            rounds=asked.rounds or (1 if asked.quick else 3),
        )
        for name in asked.only or ROWS:
            rows += ROWS[name](bench)
    table = Table(title="Streams on Spark, medians of one run")
    for heading in ("what", "ours", "rival", "ratio", "goal", "quartiles, ms"):
        table.add_column(heading, justify="left" if heading == "what" else "right")
    for row in rows:
        verdict = f"{row.ratio:.2f}×" + ("" if row.met else " (below)")
        table.add_row(row.what, row.ours, row.rival, verdict, f"≥ {row.goal:.2f}×", row.spread)
    console.print(table)
    (results / "stream.json").write_text(json.dumps([asdict(row) for row in rows], indent=2) + "\n")
    console.print(f"written to {results.relative_to(REPOSITORY)}/stream.json")


if __name__ == "__main__":
    main()
