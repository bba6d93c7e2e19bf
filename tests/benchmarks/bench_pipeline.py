"""Kafka → Wasm → Kafka on Spark, beside the same query with no transform, with an empty one, and with per-row Python.

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
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console
from rich.table import Table

REPOSITORY = Path(__file__).parents[2]
sys.path.insert(0, str(REPOSITORY / "dags"))

from processes import cpu_seconds  # noqa: E402

from delivery.generator import generate  # noqa: E402
from delivery.reference_transform import transform  # noqa: E402
from wasmline.build import build, load_project  # noqa: E402
from wasmline.control import Deployment, DeploymentSpec  # noqa: E402
from wasmline.kafka import KafkaConfig, Topics, produce_all  # noqa: E402
from wasmline.local import LocalKafka  # noqa: E402
from wasmline.pipeline import BatchStats  # noqa: E402
from wasmline.spark.microbatch.task import INPUT_COLUMNS, SINK_COLUMNS, BatchStatsParam, TransformTask  # noqa: E402
from wasmline.testing.spark import local_spark  # noqa: E402

ROWS = int(os.environ.get("ROWS", "45600"))
COPIES = int(os.environ.get("COPIES", "20"))
BATCH = 200_000
WARM_UP = 1
ROUNDS = 3

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

    def features(value: bytes) -> bytes | None:
        out = transform(value)
        return out if isinstance(out, bytes) else None

    function = udf(features, BinaryType())
    return lambda frame: frame.select(
        lit(topic).alias("topic"), "key", function(col("value")).alias("value"), "headers"
    )


def wasm(spark: SparkSession, topic: str, letters: str) -> Stage:
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
    )
    task = TransformTask(
        deployment=Deployment(spec=spec, generation=1, state="running", updated_ms=0),
        module=spark.sparkContext.broadcast(module),
        stats=spark.sparkContext.accumulator(BatchStats(), BatchStatsParam()),
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


def measure(spark: SparkSession, config: KafkaConfig) -> tuple[dict[str, list[float]], dict[str, dict[str, float]]]:
    """Return the steady batch times of each query, its rounds taken in turn, and the CPU microseconds per record."""
    source, target, letters = (f"{noun}-{uuid.uuid4().hex[:6]}" for noun in ("raw", "features", "letters"))
    for topic in (source, target, letters):
        Topics(config).create(topic, 3, config={"retention.ms": "-1"})
    made = list(generate(ROWS))
    produce_all(config, source, ((row.key, row.value, [], None) for _ in range(COPIES) for row in made))
    queries = {
        "no transform": nothing(target),
        "empty Arrow stage": empty(target),
        "wasm": wasm(spark, target, letters),
        "python, per row": python_udf(target),
    }
    times: dict[str, list[float]] = {name: [] for name in queries}
    cpu = {name: dict.fromkeys(cpu_seconds(), 0.0) for name in queries}
    for stage in queries.values():
        steady_batches(spark, config, source, stage)  # the JVM compiles what it runs often
    for _ in range(ROUNDS):
        for name, stage in queries.items():
            before = cpu_seconds()
            times[name] += steady_batches(spark, config, source, stage)
            for who, seconds in cpu_seconds().items():
                cpu[name][who] += (seconds - before[who]) / (ROUNDS * COPIES * len(made)) * 1e6
    return times, cpu


def report(times: dict[str, list[float]], cpu: dict[str, dict[str, float]]) -> dict[str, Any]:
    """Return the figures: median milliseconds per batch, throughput relative to the others, CPU per record."""
    median = {name: statistics.median(values) for name, values in times.items()}
    return {
        "records_per_batch": BATCH,
        "batches": {name: len(values) for name, values in times.items()},
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
        os.environ["PYTHONPATH"] = str(REPOSITORY / "dags")  # the per-row rival is a module there
        with local_spark("bench-pipeline", "2g") as spark:
            figures = report(*measure(spark, KafkaConfig({"bootstrap.servers": kafka.bootstrap_servers})))
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
    (folder / "pipeline.json").write_text(json.dumps(figures, indent=2) + "\n")
    console.print(f"written to {folder.relative_to(REPOSITORY)}/pipeline.json")


if __name__ == "__main__":
    main()
