"""A cell of the benchmark's table."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field

from consumer.ledger import Run

OURS = ("threads", "asyncio", "pinned")
"""With a function, a coroutine function, and a function on one core."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One workload at one concurrency: all runs of each contestant, and the seconds that nobody can do without.

    ``call_ms`` is what a call of the handler is to take, on average.
    """

    work: str
    keys: int
    records: int
    concurrency: int
    bound: float
    call_ms: float
    runs: dict[str, list[Run]] = field(default_factory=dict)

    @property
    def label(self) -> str:
        return f"{self.work}, {self.keys:,} key{'s' if self.keys > 1 else ''}"

    @property
    def sleeps(self) -> bool:
        """Whether what a record takes is a sleep by the mix of its coordinates."""
        return self.work.startswith("sleep 0")

    def all_seconds(self, name: str) -> list[float]:
        """Return the seconds of each run of a contestant; of one that did a part, those of all records at its rate."""
        return [run.seconds / run.records * self.records for run in self.runs[name]]

    def seconds(self, name: str) -> float:
        """Return the median seconds of a contestant."""
        return statistics.median(self.all_seconds(name))

    def spread(self, name: str) -> tuple[float, float]:
        """Return the least and most seconds of a contestant."""
        return min(self.all_seconds(name)), max(self.all_seconds(name))

    def over(self, name: str, rival: str) -> float | None:
        """Return how many times as fast as a rival a contestant is, if both took part."""
        return self.seconds(rival) / self.seconds(name) if {name, rival} <= self.runs.keys() else None

    def of_bound(self, name: str) -> float | None:
        """Return the share of the bound's speed that a contestant reaches."""
        return self.bound / self.seconds(name) if name in self.runs else None

    def of_possible(self, name: str) -> float | None:
        """Return the same with the time that its handler really took in place of that it was to take."""
        shares = [run.possible / run.seconds for run in self.runs.get(name, ()) if run.possible is not None]
        return statistics.median(shares) if shares else None

    def cpu_us(self, name: str) -> float:
        """Return the microseconds of CPU time that a contestant took for a record."""
        return statistics.median(run.cpu_us for run in self.runs[name])

    def handler_ms(self, name: str) -> float:
        """Return the milliseconds that a call of the handler took, on average."""
        return statistics.median(run.handler_ms for run in self.runs[name])
