"""The key-parallel consumer beside the Java library, pyrallel-consumer, one plain consumer, and threads without any.

    make bench-consumer                                  # about 40 minutes
    make bench-consumer ARGS="--quick"                   # a look, and no figure
    make bench-consumer ARGS="--only nothing"            # what a record costs by itself: about a minute
    make bench-consumer ARGS="--only sleep --keys 1000 --concurrency 100 --rivals threads,java"

All in one run: each contestant has a process of its own and reads the same topic as a new group, they take turns, and
the figures are ratios of medians. Seconds and CPU time are from the first call of a handler to the end of the last. The
benchmark itself counts records that were lost, handled twice, or handled out of their key's order, and fails where one
was by us. Prints tables beside their goals and writes build/bench/consumer.json and consumer.svg.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track

REPOSITORY = Path(__file__).parents[2]
sys.path[:0] = [str(Path(__file__).parent), str(REPOSITORY / "tests")]

from consumer import transactions, wasm, workload  # noqa: E402
from consumer.cell import OURS, Cell  # noqa: E402
from consumer.environment import NoPython, interpreter  # noqa: E402
from consumer.figures import Figures  # noqa: E402
from consumer.picture import draw  # noqa: E402
from consumer.report import RIVALS, faults, tables  # noqa: E402
from consumer.rivals import JavaRival, PythonRival, Rival  # noqa: E402
from consumer.server import serving  # noqa: E402
from consumer.workload import Topic, Work  # noqa: E402

from wasmline.kafka import KafkaConfig  # noqa: E402
from wasmline.local import LocalKafka  # noqa: E402

PARTS = ("nothing", "sleep", "fixed", "http", "transactions", "wasm")
KEYS = (1, 10, 100, 1_000)
CONCURRENCY = (16, 100)
CALL_US = 5_000
"""What the HTTP server waits before it answers."""

CALL_KEYS = 100
"""How many keys the records have that take an HTTP call, where these keys are asked for."""

PLAIN_RECORDS = 400
"""What the plain consumer does of a topic, once a cell: it takes the same time for each record."""

SERIAL_SHARE = 0.3
"""The share of the records that a topic of one key has: half a minute per run would tell no more."""

SHORT = 1.0
"""Seconds by the bound below which a workload has ROUNDS_OF_SHORT rounds: it may fall into one slow moment."""

ROUNDS = 2
ROUNDS_OF_WASM = 3
ROUNDS_OF_SHORT = 3
INTERVALS = {"one each 100 ms": 0.1, "one after the other": 0.0}
"""Seconds from a transaction to the next; a consumer's are 100 ms apart."""


class Bench:
    """The contestants and the topics, on one broker."""

    def __init__(self, options: argparse.Namespace, config: KafkaConfig, folder: Path, console: Console) -> None:
        self._options = options
        self._config = config
        self._topics: dict[tuple[int, int], Topic] = {}
        self._rivals: dict[str, Rival] = {}
        for name in options.rivals:
            try:
                self._rivals[name] = self._rival(name, folder)
            except NoPython as reason:
                console.print(str(reason))
        self._warm_up(workload.none())  # many records: a JVM compiles what has run often

    def cells(self, work: Work, several: Sequence[int]) -> list[Cell]:
        """Measure a work with each of so many keys, at each concurrency."""
        self._warm_up(work)
        kinds = [(keys, concurrency) for keys in several for concurrency in self._options.concurrency]
        return [self._cell(work, *kind) for kind in track(kinds, f"measuring, {work.name}", transient=True)]

    def _warm_up(self, work: Work) -> None:
        for rival in track(list(self._rivals.values()), f"warming up, {work.name}", transient=True):
            rival.run(self._topic(self._options.keys[-1], work), work, self._options.concurrency[-1])

    def close(self) -> None:
        """End all contestants."""
        for rival in self._rivals.values():
            rival.close()

    def _cell(self, work: Work, keys: int, concurrency: int) -> Cell:
        topic = self._topic(keys, work)
        bound = topic.bound(work, concurrency)
        cell = Cell(
            work=work.name,
            keys=keys,
            records=topic.records,
            concurrency=concurrency,
            bound=bound,
            call_ms=topic.total(work) / topic.records * 1_000,
        )
        short = bound < SHORT and not self._options.quick
        for number in range(self._options.rounds or (ROUNDS_OF_SHORT if short else ROUNDS)):
            for name, rival in self._rivals.items():
                if name != "plain" or number == 0:
                    cell.runs.setdefault(name, []).append(rival.run(topic, work, concurrency))
        return cell

    def _rival(self, name: str, folder: Path) -> Rival:
        if name == "java":
            return JavaRival(self._config.bootstrap_servers, folder / "java.log")
        if name == "pyrallel":
            return PythonRival(name, interpreter())
        return PythonRival(name, Path(sys.executable), PLAIN_RECORDS if name == "plain" else None)

    def _topic(self, keys: int, work: Work) -> Topic:
        records = self._options.records * work.times
        if keys == 1:
            records = round(records * SERIAL_SHARE)
        if (keys, records) not in self._topics:
            self._topics[keys, records] = Topic(self._config, keys, records)
        return self._topics[keys, records]


