"""What the benchmark prints, and the goals that it holds the figures against."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from itertools import zip_longest

from consumer.cell import OURS, Cell
from consumer.figures import Figures
from consumer.workload import NOTHING
from rich.table import Table

OTHERS = ("java", "pyrallel", "plain", "bare")
RIVALS = (*OURS, *OTHERS)

Goals = tuple[float | None, float | None]
"""Of threads and asyncio; pinned threads have none."""

NO_GOALS: Goals = (None, None)

TRANSACTION_MS = 10.0
"""What a transaction may take."""

WASM = {"0.1 ms": 1.75, "1 ms": 1.8}
"""What two workers are to do of what one does, where two cores are free, by what a record takes."""

NOTHING_US = 9.0
"""CPU time a record of our threads, where the handler does nothing."""


def tables(figures: Figures) -> Iterator[Table]:
    """Yield what is printed; what misses its goal is red."""
    if figures.cells:
        yield seconds(figures.cells)
        yield ratios(figures.cells)
        yield calls(figures.cells)
        yield cpu(figures.cells)
    if figures.transactions_ms:
        title = "500 records, their offset and its map"
        table = Table("transactions", "median ms", "least", "most", "goal", title=title)
        for name, taken in figures.transactions_ms.items():
            middle = statistics.median(taken)
            colour = "" if middle <= TRANSACTION_MS else "bold red"
            table.add_row(name, f"{middle:.1f}", f"{min(taken):.1f}", f"{max(taken):.1f}", "≤ 10", style=colour)
        yield table
    if figures.wasm:
        yield transforms(figures)


def seconds(cells: Sequence[Cell]) -> Table:
    """Return the medians of the seconds, and the least and the most."""
    table = Table("workload", "C", title="seconds: median, least–most; plain: all records at the rate of the first")
    names = [name for name in RIVALS if name in cells[0].runs]
    for heading in ("bound", *names):
        table.add_column(heading, justify="right")
    for cell in cells:
        spreads = [f"{cell.seconds(name):.2f}  {_range(*cell.spread(name))}" for name in names]
        table.add_row(cell.label, str(cell.concurrency), f"{cell.bound:.2f}", *spreads)
    return table


def ratios(cells: Sequence[Cell]) -> Table:
    """Return how ours compare: threads / asyncio / pinned threads in each column."""
    title = "threads / asyncio / pinned threads: times as fast, and shares of the bounds by nominal and by real calls"
    table = Table("workload", "C", title=title)
    for heading in ("Java", "pyrallel", "plain", "bare", "of bound", "of real calls"):
        table.add_column(heading, justify="right")
    for cell in cells:
        table.add_row(
            cell.label,
            str(cell.concurrency),
            *(_of_ours([cell.over(name, rival) for name in OURS], goal(cell, rival)) for rival in OTHERS),
            _of_ours([cell.of_bound(name) for name in OURS], goal(cell, "bound")),
            _of_ours([cell.of_possible(name) for name in OURS], NO_GOALS),
        )
    return table


def calls(cells: Sequence[Cell]) -> Table:
    """Return how long the calls of the handlers were, which tells whether all contestants had the same work."""
    table = Table("workload", "C", "asked for", title="a call of the handler, mean ms")
    names = [name for name in RIVALS if name in cells[0].runs]
    for name in names:
        table.add_column(name, justify="right")
    for cell in cells:
        took = [f"{cell.handler_ms(name):.2f}" for name in names]
        table.add_row(cell.label, str(cell.concurrency), f"{cell.call_ms:.2f}", *took)
    return table


def cpu(cells: Sequence[Cell]) -> Table:
    """Return the CPU time of the contestants."""
    names = [name for name in RIVALS if name in cells[0].runs]
    table = Table("workload", "C", title="CPU µs a record, of the whole process; java checks the order in its handler")
    for name in names:
        table.add_column(name, justify="right")
    for cell in cells:
        wanted = NOTHING_US if cell.work == NOTHING and cell.concurrency == 100 else None
        row = [f"{cell.cpu_us(name):.1f}" for name in names]
        if wanted is not None and "threads" in names and cell.cpu_us("threads") > wanted:
            row[names.index("threads")] = f"[bold red]{row[names.index('threads')]}[/]"
        table.add_row(cell.label, str(cell.concurrency), *row)
    return table


def transforms(figures: Figures) -> Table:
    """Return what the workers of a transform that computes do beside what one does."""
    table = Table("a record", "workers", "seconds", "ms a record", "throughput over one", "goal")
    table.title = "a transform that computes"
    for work, counts in figures.wasm.items():
        for workers, runs in counts.items():
            took = [run.seconds for run in runs]
            least = WASM[work] if workers == 2 else None
            table.add_row(
                work,
                str(workers),
                f"{statistics.median(took):.2f}  {_range(min(took), max(took))}",
                f"{statistics.median(run.handler_ms for run in runs):.3f}",
                _number(figures.over_one(work, workers), least),
                f"≥ {least}" if least else "",
            )
    return table


def goal(cell: Cell, rival: str) -> Goals:
    """Return the least ratios to a rival, or to the bound, that are wanted."""
    if rival == "java":
        return (0.8, 1.0) if cell.concurrency == 100 and cell.keys == 1_000 else (1.0, 1.0)
    if rival == "pyrallel" and cell.concurrency == 100 and cell.sleeps:
        return ({1: 1.1, 10: 2.5}.get(cell.keys, 5.0),) * 2
    if rival == "bound" and cell.concurrency <= 64 and cell.sleeps:
        return (0.85 if cell.keys <= 10 else 0.6,) * 2
    return NO_GOALS


def _of_ours(figures: Sequence[float | None], wanted: Goals) -> str:
    return " / ".join(_number(figure, least) for figure, least in zip_longest(figures, wanted))


def _number(figure: float | None, least: float | None) -> str:
    if figure is None:
        return "–"
    text = f"{figure:.3g}" if figure < 100 else f"{figure:.0f}"
    return f"[bold red]{text}[/]" if least is not None and figure < least else text


def _range(least: float, most: float) -> str:
    return f"[dim]{least:.2f}–{most:.2f}[/]"


def faults(figures: Figures) -> Iterator[tuple[str, str]]:
    """Yield each contestant that got something wrong, and what."""
    for name, where, run in figures.all_runs():
        if run.broken or run.lost or run.duplicated:
            what = f"{run.broken} out of order, {run.lost} lost, {run.duplicated} handled again"
            yield name, f"{name}, {where}: {what}"
