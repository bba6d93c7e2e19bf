"""Decides whether a model is trained again, and why: new records, drift, live error or age."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from wasmline.retrain_conditions import RetrainConditions
from wasmline.training.live_error import LiveError

MIN_ROWS = 500
"""Fewer rows are no evidence: the PSI of two samples of one distribution is about 0.05 with as many in each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureDrift:
    """The PSI of each feature in ``rows`` new rows, beside ``reference_rows`` of the champion."""

    psi: Mapping[str, float]
    rows: int
    reference_rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChampionFacts:
    """What is known of a live model: its RMSE on held-out rows, its age, its features' drift and its live error."""

    version: str
    rmse: float
    age_s: float
    drift: FeatureDrift | None = None
    live: LiveError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrainReason:
    """A condition that is met, in one sentence, with its figures."""

    condition: Literal["new records", "drift", "live error", "age"]
    text: str
    figures: dict[str, float | int | str]


def retrain_reasons(
    conditions: RetrainConditions, new: int, champion: ChampionFacts | None
) -> tuple[RetrainReason, ...]:
    """Return each condition that ``new`` records and the live model meet; pure. Without a model, only the first."""
    if new < max(conditions.min_new_records, 1):
        return ()
    found = [] if champion is None else list(_reasons_of(conditions, champion))
    if conditions.new_records is not None and new >= conditions.new_records:
        text = f"{new:,} new records, at least {conditions.new_records:,}"
        found.insert(0, RetrainReason(condition="new records", text=text, figures={"records": new}))
    return tuple(found)


def _reasons_of(conditions: RetrainConditions, champion: ChampionFacts) -> Iterator[RetrainReason]:
    drift, live = champion.drift, champion.live
    if conditions.max_psi is not None and drift and min(drift.rows, drift.reference_rows) >= MIN_ROWS:
        feature, psi = max(drift.psi.items(), key=lambda each: each[1])
        if psi > conditions.max_psi:
            yield RetrainReason(
                condition="drift",
                text=f"{feature} drifted: its PSI is {psi:.3f}, above {conditions.max_psi:g}",
                figures={"rows": drift.rows, **{name: round(value, 4) for name, value in drift.psi.items()}},
            )
    if conditions.max_error_growth is not None and live and live.rows >= MIN_ROWS:
        limit = champion.rmse * (1 + conditions.max_error_growth)
        if live.rmse > limit:
            yield RetrainReason(
                condition="live error",
                text=f"the live RMSE of {champion.version} is {live.rmse:.3f}, above {limit:.3f}; "
                f"it was {champion.rmse:.3f} when it was trained",
                figures={
                    "rmse": round(live.rmse, 4),
                    "trained_rmse": round(champion.rmse, 4),
                    "rows": live.rows,
                    "unlabelled": live.unlabelled,
                },
            )
    if conditions.max_age_hours is not None and champion.age_s > conditions.max_age_hours * 3600:
        yield RetrainReason(
            condition="age",
            text=f"{champion.version} is {champion.age_s / 3600:,.1f} hours old, "
            f"more than {conditions.max_age_hours:g}",
            figures={"age_s": round(champion.age_s)},
        )
