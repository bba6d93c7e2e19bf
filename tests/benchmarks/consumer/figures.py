"""All that a run of the benchmark measured."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass, field

from consumer.cell import Cell
from consumer.ledger import Run


@dataclass(frozen=True, slots=True)
class Figures:
    """Cells; milliseconds of transactions by how they follow each other; the transform's runs by work and workers."""

    cells: list[Cell] = field(default_factory=list)
    transactions_ms: dict[str, list[float]] = field(default_factory=dict)
    wasm: dict[str, dict[int, list[Run]]] = field(default_factory=dict)

    def over_one(self, work: str, workers: int) -> float:
        """Return the transform's throughput with so many workers over that with one, by medians."""
        one, several = (statistics.median(run.seconds for run in self.wasm[work][count]) for count in (1, workers))
        return one / several

    def all_runs(self) -> Iterator[tuple[str, str, Run]]:
        """Yield every run, its contestant and its circumstances."""
        for cell in self.cells:
            for name, runs in cell.runs.items():
                for run in runs:
                    yield name, f"{cell.label}, C = {cell.concurrency}", run
        for work, counts in self.wasm.items():
            for workers, runs in counts.items():
                for run in runs:
                    yield "threads", f"a transform of {work}, {workers} workers", run
