"""The engine beside native code, a callback host, per-row Python and pyarrow, on the same transforms and data.

    make bench-engine

All in one run; the contestants of a cell take short turns, so that a slow moment of the machine falls on each of
them, and the figure of each is its least time: what the code costs when it gets a core. Prints ratios beside their
goals and writes build/bench/engine.json and engine.svg.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
from rich.console import Console
from rich.progress import track
from rich.table import Table

REPOSITORY = Path(__file__).parents[2]
sys.path.insert(0, str(Path(__file__).parent))

from engine.callbacks import CallbackHost  # noqa: E402
from engine.cell import Cell  # noqa: E402
from engine.native import NativeTransform  # noqa: E402
from engine.picture import draw  # noqa: E402
from engine.transforms import SUBJECTS, Subject  # noqa: E402

from wasmline.build import build, load_project  # noqa: E402
from wasmline.testing.guests import guest  # noqa: E402
from wasmline.wasm import ResourceLimits, TransformContext, TransformInstance, TransformRuntime  # noqa: E402

SIZES = (100, 1024)
HEADERS = (0, 2)
ROWS = (1_000, 10_000, 100_000)
TURNS = 12
TURN_SECONDS = 0.03
CALLBACK_ROWS = 1_000
CONTEXT = TransformContext(name="bench", input_topic="in", output_topics=("out",))

Contestant = Callable[[pa.RecordBatch], Any]


class Bench:
    """The transforms, built for WebAssembly and for this machine."""

    def __init__(self, folder: Path) -> None:
        self._runtime = TransformRuntime(folder / "compiled")
        self._wasm: dict[str, bytes] = {}
        self._native: dict[str, NativeTransform] = {}
        for subject in track(SUBJECTS, "building", transient=True):
            path = folder / f"{subject.name}.wasm"
            build(load_project(subject.sources), output=path)
            self._wasm[subject.name] = path.read_bytes()
            self._native[subject.name] = NativeTransform(subject.sources, folder)

    def instance(self, subject: Subject) -> TransformInstance:
        """Return a started guest under the default limits, the CPU limit among them."""
        return self._runtime.compile(self._wasm[subject.name]).instantiate(CONTEXT, ResourceLimits())

    def cell(self, subject: Subject, size: int, headers: int, rows: int) -> Cell:
        """Measure one cell, after a check that engine and native code give the same."""
        batch = subject.batch(rows, size, headers)
        cell = Cell(transform=subject.name, value_bytes=size, headers=headers, rows=rows)
        with self.instance(subject) as instance:
            native = self._native[subject.name]
            _same(instance.transform(batch).outputs, native(batch), subject.name)
            contestants: dict[str, Contestant] = {
                "wasm": instance.transform,
                "native": native,
                "python": subject.per_row,
            }
            if subject.columns is not None:
                contestants["pyarrow"] = subject.columns
            cell.ns.update(_race(contestants, batch))
        if rows == CALLBACK_ROWS:
            outputs, seconds = CallbackHost(self._wasm[subject.name]).run(batch, 5)
            _same(outputs, native(batch), subject.name)
            cell.ns["callbacks"] = seconds / rows * 1e9
        return cell

    def two_threads(self) -> float:
        """Return the throughput of two instances in two threads over that of one, the best of several turns."""
        subject = next(each for each in SUBJECTS if each.name == "json_distance")
        batch = subject.batch(10_000, 100, 0)
        with self.instance(subject) as one, self.instance(subject) as two:
            alone = min(_seconds(lambda: _repeat(one, batch)) for _ in range(TURNS))
            together = min(_seconds(lambda: _at_once([one, two], batch)) for _ in range(TURNS))
        return 2 * alone / together


def _race(contestants: dict[str, Contestant], batch: pa.RecordBatch) -> dict[str, float]:
    """Return the least nanoseconds per record of each, over turns that alternate."""
    best = dict.fromkeys(contestants, float("inf"))
    for _ in range(TURNS):
        for name, contestant in contestants.items():
            until = time.perf_counter() + TURN_SECONDS
            while True:
                best[name] = min(best[name], _seconds(lambda: contestant(batch)))  # noqa: B023 - called at once
                if time.perf_counter() > until:
                    break
    return {name: seconds / batch.num_rows * 1e9 for name, seconds in best.items()}


def _seconds(action: Callable[[], Any]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def _repeat(instance: TransformInstance, batch: pa.RecordBatch) -> None:
    for _ in range(10):
        instance.transform(batch)


def _at_once(instances: list[TransformInstance], batch: pa.RecordBatch) -> None:
    threads = [threading.Thread(target=_repeat, args=(instance, batch)) for instance in instances]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _same(ours: pa.RecordBatch, theirs: pa.RecordBatch, name: str) -> None:
    """Raise unless two runs wrote as many records of the same bytes; libms differ in a distance's last digit."""
    exact = ["row", "key", "headers"] if name.endswith("distance") else ["row", "key", "value", "headers"]
    for column in exact:
        if ours.column(column) != theirs.column(column):
            raise SystemExit(f"{name}: the contestants disagree in column {column}")


