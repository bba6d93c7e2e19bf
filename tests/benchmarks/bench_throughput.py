"""Kafka → transform → Kafka by Wasmline beside Kafka Streams, a Python loop and Quix Streams, on the same broker.

    make bench-throughput                                  # about twenty minutes
    make bench-throughput ARGS="--quick"                   # about five minutes: a look, and no figure
    make bench-throughput ARGS="--only streams --only wasmline --rounds 5"

All read the same topic of deliveries, each run as a new group, apply the same transform, and write features and dead
letters; at least once and exactly once. They take turns, in an order that alternates, so that a slow moment of the
machine falls on each of them. Figures are from 10 % to 90 % of the outputs, by high watermarks, and CPU time of the
contestant's processes and of the broker in the same window. Every run's outputs are counted, and the first of each
contestant compared with the contract's own implementation: values, distances, and the order within each key. The
command fails where one is wrong. Prints a table and writes build/bench/throughput.json.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import uuid
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from unittest.mock import patch

from rich.console import Console

REPOSITORY = Path(__file__).parents[2]
sys.path[:0] = [str(REPOSITORY / folder) for folder in ("dags", "tests", "tests/benchmarks")]

from throughput.contestants import BASE, CONTESTANTS  # noqa: E402
from throughput.deliveries import Deliveries  # noqa: E402
from throughput.outputs import Outputs  # noqa: E402
from throughput.report import Cell, table  # noqa: E402
from throughput.running import DELIVERIES, Ended, Job  # noqa: E402
from throughput.window import Figures, Stalled, Window, figures  # noqa: E402

from wasmline.kafka import KafkaConfig  # noqa: E402
from wasmline.local import LocalKafka, server_properties  # noqa: E402

RECORDS, ROUNDS = 600_000, 3
QUICK_RECORDS = 150_000

KAFKAS_OWN = {"group.initial.rebalance.delay.ms": "3000"}
"""Of the local broker's settings, one as Kafka has it: a group's members start together, and not one by one."""


class Bench:
    """Runs of the contestants on one broker and one topic."""

    def __init__(self, config: KafkaConfig, deliveries: Deliveries, broker: int, folder: Path) -> None:
        self._config = config
        self._deliveries = deliveries
        self._broker = broker
        self._folder = folder

    def run(self, cell: Cell, *, compare: bool) -> str:
        """Run a cell's contestant once, and add what was seen to the cell; return it in a line."""
        outputs = Outputs.create(self._config)
        try:
            seen = self._run(cell, outputs)
            faults = list(self._faults(outputs, compare=compare))
        except (Ended, Stalled) as error:
            cell.faults.append(str(error))
            return "failed"
        finally:
            outputs.delete(self._config)
        cell.runs.append(seen)
        cell.faults.extend(faults)
        return f"{seen.records_per_s:,.0f} records/s{', wrong outputs' * bool(faults)}"

    def _run(self, cell: Cell, outputs: Outputs) -> Figures:
        records, group = self._deliveries.records, f"bench-{uuid.uuid4().hex[:8]}"
        job = Job(
            bootstrap=self._config.bootstrap_servers,
            broker=self._broker,
            group=group,
            delivery=cell.delivery,
            topic=self._deliveries.topic,
            outputs=outputs,
            folder=self._folder / group,
        )
        job.folder.mkdir()
        window = Window(self._config, outputs, self._broker)
        running = CONTESTANTS[cell.name].start(job, records)
        try:
            samples = window.follow(records, running.tree(), running.check)
            running.stop()
        finally:
            running.kill()
        return figures(samples, records)

    def _faults(self, outputs: Outputs, *, compare: bool) -> Iterator[str]:
        found, expected = outputs.counts(self._config), self._deliveries.expected
        if found != expected.counts:
            yield "{:,} features and {:,} dead letters instead of {:,} and {:,}".format(*found, *expected.counts)
        if compare:
            yield from outputs.faults(self._config, expected)


def asked() -> argparse.Namespace:
    """Return what the command line asks for."""
    parser = argparse.ArgumentParser(prog="make bench-throughput", description=__doc__, allow_abbrev=False)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "--only", choices=list(CONTESTANTS), action="append", help="this contestant only; may be repeated"
    )
    parser.add_argument("--records", type=int, help=f"records of the topic ({RECORDS:,})")
    parser.add_argument("--rounds", type=int, help=f"runs of each contestant with each delivery ({ROUNDS})")
    parser.add_argument("--quick", action="store_true", help=f"one round of {QUICK_RECORDS:,} records")
    options = parser.parse_args()
    options.records = options.records or (QUICK_RECORDS if options.quick else RECORDS)
    options.rounds = options.rounds or (1 if options.quick else ROUNDS)
    return options


def measure(options: argparse.Namespace, console: Console) -> list[Cell]:
    """Measure what is asked for; each run is told as it ends."""
    chosen = [name for name in CONTESTANTS if name in (options.only or CONTESTANTS)]
    with console.status("preparing"):
        for name in chosen:
            CONTESTANTS[name].prepare()
    cells = [
        Cell(name=name, title=CONTESTANTS[name].title, delivery=delivery) for delivery in DELIVERIES for name in chosen
    ]
    with (
        tempfile.TemporaryDirectory() as data,
        patch.dict(server_properties.SMALL, KAFKAS_OWN),
        LocalKafka(Path(data) / "kafka") as kafka,
    ):
        folder, config = Path(data), KafkaConfig({"bootstrap.servers": kafka.bootstrap_servers})
        broker = kafka.cluster.nodes[0].pid
        assert broker
        with console.status(f"producing {options.records:,} deliveries"):
            bench = Bench(config, Deliveries.produce(config, options.records), broker, folder)
        for number in range(options.rounds):
            for cell in cells if number % 2 == 0 else reversed(cells):
                told = f"round {number + 1} of {options.rounds}, {cell.title}, {cell.delivery.replace('_', ' ')}"
                with console.status(told):
                    seen = bench.run(cell, compare=number == 0)
                console.print(f"{told}: {seen}", highlight=False)
    return cells


def main() -> None:
    """Measure, print and write."""
    options = asked()
    console = Console(width=None if sys.stdout.isatty() else 180)
    folder = REPOSITORY / "build" / "bench"
    folder.mkdir(parents=True, exist_ok=True)
    load = os.getloadavg()[0]
    cells = measure(options, console)
    console.print(table(cells, BASE, options.records))
    console.print(f"{os.cpu_count()} cores, load before {load:.1f}, {options.rounds} rounds")
    found = {"load_before": load, "records": options.records, "cells": [asdict(cell) for cell in cells]}
    (folder / "throughput.json").write_text(json.dumps(found, indent=2) + "\n")
    console.print(f"written to {folder.relative_to(REPOSITORY)}/throughput.json")
    wrong = [f"{cell.title}, {cell.delivery}: {fault}" for cell in cells for fault in cell.faults]
    for what in wrong:
        console.print(what, style="bold red", markup=False)
    if wrong:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
