"""Decides whether a model is trained again, and why: new records, drift, live error or age."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from wasmline.retrain_conditions import RetrainConditions
from wasmline.training.live_error import LiveError

MIN_ROWS = 500
"""Fewer rows are no evidence: the PSI of two samples of one distribution is about 0.05 with as many in each."""

Condition = Literal["new records", "drift", "live error", "age"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureDrift:
    """The PSI of each feature in ``rows`` new rows, beside ``reference_rows`` of the champion."""

    psi: Mapping[str, float]
    rows: int
    reference_rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChampionFacts:
    """What is known of a live model: the RMSE that its training expected, its features' drift and its live error.

    ``age_s`` are the seconds since it, or another model of its name, was trained last. None: not measured.
    """

    version: str
    expected_rmse: float
    age_s: float
    drift: FeatureDrift | None = None
    live: LiveError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrainReason:
    """A condition in one sentence, with its figures."""

    condition: Condition
    text: str
    figures: dict[str, float | int | str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionCheck:
    """Whether a condition is met, and by what; None if there is too little to measure."""

    is_met: bool | None
    reason: RetrainReason


def check_conditions(
    conditions: RetrainConditions, new: int, champion: ChampionFacts | None
) -> tuple[ConditionCheck, ...]:
    """Return each condition that is set, as ``new`` records and the live model meet it; pure.

    Without enough new records to train on, and without a live model, that is the first only.
    """
    least = max(conditions.min_new_records, 1)
    if new < least:
        return (_check("new records", False, f"{new:,} new records, fewer than {least:,}", records=new),)
    found = [] if champion is None else list(_checks_of(conditions, champion))
    if conditions.new_records is not None:
        is_met = new >= conditions.new_records
        text = f"{new:,} new records, {'at least' if is_met else 'fewer than'} {conditions.new_records:,}"
        found.insert(0, _check("new records", is_met, text, records=new))
    return tuple(found)


def _checks_of(conditions: RetrainConditions, champion: ChampionFacts) -> Iterator[ConditionCheck]:
    if conditions.max_psi is not None:
        yield _drift_check(champion.drift, conditions.max_psi)
    if conditions.max_error_growth is not None:
        yield _live_check(champion, conditions.max_error_growth)
    if conditions.max_age_hours is not None:
        hours = champion.age_s / 3600
        is_met = hours > conditions.max_age_hours
        text = f"the last training was {hours:,.1f} hours ago, {_side(is_met)} {conditions.max_age_hours:g}"
        yield _check("age", is_met, text, age_s=round(champion.age_s))


def _drift_check(drift: FeatureDrift | None, limit: float) -> ConditionCheck:
    if drift is None:
        return _check("drift", None, "drift is not measured")
    if min(drift.rows, drift.reference_rows) < MIN_ROWS:
        text = f"drift needs {MIN_ROWS} rows: {drift.rows:,} are new, {drift.reference_rows:,} were held out"
        return _check("drift", None, text, rows=drift.rows)
    feature, psi = max(drift.psi.items(), key=lambda each: each[1])
    is_met = psi > limit
    text = f"the PSI of {feature} is {psi:.3f}, {_side(is_met)} {limit:g}"
    figures = {name: round(value, 4) for name, value in drift.psi.items()}
    return _check("drift", is_met, text, rows=drift.rows, **figures)


def _live_check(champion: ChampionFacts, growth: float) -> ConditionCheck:
    live = champion.live
    if live is None or live.rows < MIN_ROWS:
        rows = live.rows if live else 0
        return _check("live error", None, f"the live error needs {MIN_ROWS} labelled predictions: {rows} are there")
    limit = champion.expected_rmse * (1 + growth)
    is_met = live.rmse > limit
    return _check(
        "live error",
        is_met,
        f"the live RMSE of {champion.version} is {live.rmse:.3f}, {_side(is_met)} {limit:.3f}; "
        f"its training expected {champion.expected_rmse:.3f}",
        rmse=round(live.rmse, 4),
        expected_rmse=round(champion.expected_rmse, 4),
        rows=live.rows,
        unlabelled=live.unlabelled,
    )


def _side(is_met: bool) -> str:
    return "above" if is_met else "not above"


def _check(condition: Condition, is_met: bool | None, text: str, **figures: float) -> ConditionCheck:
    return ConditionCheck(is_met=is_met, reason=RetrainReason(condition=condition, text=text, figures={**figures}))
