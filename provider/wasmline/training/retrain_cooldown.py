"""Spaces the events of a condition that stays met, because a training changed nothing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from wasmline.training.retrain_reasons import RetrainReason

MAX_COOLDOWN_MS = 86_400_000
"""The longest wait, unless the first one is longer: a day."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wait:
    subject: str | int | None
    since_ms: int
    length_ms: int

    def is_over(self, now_ms: int) -> bool:
        return not 0 <= now_ms - self.since_ms < self.length_ms


class RetrainCooldown:
    """Waits after each event of a condition, twice as long each time as long as its subject is the same.

    The subject is what a training may change: the number of slices for new records, the champion for other conditions.
    """

    def __init__(self, seconds: float) -> None:
        self._first_ms = int(seconds * 1000)
        self._waits: dict[str, _Wait] = {}

    def due(
        self, reasons: Iterable[RetrainReason], *, slices: int, champion: str | None, now_ms: int
    ) -> tuple[RetrainReason, ...]:
        """Return the reasons that do not wait, and let them wait from now on."""
        found = []
        for each in reasons:
            subject = slices if each.condition == "new records" else champion
            last = self._waits.get(each.condition)
            again = last if last and last.subject == subject else None
            if again is None or again.is_over(now_ms):
                found.append(each)
                length_ms = self._longer(again) if again else self._first_ms
                self._waits[each.condition] = _Wait(subject=subject, since_ms=now_ms, length_ms=length_ms)
        return tuple(found)

    def _longer(self, wait: _Wait) -> int:
        return min(2 * wait.length_ms, max(self._first_ms, MAX_COOLDOWN_MS))
