"""The result of consuming the same records in two ways."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """What the service saw of one way to consume: calls, per second from the first to the last, and at once at most."""

    calls: int
    rate: float
    at_once: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two ways to consume ``records`` over ``partitions``, of which each takes a call of ``delay_ms``.

    ``enriched`` records and ``dead_letters`` are the outputs of mode parallel, each input's once and a customer's in
    order.
    """

    records: int
    partitions: int
    delay_ms: float
    plain: Contender
    parallel: Contender
    enriched: int
    dead_letters: int

    @property
    def factor(self) -> float:
        """How many times as fast mode parallel was."""
        return self.parallel.rate / self.plain.rate if self.plain.rate else 0.0