def asked() -> argparse.Namespace:
    """Return what the command line asks for."""
    parser = argparse.ArgumentParser(prog="make bench-consumer", description=__doc__, allow_abbrev=False)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--quick", action="store_true", help="fewer records and cells, two rounds")
    choices: dict[str, tuple[Any, ...]] = {"only": PARTS, "rivals": RIVALS, "keys": KEYS, "concurrency": CONCURRENCY}
    for name, known in choices.items():
        text = f"some of {','.join(map(str, known))}"
        parser.add_argument(f"--{name}", type=_several(type(known[0])), default=known, help=text)
    parser.add_argument("--records", type=int, help="records of a topic (10,000)")
    parser.add_argument("--rounds", type=int, help="runs of each contestant in each cell (2; 3 of the short ones)")
    options = parser.parse_args()
    if options.quick and options.keys == KEYS:
        options.keys = (10, 1_000)
    options.records = options.records or (3_000 if options.quick else 10_000)
    return options


def _several(kind: Callable[[str], Any]) -> Callable[[str], tuple[Any, ...]]:
    return lambda text: tuple(kind(each) for each in text.split(","))


def measure(options: argparse.Namespace, console: Console) -> Figures:
    """Measure what is asked for."""
    figures = Figures()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        kafka = stack.enter_context(LocalKafka(folder / "kafka"))
        config = KafkaConfig({"bootstrap.servers": kafka.bootstrap_servers})
        url = stack.enter_context(serving(folder, CALL_US))
        if "transactions" in options.only:
            for name, interval in track(INTERVALS.items(), "transactions", transient=True):
                figures.transactions_ms[name] = transactions.milliseconds(config, interval)
        if "wasm" in options.only:
            busy = wasm.Busy(Topic(config, KEYS[-1], options.records), folder)
            turns = [*product(range(options.rounds or ROUNDS_OF_WASM), wasm.ROUNDS, (1, 2))]
            for _, amount, workers in track(turns, "measuring, Wasm", transient=True):
                figures.wasm.setdefault(amount, {}).setdefault(workers, []).append(busy.run(amount, workers))
        works = {
            "nothing": (workload.none(), options.keys[-1:]),
            "sleep": (workload.sleep(5_000), options.keys),
            "fixed": (workload.fixed(1_000), options.keys[-1:]),
            "http": (
                workload.http(url, CALL_US),
                [keys for keys in options.keys if keys == CALL_KEYS] or options.keys[-1:],
            ),
        }
        works = {name: each for name, each in works.items() if name in options.only}
        if not works:
            return figures
        bench = Bench(options, config, folder, console)
        stack.callback(bench.close)
        for work, keys in works.values():
            figures.cells.extend(bench.cells(work, keys))
    return figures


def main() -> None:
    """Measure, print and write."""
    options = asked()
    console = Console(width=None if sys.stdout.isatty() else 150)
    folder = REPOSITORY / "build" / "bench"
    folder.mkdir(parents=True, exist_ok=True)
    load = os.getloadavg()[0]
    figures = measure(options, console)
    for table in tables(figures):
        console.print(table)
    console.print(f"{os.cpu_count()} cores, load before {load:.1f}; the HTTP server waits {CALL_US / 1_000:g} ms")
    (folder / "consumer.json").write_text(json.dumps({"load_before": load, **asdict(figures)}, indent=2) + "\n")
    console.print(f"written to {folder.relative_to(REPOSITORY)}/consumer.json")
    if any(cell.bound and "java" in cell.runs for cell in figures.cells):
        draw(figures.cells, folder / "consumer.svg")
        console.print(f"drawn in {folder.relative_to(REPOSITORY)}/consumer.svg")
    wrong = list(faults(figures))
    for _, what in wrong:
        console.print(what, style="bold red")
    if any(name in OURS for name, _ in wrong):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
