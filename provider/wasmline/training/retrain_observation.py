"""Observations of a model's retrain conditions, and the status that is made of them; pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from math import isfinite

from wasmline.control.retrain_status import RetrainCheck, RetrainStatus
from wasmline.moments import moment
from wasmline.printable import bounded_line
from wasmline.retrain_conditions import RetrainConditions
from wasmline.training.retrain_reasons import MIN_ROWS, ChampionFacts, ConditionCheck, RetrainReason

NO_CHAMPION = RetrainCheck(
    condition="champion",
    text="no champion is known, and without one only new_records starts a training",
    is_met=None,
)
"""The check of a model without a champion whose set conditions all need one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrainObservation:
    """The number of records that no slice has, and what is known of the champion; None without one."""

    new_records: int
    champion: ChampionFacts | None
    observed_ms: int

    def status(self, conditions: RetrainConditions, checks: tuple[RetrainCheck, ...]) -> RetrainStatus:
        """Return the status of the ``conditions`` with these ``checks``; a live error of few rows is none."""
        champion = self.champion
        live = champion.live if champion else None
        is_measured = live is not None and live.rows >= MIN_ROWS
        return RetrainStatus(
            model=conditions.model,
            topic=conditions.topic,
            champion=champion.version if champion else None,
            new_records=self.new_records,
            checks=checks,
            expected_rmse=_number(champion.expected_rmse) if champion else None,
            live_rmse=_number(live.rmse) if live and is_measured else None,
            age_s=_number(champion.age_s) if champion else None,
            observed_ms=self.observed_ms,
        )


def shown_checks(checks: Collection[ConditionCheck], *, due: Collection[RetrainReason]) -> tuple[RetrainCheck, ...]:
    """Return checks as texts: a condition that is met and not ``due`` waits. Without any, the champion is missing."""
    found = [
        RetrainCheck(
            condition=each.reason.condition,
            text=bounded_line(f"{each.reason.text}{', and waits' if each.is_met and each.reason not in due else ''}"),
            is_met=each.is_met,
        )
        for each in checks
    ]
    return tuple(found) or (NO_CHAMPION,)


def cooldown_check(until_ms: int) -> RetrainCheck:
    """Return the check of a model that was trained, or gave an event, a moment ago."""
    return RetrainCheck(condition="cooldown", text=f"waits for the cooldown until {moment(until_ms)}", is_met=False)


def _number(value: float) -> float | None:
    """Return a figure as a status has it: rounded, None for one that JSON has no number for."""
    return round(value, 4) if isfinite(value) else None
