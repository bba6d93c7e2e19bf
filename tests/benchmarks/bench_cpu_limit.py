"""How exactly a guest that loops for ever is stopped at its CPU limit, alone and beside busy processes.

    make bench-limit

The figure is the CPU time that the guest's thread used for the record, over the limit: what the process used less what
its other threads did. Beside it the wall time, a limit on which would stop a guest that only waits for its turn, and
what the watchdog took of one core. Prints a table and writes build/bench/cpu_limit.json.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
from rich.console import Console
from rich.progress import track
from rich.table import Table

from wasmline.errors import GuestTimeout
from wasmline.record_batches import RECORD_SCHEMA
from wasmline.testing import guests
from wasmline.wasm import CompiledTransform, ResourceLimits, TransformContext, TransformRuntime

REPOSITORY = Path(__file__).parents[2]
GOAL = 0.03
RUNS = {100: 10, 300: 5, 1000: 3, 3000: 3}
"""Runs of each limit in milliseconds."""

RECORD = pa.RecordBatch.from_pylist(
    [{"key": None, "value": b"", "headers": [], "timestamp": 0, "partition": 0, "offset": 0}], schema=RECORD_SCHEMA
)


@contextmanager
def busy(processes: int) -> Iterator[None]:
    """Keep this many processes computing."""
    running = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def others() -> float:
    """Return the CPU time that the threads of this process used that are not a guest's."""
    clocks = [time.pthread_getcpuclockid(thread.ident) for thread in threading.enumerate() if thread.ident is not None]
    return sum(map(time.clock_gettime, clocks))


def stop(transform: CompiledTransform, limit_ms: int) -> tuple[float, float, float]:
    """Let a guest loop until it is stopped; return its CPU time and the wall time, as multiples of the limit.

    The third figure is the other threads' CPU time over the wall time.
    """
    context = TransformContext(name="loop", input_topic="in", output_topics=("out",))
    transform.instantiate(context).close()  # the watchdog is up from here on
    instance = transform.instantiate(context, ResourceLimits(cpu_ms_per_record=limit_ms))
    cpu, aside, wall = time.process_time(), others(), time.perf_counter()
    with instance:
        (failure,) = instance.transform(RECORD).failures
        wall = time.perf_counter() - wall
        cpu, aside = time.process_time() - cpu, others() - aside
    if not isinstance(failure.error, GuestTimeout):
        raise failure.error
    return 1000 * (cpu - aside) / limit_ms, 1000 * wall / limit_ms, aside / wall


def measure(transform: CompiledTransform, beside: int) -> list[dict[str, float]]:
    """Return a row of figures per limit."""
    rows = []
    with busy(beside):
        for limit in track(RUNS, description=f"beside {beside} busy processes", console=Console(stderr=True)):
            runs = [stop(transform, limit) for _ in range(RUNS[limit])]
            cpu, wall, aside = zip(*runs, strict=True)
            rows.append(
                {
                    "limit_ms": limit,
                    "busy_processes": beside,
                    "cpu_least": min(cpu),
                    "cpu_median": statistics.median(cpu),
                    "cpu_most": max(cpu),
                    "wall_median": statistics.median(wall),
                    "watchdog_median": statistics.median(aside),
                }
            )
    return rows


def main() -> None:
    """Measure, print and keep the figures."""
    with tempfile.TemporaryDirectory() as folder:
        transform = TransformRuntime(Path(folder)).compile(guests.guest(guests.SPIN))
        rows = [row for beside in (0, 3 * (os.cpu_count() or 1)) for row in measure(transform, beside)]
    table = Table(title="CPU time at which a guest that loops was stopped, over its limit")
    for column in ("limit", "beside", "least", "median", "most", f"within {GOAL:.0%}", "wall time", "watchdog"):
        table.add_column(column, justify="right")
    for row in rows:
        least, median, most = (row[name] - 1 for name in ("cpu_least", "cpu_median", "cpu_most"))
        table.add_row(
            f"{row['limit_ms']} ms",
            f"{row['busy_processes']}",
            *(f"{share:+.1%}" for share in (least, median, most)),
            "yes" if least >= 0 and median <= GOAL else "no",
            f"{row['wall_median']:.1f}×",
            f"{row['watchdog_median']:.2%}",
        )
    Console().print(table)
    folder_of_figures = REPOSITORY / "build" / "bench"
    folder_of_figures.mkdir(parents=True, exist_ok=True)
    (folder_of_figures / "cpu_limit.json").write_text(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()
