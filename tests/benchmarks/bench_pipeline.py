"""Kafka → Wasm → Kafka on Spark, beside the same query with no transform, with an empty one, and with per-row Python.

The Wasm stage runs with provenance and without: the least CPU time of a round and the bytes of a record say what the
header costs.

    make bench-pipeline

All runs share one broker, one Spark and one topic, and alternate, so that a slow moment of the machine falls on each
of them; the figure of a query is the median time of its steady batches. The CPU time of the processes involved says
where the time goes, and the empty Arrow stage what Spark takes for the way to Python and back. Prints a table of
ratios and writes build/bench/pipeline.json.
"""

from __future__ import annotations

import gc
import json
import os
import statistics
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console
from rich.table import Table

REPOSITORY = Path(__file__).parents[2]
sys.path.insert(0, str(REPOSITORY / "dags"))

from delivery_in_python import require_same, transform  # noqa: E402
from processes import cpu_seconds  # noqa: E402

from delivery.generator import generate  # noqa: E402
from wasmline import provenance  # noqa: E402
from wasmline.build import build, load_project  # noqa: E402
from wasmline.control import Deployment, DeploymentSpec  # noqa: E402
from wasmline.kafka import KafkaConfig, Topics, produce_all, read_to_end  # noqa: E402
from wasmline.local import LocalKafka  # noqa: E402
from wasmline.pipeline import BatchStats  # noqa: E402
from wasmline.pipeline.record_sizes import batch_bytes  # noqa: E402
from wasmline.spark.microbatch.task import INPUT_COLUMNS, SINK_COLUMNS, BatchStatsParam, TransformTask  # noqa: E402
from wasmline.testing.spark import local_spark  # noqa: E402

ROWS = int(os.environ.get("ROWS", "45600"))
COPIES = int(os.environ.get("COPIES", "20"))
BATCH = 200_000
WARM_UP = 1
ROUNDS = int(os.environ.get("ROUNDS", "3"))
SAMPLED = 100_000
"""Outputs whose sizes are looked at."""

LIMIT_BYTES = 2**20 + 12
"""The topics' ``max.message.bytes``: the brokers' default."""

WITH, WITHOUT = "wasm", "wasm, no provenance"

Stage = Callable[[DataFrame], DataFrame]


def nothing(topic: str) -> Stage:
    """Return the query without a transform."""
    from pyspark.sql.functions import lit

    return lambda frame: frame.select(lit(topic).alias("topic"), "key", "value", "headers")


