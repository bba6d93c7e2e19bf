"""The gate on nights of generated deliveries that do not change, that change at once, and with a segment gone wrong."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from support.nightly_training import POLICY, day_ends, deliveries, error, nights, train
from wasmline.training.champion_comparison import compare_with_champion
from wasmline.training.gate import GatePolicy
from wasmline.training.prepare import HELD_OUT

START_ROWS, NIGHT_ROWS, NIGHTS = 30_000, 500, 20
MOST_PROMOTIONS = 1
"""Per seed of 20 nights: at most 10 in all of 10 seeds."""

SHIFT_DAY = 20
SEEDS = range(1, 11)


@pytest.fixture(scope="module")
def unseen() -> pa.Table:
    return deliveries(45_000, 999)


@pytest.mark.long
@pytest.mark.parametrize("seed", SEEDS)
def test_data_that_does_not_change_promotes_hardly_ever_and_never_a_worse_model(seed: int, unseen: pa.Table) -> None:
    table = deliveries(START_ROWS + NIGHTS * NIGHT_ROWS + 2_000, seed)
    ends = [START_ROWS + night * NIGHT_ROWS for night in range(NIGHTS + 1)]
    live = train(table, ends[:1]).measured.model
    promotions = 0
    for night in nights(table, ends, [3]):
        assert night.challenger.window == "all"
        if night.decision.promote:
            assert error(night.champion, unseen) <= 1.001 * error(live, unseen), night.decision.reason
            live, promotions = night.champion, promotions + 1
    assert promotions <= MOST_PROMOTIONS


def roadworks(row: dict[str, Any], day: int) -> None:
    if day >= SHIFT_DAY:
        row["time_min"] += 8.0 if row["rating"] < 4.5 else 4.0


def test_after_a_shift_the_forward_error_is_that_of_the_next_day_and_a_short_window_wins() -> None:
    table = deliveries(45_600, 7, roadworks)
    ends = day_ends(table)
    found = list(nights(table, ends[: SHIFT_DAY + 5], [2], first=SHIFT_DAY - 1))
    for day, night in enumerate(found, start=SHIFT_DAY):
        assert night.challenger.window == ("last 2" if day > SHIFT_DAY + 1 else "all")
        if day > SHIFT_DAY + 2:
            next_day = table.slice(ends[day - 1], ends[day] - ends[day - 1])
            reported = night.challenger.measured.metrics.forward_rmse
            assert reported == pytest.approx(error(night.challenger.measured.model, next_day), rel=0.07)
    assert [night.decision.promote for night in found] == [False, False, True, *[False] * (len(found) - 3)]
    before_the_shift = train(table, ends[:12], [2])  # its run is cleared, or comes late in a backfill
    _, decision = compare_with_champion(before_the_shift.measured, found[-1].champion, POLICY)
    assert "better beyond noise" in decision.reason
    assert decision.refusal == "older"


def late_motorcycles(row: dict[str, Any], _day: int) -> None:
    """Make motorcycles slower, and have the training rows of scooters say what is not so."""
    if row["vehicle"] == "motorcycle":
        row["time_min"] += 5.0
    elif row["vehicle"] == "scooter" and not row[HELD_OUT]:
        row["time_min"] += 3.2


def test_a_challenger_that_is_worse_on_scooters_and_better_in_all_is_refused_by_that_name() -> None:
    champion = train(deliveries(20_000, 7), [19_000]).measured.model
    challenger = train(deliveries(20_000, 7, late_motorcycles), [19_000]).measured
    _, without_segments = compare_with_champion(challenger, champion, GatePolicy())
    _, decision = compare_with_champion(challenger, champion, POLICY)
    assert without_segments.promote
    assert decision.refusal == "segment vehicle=scooter"
    scooter = decision.segments["vehicle=scooter"]
    assert scooter.rmse / scooter.champion_rmse == pytest.approx(1.1, abs=0.03)
