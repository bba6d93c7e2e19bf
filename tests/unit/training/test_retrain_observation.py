"""Observed conditions as the status of a retraining shows them."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

from wasmline.control import RetrainCheck
from wasmline.retrain_conditions import RetrainConditions
from wasmline.training.live_error import LiveError
from wasmline.training.retrain_observation import (
    NO_CHAMPION,
    RetrainObservation,
    cooldown_check,
    shown_checks,
)
from wasmline.training.retrain_reasons import MIN_ROWS, ChampionFacts, FeatureDrift, check_conditions

CONDITIONS = RetrainConditions(
    model="eta", models="models", topic="features", new_records=1_000, max_psi=0.2, max_age_hours=2
)
LIVE = LiveError(rows=MIN_ROWS, rmse=4.123456, unlabelled=3)
CHAMPION = ChampionFacts(
    version="1.2.0",
    expected_rmse=3.999999,
    age_s=10_800.0,
    drift=FeatureDrift(psi={"km": 0.3}, rows=MIN_ROWS, reference_rows=MIN_ROWS),
    live=LIVE,
)


def test_a_condition_that_is_met_and_not_due_waits() -> None:
    checks = check_conditions(CONDITIONS, 999, CHAMPION)
    age = checks[2].reason
    assert [(each.condition, each.text, each.is_met) for each in shown_checks(checks, due=[age])] == [
        ("new records", "999 new records, fewer than 1,000", False),
        ("drift", "the PSI of km is 0.300, above 0.2, and waits", True),
        ("age", "the last training was 3.0 hours ago, above 2", True),
    ]


def test_a_model_without_a_champion_that_no_condition_can_train_says_so() -> None:
    conditions = replace(CONDITIONS, new_records=None)
    assert shown_checks(check_conditions(conditions, 999, None), due=[]) == (NO_CHAMPION,)


def test_the_name_of_a_feature_from_a_registry_is_bounded_and_printable() -> None:
    drift = FeatureDrift(psi={"\x1b[2J" * 1_000_000: 0.3}, rows=MIN_ROWS, reference_rows=MIN_ROWS)
    checks = check_conditions(CONDITIONS, 1, replace(CHAMPION, drift=drift))
    text = shown_checks(checks, due=[])[1].text
    assert text.endswith("above 0.2, and waits")
    assert len(text) < 10_000
    assert text.isprintable()


def test_in_the_cooldown_its_end_is_told() -> None:
    assert cooldown_check(1_767_225_600_000) == RetrainCheck(
        condition="cooldown", text="waits for the cooldown until 2026-01-01T00:00:00Z", is_met=False
    )


def test_a_status_has_the_figures_of_the_champion() -> None:
    status = RetrainObservation(new_records=7, champion=CHAMPION, observed_ms=5).status(CONDITIONS, ())
    assert (status.model, status.topic, status.champion, status.new_records) == ("eta", "features", "1.2.0", 7)
    assert (status.expected_rmse, status.live_rmse, status.age_s, status.observed_ms) == (4.0, 4.1235, 10_800.0, 5)
    unknown = RetrainObservation(new_records=7, champion=None, observed_ms=5).status(CONDITIONS, ())
    assert [unknown.champion, unknown.expected_rmse, unknown.live_rmse, unknown.age_s] == [None] * 4


@pytest.mark.parametrize("live", [None, replace(LIVE, rows=MIN_ROWS - 1), replace(LIVE, rmse=inf)])
def test_a_live_error_of_few_rows_or_beyond_all_numbers_is_none(live: LiveError | None) -> None:
    champion = replace(CHAMPION, live=live)
    assert RetrainObservation(new_records=7, champion=champion, observed_ms=5).status(CONDITIONS, ()).live_rmse is None