def empty(topic: str) -> Stage:
    """Return a Python stage that hands Arrow batches back as they are, which is what any Wasm stage costs at least."""
    sink = "topic string, key binary, value binary"

    def unchanged(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        gc.freeze()  # as the Wasm stage does
        yield from batches

    return lambda frame: frame.selectExpr(f"'{topic}' AS topic", "key", "value").mapInArrow(unchanged, sink)


def python_udf(topic: str) -> Stage:
    """Return the same transform as a Python function of one record."""
    from pyspark.sql.functions import col, lit, udf
    from pyspark.sql.types import BinaryType

    require_same(source.value for source in generate(ROWS))
    function = udf(transform, BinaryType())
    return lambda frame: frame.select(
        lit(topic).alias("topic"), "key", function(col("value")).alias("value"), "headers"
    )


def wasm(spark: SparkSession, topic: str, letters: str, *, named: bool) -> Stage:
    """Return the stage of the streaming job, with the module built from wasm_modules/delivery_distance."""
    with tempfile.TemporaryDirectory() as folder:
        report = build(load_project(REPOSITORY / "wasm_modules" / "delivery_distance"), output=Path(folder) / "m.wasm")
        module = (Path(folder) / "m.wasm").read_bytes()
    spec = DeploymentSpec(
        name="delivery-distance",
        version="1.0.0",
        digest=report.digest,
        input_topic="raw",
        output_topics=(topic, letters),
        dead_letter_topic=letters,
        provenance=named,
    )
    task = TransformTask(
        deployment=Deployment(spec=spec, generation=1, state="running", updated_ms=0),
        module=spark.sparkContext.broadcast(module),
        stats=spark.sparkContext.accumulator(BatchStats(), BatchStatsParam()),
        limits=dict.fromkeys((topic, letters), LIMIT_BYTES),
    )
    return lambda frame: frame.selectExpr(*INPUT_COLUMNS).mapInArrow(task, SINK_COLUMNS)


def steady_batches(spark: SparkSession, config: KafkaConfig, source: str, stage: Stage) -> list[float]:
    """Run the query over the whole topic; return the milliseconds of its batches after the first ones."""
    kafka = {f"kafka.{name}": value for name, value in config.java().items()}

    def batch(frame: DataFrame, _: int) -> None:
        stage(frame).write.format("kafka").options(**kafka).save()

    with tempfile.TemporaryDirectory() as checkpoint:
        query = (
            spark.readStream.format("kafka")
            .options(**kafka)
            .option("subscribe", source)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", BATCH)
            .option("includeHeaders", "true")
            .load()
            .writeStream.option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .foreachBatch(batch)
            .start()
        )
        query.awaitTermination()
        progresses = [p for p in query.recentProgress if p["numInputRows"] > BATCH * 0.9]
    return [float(p["durationMs"]["triggerExecution"]) for p in progresses[WARM_UP:]]


@dataclass
class Measured:
    """Steady batch times of each query in milliseconds, and CPU microseconds a record of each of its rounds."""

    times: dict[str, list[float]]
    cpu: dict[str, list[dict[str, float]]]
    provenance_bytes: float
    """Mean bytes that the header adds to a record, uncompressed."""

    output_bytes: float
    """Mean bytes of key and value of an output."""


def measure(spark: SparkSession, config: KafkaConfig) -> Measured:
    """Run the queries in turn."""
    nouns = ("raw", "features", "named", "letters")
    source, target, named, letters = topics = [f"{noun}-{uuid.uuid4().hex[:6]}" for noun in nouns]
    for topic in topics:
        Topics(config).create(topic, 3, config={"retention.ms": "-1"})
    made = list(generate(ROWS))
    produce_all(config, source, ((row.key, row.value, [], None) for _ in range(COPIES) for row in made))
    queries = {
        "no transform": nothing(target),
        "empty Arrow stage": empty(target),
        WITH: wasm(spark, named, letters, named=True),
        WITHOUT: wasm(spark, target, letters, named=False),
        "python, per row": python_udf(target),
    }
    times: dict[str, list[float]] = {name: [] for name in queries}
    cpu: dict[str, list[dict[str, float]]] = {name: [] for name in queries}
    for stage in queries.values():
        steady_batches(spark, config, source, stage)  # the JVM compiles what it runs often
    for _ in range(ROUNDS):
        for name, stage in queries.items():
            before = cpu_seconds()
            times[name] += steady_batches(spark, config, source, stage)
            records = COPIES * len(made)
            cpu[name].append({who: (each - before[who]) / records * 1e6 for who, each in cpu_seconds().items()})
    return Measured(times, cpu, *sizes(config, named))


def sizes(config: KafkaConfig, topic: str) -> tuple[float, float]:
    """Return the mean bytes of the provenance header, and of key and value of the outputs that have one."""
    headers, outputs, count = 0, 0, 0
    for message in islice(read_to_end(config, topic), SAMPLED):
        for _, value in cast("list[tuple[str, bytes]]", message.headers() or []):
            key, body = message.key() or b"", message.value() or b""
            added = batch_bytes(key, body, [(provenance.NAME, value)]) - batch_bytes(key, body, ())
            headers, outputs, count = headers + added, outputs + len(key) + len(body), count + 1
    return headers / count, outputs / count


def report(measured: Measured) -> dict[str, Any]:
    """Return the figures: median milliseconds per batch, throughput relative to the others, CPU per record."""
    median = {name: statistics.median(values) for name, values in measured.times.items()}
    cpu = {
        name: {who: statistics.mean(each[who] for each in rounds) for who in rounds[0]}
        for name, rounds in measured.cpu.items()
    }
    least = {name: min(sum(each.values()) for each in rounds) for name, rounds in measured.cpu.items()}
    return {
        "provenance": {
            "bytes_per_record": measured.provenance_bytes,
            "output_bytes_per_record": measured.output_bytes,
            "least_cpu_us_per_record": least[WITH] - least[WITHOUT],
            "least_cpu_ratio": least[WITH] / least[WITHOUT],
            "least_batch_time_ratio": min(measured.times[WITH]) / min(measured.times[WITHOUT]),
        },
        "records_per_batch": BATCH,
        "batches": {name: len(values) for name, values in measured.times.items()},
        "median_ms_per_batch": median,
        "records_per_second": {name: BATCH / ms * 1000 for name, ms in median.items()},
        "throughput_vs_no_transform": {name: median["no transform"] / ms for name, ms in median.items()},
        "throughput_vs_empty_stage": {name: median["empty Arrow stage"] / ms for name, ms in median.items()},
        "throughput_vs_python": {name: median["python, per row"] / ms for name, ms in median.items()},
        "cpu_us_per_record": cpu,
    }


def main() -> None:
    """Measure, print and write."""
    console = Console(width=120)
    folder = REPOSITORY / "build" / "bench"
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as data, LocalKafka(Path(data)) as kafka:
        # The per-row rival is a module here, and imports from there.
        os.environ["PYTHONPATH"] = os.pathsep.join(map(str, [Path(__file__).parent, REPOSITORY / "dags"]))
        with local_spark("bench-pipeline", "2g") as spark:
            figures = report(measure(spark, KafkaConfig({"bootstrap.servers": kafka.bootstrap_servers})))
    table = Table(title=f"Kafka → transform → Kafka, batches of {BATCH:,} records, medians of one run")
    cpu = figures["cpu_us_per_record"]
    headings = (
        "query",
        "ms per batch",
        "records/s",
        "vs none",
        "vs empty",
        "vs Python",
        "CPU µs: broker",
        "spark",
        "python",
    )
    for heading in headings:
        table.add_column(heading, justify="left" if heading == "query" else "right")
    for name, ms in figures["median_ms_per_batch"].items():
        table.add_row(
            name,
            f"{ms:,.0f}",
            f"{figures['records_per_second'][name]:,.0f}",
            f"{figures['throughput_vs_no_transform'][name]:.2f}×",
            f"{figures['throughput_vs_empty_stage'][name]:.2f}×",
            f"{figures['throughput_vs_python'][name]:.2f}×",
            *(f"{cpu[name][who]:.1f}" for who in ("broker", "spark", "python")),
        )
    console.print(table)
    cost = figures["provenance"]
    console.print(
        f"provenance: {cost['bytes_per_record']:.0f} bytes a record beside {cost['output_bytes_per_record']:.0f} of key"
        f" and value; least CPU {cost['least_cpu_ratio']:.2f}× ({cost['least_cpu_us_per_record']:+.1f} µs a record),"
        f" least time of a batch {cost['least_batch_time_ratio']:.2f}×"
    )
    (folder / "pipeline.json").write_text(json.dumps(figures, indent=2) + "\n")
    console.print(f"written to {folder.relative_to(REPOSITORY)}/pipeline.json")


if __name__ == "__main__":
    main()
