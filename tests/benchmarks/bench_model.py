"""A compiled model beside XGBoost and beside tl2cgen's generated code, on the same records.

    make bench-model

All in one run and on one thread: the contestants take turns, a ratio is the median over the turns of two contestants'
CPU times in the same turn, and all predictions are the same to the bit. Prints the ratios beside their goals and writes
build/bench/model.json.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from rich.console import Console
from rich.progress import track
from rich.table import Table

REPOSITORY = Path(__file__).parents[2]
sys.path[:0] = [str(Path(__file__).parent), str(REPOSITORY / "dags")]

from model.cases import Case, delivery_case, wide_case  # noqa: E402
from model.scorers import matrix_predictions, scorer  # noqa: E402
from model.xgboost_rivals import XGBoost  # noqa: E402

ROWS = 20_000
SINGLE_ROWS = 300
TURNS = 15

BATCH, IN_PLACE, FROM_JSON = "XGBoost, batch", "XGBoost, batch in place", "XGBoost, batch from JSON"
SINGLE, SINGLE_MATRIX = "XGBoost, one row in place", "XGBoost, one row as a matrix"
TREES, RECORD = "trees as data, alone", "trees as data, from JSON"
CODE_TREES, CODE_RECORD = "tl2cgen's code, alone", "tl2cgen's code, from JSON"

Predictions = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Contestant:
    """``run`` predicts the first ``rows`` records, from what ``prepare`` returns, which is not timed."""

    run: Callable[..., Any]
    rows: int
    predictions: Callable[[Any], Predictions] = np.asarray
    prepare: Callable[[], tuple[Any, ...]] = tuple


@dataclass(slots=True)
class Times:
    """Nanoseconds per record, by turn."""

    cpu: list[float] = field(default_factory=list)
    wall: list[float] = field(default_factory=list)


def contestants(case: Case) -> dict[str, Contestant]:
    """Return what predicts the case's records, by name."""
    rival, rows = XGBoost(case, SINGLE_ROWS), len(case.records)
    found = {
        BATCH: Contestant(run=rival.batch, rows=rows, prepare=lambda: (rival.new_matrix(),)),
        IN_PLACE: Contestant(run=rival.in_place, rows=rows),
        FROM_JSON: Contestant(run=rival.from_json, rows=rows),
        SINGLE: Contestant(run=rival.each_in_place, rows=SINGLE_ROWS),
        SINGLE_MATRIX: Contestant(run=rival.each_matrix, rows=SINGLE_ROWS),
    }
    for name, is_generated, is_matrix in (
        (TREES, False, True),
        (RECORD, False, False),
        (CODE_TREES, True, True),
        (CODE_RECORD, True, False),
    ):
        found[name] = Contestant(
            run=scorer(case, is_generated=is_generated, is_matrix=is_matrix),
            rows=rows,
            predictions=matrix_predictions if is_matrix else _record_predictions,
        )
    return found


def _record_predictions(outputs: pa.RecordBatch) -> Predictions:
    values = outputs.column("value").to_pylist()
    return np.array([msgspec.json.decode(value)["prediction"] for value in values], np.float64).astype(np.float32)


def race(those: dict[str, Contestant]) -> dict[str, Times]:
    """Return the times of each, after a check that all predict the same to the bit."""
    expected = those[BATCH].run(*those[BATCH].prepare())
    for name, one in those.items():
        found = one.predictions(one.run(*one.prepare()))
        if found.view(np.uint32).tolist() != expected[: one.rows].view(np.uint32).tolist():
            raise SystemExit(f"{name} predicts something else than {BATCH}")
    times = {name: Times() for name in those}
    for _ in track(range(TURNS), "measuring", transient=True):
        for name, one in those.items():
            prepared = one.prepare()
            wall, cpu = time.perf_counter(), time.process_time()
            one.run(*prepared)
            times[name].cpu.append((time.process_time() - cpu) / one.rows * 1e9)
            times[name].wall.append((time.perf_counter() - wall) / one.rows * 1e9)
    return times


def ratio(times: dict[str, Times], name: str, rival: str) -> float:
    """Return how many times as much CPU time as a rival one takes."""
    return statistics.median(mine / its for mine, its in zip(times[name].cpu, times[rival].cpu, strict=True))


def goals(times: dict[str, Times]) -> Iterator[tuple[str, float, float, bool]]:
    """Yield each measure with its figure, its goal, and whether larger is better."""
    batch = max((BATCH, IN_PLACE), key=lambda name: ratio(times, TREES, name))
    single = max((SINGLE, SINGLE_MATRIX), key=lambda name: ratio(times, RECORD, name))
    yield f"trees alone over {batch}", ratio(times, TREES, batch), 1.0, False
    yield f"record from JSON over {batch}", ratio(times, RECORD, batch), 1.6, False
    yield f"faster from JSON than {single}", 1 / ratio(times, RECORD, single), 50, True
    yield "trees as data over tl2cgen's code, alone", ratio(times, TREES, CODE_TREES), 1.0, False
    yield "the same from JSON", ratio(times, RECORD, CODE_RECORD), 1.0, False
    yield f"record from JSON over {FROM_JSON}", ratio(times, RECORD, FROM_JSON), 1.0, False


def tables(case: Case, times: dict[str, Times]) -> Iterator[Table]:
    """Yield what is printed of a case."""
    size = sum(map(len, case.records)) / len(case.records)
    every = Table(title=f"{case.name}: {len(case.layout.columns)} columns, {size:.0f} bytes a record")
    for heading in ("contestant", "CPU µs a record", "records/s", f"over {BATCH}"):
        every.add_column(heading, justify="left" if heading == "contestant" else "right")
    for name, its in times.items():
        cpu = f"{min(its.cpu) / 1e3:.2f}"
        every.add_row(name, cpu, f"{1e9 / min(its.wall):,.0f}", f"{ratio(times, name, BATCH):.2f}×")
    yield every
    reached = Table("measure", "figure", "goal", title="goals")
    for measure, figure, goal, more in goals(times):
        good = figure >= goal if more else figure <= goal
        reached.add_row(measure, f"{figure:.2f}", f"{'≥' if more else '≤'} {goal:g}", style="" if good else "bold red")
    yield reached


def main() -> None:
    """Measure, print and write."""
    console = Console(width=120)
    folder = REPOSITORY / "build" / "bench"
    folder.mkdir(parents=True, exist_ok=True)
    written: dict[str, Any] = {}
    for case in (delivery_case(ROWS), wide_case(ROWS)):
        times = race(contestants(case))
        for table in tables(case, times):
            console.print(table)
        cpu = {name: min(its.cpu) for name, its in times.items()}
        written[case.name] = {
            "cpu_ns": cpu,
            "wall_ns": {name: min(its.wall) for name, its in times.items()},
            "ratios": {measure: figure for measure, figure, _, _ in goals(times)},
        }
    (folder / "model.json").write_text(json.dumps(written, indent=2))
    console.print(f"written to {folder.relative_to(REPOSITORY)}/model.json")


if __name__ == "__main__":
    main()
