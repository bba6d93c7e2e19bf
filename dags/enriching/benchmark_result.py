"""The result of consuming the same records in two ways."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """The service's calls by one kind of consumer: total, per second from first to last, and maximum at once."""

    calls: int
    rate: float
    at_once: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two ways to consume ``records`` over ``partitions``, each with a call of ``delay_ms``.

    ``enriched`` records and ``dead_letters`` are the outputs of mode parallel: one for each input, in order for each
    customer.
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
        """The speed-up of mode parallel."""
        return self.parallel.rate / self.plain.rate if self.plain.rate else 0.0