_SECOND_START = """
import sys, time
from pathlib import Path
from wasmline.testing.guests import guest  # noqa: E402
from wasmline.wasm import ResourceLimits, TransformContext, TransformRuntime
wasm, context = Path(sys.argv[1]).read_bytes(), TransformContext(name="b", input_topic="i", output_topics=("o",))
began = time.perf_counter()
TransformRuntime(Path(sys.argv[2])).compile(wasm).instantiate(context, ResourceLimits())
print((time.perf_counter() - began) * 1000)
"""


def second_start(folder: Path) -> dict[str, float]:
    """Return the milliseconds from a 1 MB module's bytes to its waiting guest, each time in a new process."""
    path = folder / "large.wasm"
    path.write_bytes(large_module())
    command = [sys.executable, "-c", _SECOND_START, str(path), str(folder / "large")]
    first, *later = (float(subprocess.run(command, capture_output=True, check=True).stdout) for _ in range(6))
    return {"module_bytes": path.stat().st_size, "first_ms": first, "second_ms": min(later)}


def large_module() -> bytes:
    """Return an identity transform of about a megabyte, nearly all of it code."""
    step = "(local.set $x (i32.add (i32.mul (local.get $x) (i32.const {})) (i32.const {})))"
    functions = "\n".join(
        "(func (param $x i32) (result i32)"
        + "".join(step.format(index * 31 + each, each * 977 + index) for each in range(16))
        + "(local.get $x))"
        for index in range(5_000)
    )
    return guest(section=functions)


def goals(cells: list[Cell], others: dict[str, Any]) -> Iterator[tuple[str, float, float, bool]]:
    """Yield each measure with its figure, its goal, and whether larger is better."""
    by = {(cell.transform, cell.value_bytes, cell.headers, cell.rows): cell for cell in cells}
    at_10k = {name: by[name, 100, 0, 10_000] for name in ("identity", "binary_distance", "json_distance")}
    yield "binary distance 100 B, time vs native", at_10k["binary_distance"].over("native"), 1.25, False
    yield "JSON distance 100 B, time vs native", at_10k["json_distance"].over("native"), 1.5, False
    yield "identity 100 B, time vs native", at_10k["identity"].over("native"), 1.8, False
    yield "identity 1 KB, time vs native", by["identity", 1024, 0, 10_000].over("native"), 2.0, False
    yield (
        "identity 100 B, faster than callbacks",
        1 / by["identity", 100, 0, CALLBACK_ROWS].over("callbacks"),
        100,
        True,
    )
    yield "binary distance 100 B, faster than per-row Python", 1 / at_10k["binary_distance"].over("python"), 4, True
    yield "two instances, two threads, throughput", others["two_threads"], 1.8, True
    yield "second start of a 1 MB module, ms", others["second_start"]["second_ms"], 20, False


def tables(cells: list[Cell], others: dict[str, Any]) -> Iterator[Table]:
    """Yield what is printed."""
    every = Table("transform", "bytes", "headers", "batch", title="ns per record, least of one run")
    names = ("wasm", "native", "callbacks", "python", "pyarrow")
    for name in (*names, "vs native"):
        every.add_column(name, justify="right")
    for cell in cells:
        figures = [f"{cell.ns[name]:,.0f}" if name in cell.ns else "" for name in names]
        place = (cell.transform, str(cell.value_bytes), str(cell.headers), f"{cell.rows:,}")
        every.add_row(*place, *figures, f"{cell.over('native'):.2f}×")
    yield every
    reached = Table("measure", "figure", "goal", title="goals")
    for measure, figure, goal, more in goals(cells, others):
        good = figure >= goal if more else figure <= goal
        reached.add_row(measure, f"{figure:.2f}", f"{'≥' if more else '≤'} {goal:g}", style="" if good else "bold red")
    yield reached


def main() -> None:
    """Measure, print and write."""
    console = Console(width=120)
    folder = REPOSITORY / "build" / "bench"
    folder.mkdir(parents=True, exist_ok=True)
    kinds = [(s, size, headers, rows) for s in SUBJECTS for size in SIZES for headers in HEADERS for rows in ROWS]
    with tempfile.TemporaryDirectory() as temporary:
        bench = Bench(Path(temporary))
        cells = [bench.cell(*kind) for kind in track(kinds, "measuring", transient=True)]
        others = {"two_threads": bench.two_threads(), "second_start": second_start(Path(temporary))}
    for table in tables(cells, others):
        console.print(table)
    (folder / "engine.json").write_text(json.dumps({"cells": [asdict(cell) for cell in cells], **others}, indent=2))
    draw([cell for cell in cells if cell.rows == 10_000 and not cell.headers], folder / "engine.svg")
    console.print(f"written to {folder.relative_to(REPOSITORY)}/engine.json and engine.svg")


if __name__ == "__main__":
    main()
