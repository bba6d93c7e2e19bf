"""Streams on Spark beside what they are measured against, in one run on one broker and one Spark.

    make bench-stream                       # ARGS="--quick", ARGS="--only gap --only stop"

Rivals take turns, so that a slow moment of the machine falls on both, and their figure is a ratio. Prints a table and
writes build/bench/stream.json.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path

from rich.console import Console

REPOSITORY = Path(__file__).parents[2]
sys.path[:0] = [str(REPOSITORY / folder) for folder in ("dags", "tests", "tests/benchmarks")]

from stream import control, leases, microbatch, retrain  # noqa: E402
from stream.bench import Bench  # noqa: E402
from stream.row import Row, table  # noqa: E402

from support.leases.lease_driver import prepare_session  # noqa: E402
from wasmline.kafka import KafkaConfig  # noqa: E402
from wasmline.local import LocalKafka  # noqa: E402
from wasmline.testing.spark import local_spark  # noqa: E402

ROWS: dict[str, Callable[[Bench], Iterable[Row]]] = {
    "exactly-once": microbatch.exactly_once,
    "parallel": leases.throughput,
    "latency": leases.latency,
    "gap": control.gap,
    "swap": control.swap,
    "stop": control.stop,
    "idle": leases.idle,
    "retrain": retrain.retrain,
}


def options() -> argparse.Namespace:
    """Return what the command line asks for."""
    parser = argparse.ArgumentParser(description="streams on Spark beside what they are measured against")
    parser.add_argument("--only", choices=list(ROWS), action="append", help="this row only; may be repeated")
    parser.add_argument("--quick", action="store_true", help="fewer records and rounds: a look, and no figure")
    return parser.parse_args()


def main() -> None:
    """Measure, print and write."""
    asked, console = options(), Console(width=140)
    results = REPOSITORY / "build" / "bench"
    results.mkdir(parents=True, exist_ok=True)
    load = os.getloadavg()[0]
    rows: list[Row] = []
    with (
        tempfile.TemporaryDirectory() as data,
        LocalKafka(Path(data) / "kafka") as kafka,
        local_spark("bench-stream", "2g") as spark,
    ):
        config = KafkaConfig({"bootstrap.servers": kafka.bootstrap_servers})
        prepare_session(spark, config)
        bench = Bench(spark=spark, config=config, folder=Path(data), quick=asked.quick)
        try:
            for name in asked.only or ROWS:
                rows += ROWS[name](bench)
        finally:  # what was seen is told, whatever came next
            console.print(table(rows))
            console.print(f"{os.cpu_count()} cores, load before {load:.1f}")
            found = {"load_before": load, "rows": [asdict(row) for row in rows]}
            (results / "stream.json").write_text(json.dumps(found, indent=2) + "\n")
    console.print(f"written to {results.relative_to(REPOSITORY)}/stream.json")


if __name__ == "__main__":
    main()
