"""What a worker takes for partitions and keys: memory, threads, file descriptors and CPU time.

    make bench-scale                                       # about ten minutes
    make bench-scale ARGS="--partitions 200 --keys 100000"

One worker reads a topic of few partitions and few keys, one of few partitions and many keys, and one of many partitions
and many keys: as a transform at least once and exactly once, and as a function that copies, with 100 threads. Its
outputs are counted. Peaks are those of the process (VmHWM); CPU time a record is from 10 % to 90 % of the outputs, and
at rest that of 10 seconds after the last one. Prints a table and writes build/bench/scale.json.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import cycle, islice
from pathlib import Path

import psutil  # type: ignore[import-untyped]
from rich.console import Console
from rich.table import Table

REPOSITORY = Path(__file__).parents[2]
sys.path[:0] = [str(REPOSITORY / folder) for folder in ("dags", "tests", "tests/benchmarks")]

from throughput.contestants import transform_options, worker_command  # noqa: E402
from throughput.outputs import Outputs  # noqa: E402
from throughput.running import Delivery, Job, Running  # noqa: E402
from throughput.window import Window, figures  # noqa: E402

from delivery.generator import generate  # noqa: E402
from wasmline.kafka import KafkaConfig, Topics, produce_all  # noqa: E402
from wasmline.local import LocalKafka  # noqa: E402

FEW_PARTITIONS, FEW_KEYS = 4, 1_000
VALUES = 45_600
REST_S = 10.0
THREADS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A topic of so many partitions, and records with so many keys."""

    partitions: int
    keys: int
    records: int

    def produce(self, config: KafkaConfig) -> str:
        """Create the topic, fill it, and return its name."""
        topic = f"scale-{uuid.uuid4().hex[:8]}"
        Topics(config).create(topic, self.partitions)
        values = islice(cycle([each.value for each in generate(VALUES)]), self.records)
        rows = ((b"%d" % (number % self.keys), value, None, None) for number, value in enumerate(values))
        produce_all(config, topic, rows)
        return topic


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """What a worker took: bytes at most, threads and descriptors at the end, and cores with nothing to do."""

    way: str
    load: Load
    started_s: float
    records_per_s: float
    cpu_us: float
    peak_bytes: int
    threads: int
    descriptors: int
    cores_at_rest: float


def function_options(_: Outputs) -> list[str]:
    """Return the options of a worker that runs a function."""
    return ["--handler=scale_handler:copy", f"--max-concurrency={THREADS}"]


WAYS: dict[str, tuple[Delivery, Callable[[Outputs], list[str]]]] = {
    "transform, at least once": ("at_least_once", transform_options),
    "transform, exactly once": ("exactly_once", transform_options),
    f"function, {THREADS} threads": ("at_least_once", function_options),
}
"""The delivery and the options of each way to run a worker."""


def measure(config: KafkaConfig, broker: int, way: str, load: Load, topic: str, folder: Path) -> Use:
    """Run a worker over a topic once."""
    delivery, options = WAYS[way]
    outputs, began = Outputs.create(config), time.monotonic()
    job = Job(
        bootstrap=config.bootstrap_servers,
        broker=broker,
        group=f"scale-{uuid.uuid4().hex[:8]}",
        delivery=delivery,
        topic=topic,
        outputs=outputs,
        folder=folder,
    )
    running = Running(worker_command(job, options(outputs)), folder, more={"SCALE_OUTPUT": outputs.features})
    try:
        samples = Window(config, outputs, broker).follow(load.records, running.tree(), running.check)
        [process] = [psutil.Process(pid) for pid in running.pids]
        seen, before = figures(samples, load.records), sum(process.cpu_times()[:2])
        time.sleep(REST_S)
        use = Use(
            way=way,
            load=load,
            started_s=next(each.at for each in samples if each.written) - began,
            records_per_s=seen.records_per_s,
            cpu_us=seen.cpu_us,
            peak_bytes=peak_bytes(process.pid),
            threads=process.num_threads(),
            descriptors=process.num_fds(),
            cores_at_rest=(sum(process.cpu_times()[:2]) - before) / REST_S,
        )
        running.stop()
    finally:
        running.kill()
    if (written := sum(outputs.counts(config))) != load.records:
        raise SystemExit(f"{way}: {written:,} outputs of {load.records:,} records")
    outputs.delete(config)
    return use


def peak_bytes(pid: int) -> int:
    """Return the most memory that a process ever had."""
    [peak] = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM:")]
    return int(peak.split()[1]) << 10


def table(found: list[Use]) -> Table:
    report = Table("worker", title="one worker process")
    for heading in ("partitions", "keys", "first output", "records/s", "CPU µs a record", "peak", "threads", "files"):
        report.add_column(heading, justify="right")
    report.add_column("cores at rest", justify="right")
    for use in found:
        report.add_row(
            use.way,
            f"{use.load.partitions:,}",
            f"{use.load.keys:,}",
            f"{use.started_s:.1f} s",
            f"{use.records_per_s / 1_000:,.0f}k",
            f"{use.cpu_us:.1f}",
            f"{use.peak_bytes / 2**20:,.0f} MiB",
            f"{use.threads:,}",
            f"{use.descriptors:,}",
            f"{use.cores_at_rest:.3f}",
        )
    return report


def run(options: argparse.Namespace, console: Console) -> Iterator[Use]:
    """Measure every way with every load; each is told as it ends."""
    loads = [
        Load(partitions=FEW_PARTITIONS, keys=FEW_KEYS, records=options.records),
        Load(partitions=FEW_PARTITIONS, keys=options.keys, records=options.records),
        Load(partitions=options.partitions, keys=options.keys, records=options.records),
    ]
    with tempfile.TemporaryDirectory() as data, LocalKafka(Path(data) / "kafka") as kafka:
        config, broker = KafkaConfig({"bootstrap.servers": kafka.bootstrap_servers}), kafka.cluster.nodes[0].pid
        assert broker
        for load in loads:
            with console.status(f"producing for {load}"):
                topic = load.produce(config)
            for way in WAYS:
                with console.status(f"{way}, {load}"):
                    yield measure(config, broker, way, load, topic, Path(data))
                console.print(f"{way}: {load} done", highlight=False)
            Topics(config).delete([topic])


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(prog="make bench-scale", description=__doc__, allow_abbrev=False)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--partitions", type=int, default=1_000, help="partitions of the largest topic (1,000)")
    parser.add_argument("--keys", type=int, default=1_000_000, help="different keys (1,000,000)")
    parser.add_argument("--records", type=int, default=2_000_000, help="records of each topic (2,000,000)")
    console = Console(width=None if sys.stdout.isatty() else 180)
    found = list(run(parser.parse_args(), console))
    console.print(table(found))
    folder = REPOSITORY / "build" / "bench"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "scale.json").write_text(json.dumps([asdict(use) for use in found], indent=2) + "\n")
    console.print(f"written to {folder.relative_to(REPOSITORY)}/scale.json")


if __name__ == "__main__":
    main()
