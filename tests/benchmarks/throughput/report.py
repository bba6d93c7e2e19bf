"""What the benchmark prints."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from rich.table import Table
from throughput.running import Delivery
from throughput.window import FIRST, LAST, SHORT_S, Figures

Value = Callable[[Figures], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """All runs of one contestant with one delivery, and what was wrong with its outputs."""

    name: str
    title: str
    delivery: Delivery
    runs: list[Figures] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    @property
    def short(self) -> bool:
        """Whether a run was too fast for so few records."""
        return any(run.seconds < SHORT_S for run in self.runs)

    def median(self, value: Value) -> float:
        """Return the median of a figure."""
        return statistics.median(map(value, self.runs))


def table(cells: Sequence[Cell], base: str, records: int) -> Table:
    """Return medians, ranges in brackets, and ratios over the contestant ``base`` with the same delivery.

    Rows with a window that is too short are marked.
    """
    title = (
        f"{records:,} deliveries, from {FIRST:.0%} to {LAST:.0%} of the outputs: median (range), × over Kafka Streams"
    )
    short = any(cell.short for cell in cells)
    caption = f"~ seen for less than {SHORT_S:g} s: no figure, take more --records" if short else None
    report = Table("contestant", "delivery", title=title, caption=caption)
    for heading in ("records/s", "×", "CPU µs a record", "×", "broker µs", "×", "other cores"):
        report.add_column(heading, justify="right")
    bases = {cell.delivery: cell for cell in cells if cell.name == base and cell.runs}
    for cell in cells:
        if cell.runs:
            report.add_row(
                cell.title + " ~" * cell.short,
                cell.delivery.replace("_", " "),
                *_columns(cell, bases.get(cell.delivery)),
            )
    return report


def _columns(cell: Cell, base: Cell | None) -> Iterator[str]:
    shown: list[tuple[Value, str]] = [
        (lambda run: run.records_per_s / 1_000, "{:,.0f}k"),
        (lambda run: run.cpu_us, "{:.1f}"),
        (lambda run: run.broker_us, "{:.1f}"),
    ]
    for value, form in shown:
        yield _spread(cell, value, form)
        yield f"{cell.median(value) / base.median(value):.2f}" if base else "–"
    yield _spread(cell, lambda run: run.others, "{:.2f}")


def _spread(cell: Cell, value: Value, form: str) -> str:
    values = [value(run) for run in cell.runs]
    if len(values) == 1:
        return form.format(values[0])
    return f"{form.format(cell.median(value))} ({form.format(min(values))}–{form.format(max(values))})"
