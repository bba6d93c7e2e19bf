"""One figure beside its goal, and the table of several."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.table import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What was measured, in ``unit``: × is ours beside the rival's.

    goal: what the figure is to be at least, or ``at_most``. detail: what it was made from.
    """

    what: str
    figure: float
    unit: str
    goal: float
    at_most: bool = False
    detail: str

    @property
    def met(self) -> bool:
        return self.figure <= self.goal if self.at_most else self.figure >= self.goal


def table(rows: Iterable[Row]) -> Table:
    """Return what is printed; what misses its goal says so."""
    made = Table("what", title="Streams on Spark, one run")
    for heading in ("figure", "goal"):
        made.add_column(heading, justify="right", no_wrap=True)
    made.add_column("from")
    for row in rows:
        figure = f"{_number(row.figure)} {row.unit}" + ("" if row.met else " (missed)")
        made.add_row(row.what, figure, f"{'≤' if row.at_most else '≥'} {_number(row.goal)} {row.unit}", row.detail)
    return made


def spread(values: Sequence[float]) -> str:
    """Return the median and the range of some values."""
    middle, least, most = (_number(each) for each in (statistics.median(values), min(values), max(values)))
    return f"{middle} ({least}–{most}, {len(values)}×)"


def share(values: Sequence[float], part: float) -> float:
    """Return the value that this part of all is at most."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))]


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
