"""A cell of the benchmark's table."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One transform on one kind of batch: least nanoseconds per record of each contestant."""

    transform: str
    value_bytes: int
    headers: int
    rows: int
    ns: dict[str, float] = field(default_factory=dict)

    def over(self, rival: str) -> float:
        """Return how many times as long as a rival the engine takes."""
        return self.ns["wasm"] / self.ns[rival]
