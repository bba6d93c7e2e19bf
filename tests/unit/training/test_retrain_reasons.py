from dataclasses import replace

from wasmline.retrain_conditions import RetrainConditions
from wasmline.training.live_error import LiveError
from wasmline.training.retrain_reasons import (
    MIN_ROWS,
    ChampionFacts,
    FeatureDrift,
    retrain_reasons,
)

ALL = RetrainConditions(
    model="eta",
    models="models",
    topic="features",
    min_new_records=10,
    new_records=1_000,
    max_psi=0.2,
    max_error_growth=0.1,
    max_age_hours=2,
    predictions="predictions",
)
NONE = replace(ALL, min_new_records=0, new_records=None, max_psi=None, max_error_growth=None)
DRIFT = FeatureDrift(psi={"age": 0.01, "km": 0.3}, rows=MIN_ROWS, reference_rows=MIN_ROWS)
LIVE = LiveError(rows=MIN_ROWS, rmse=8.9, unlabelled=3)
FINE = ChampionFacts(
    version="1.2.0",
    rmse=8.0,
    age_s=3_600,
    drift=replace(DRIFT, psi={"age": 0.01, "km": 0.2}),
    live=replace(LIVE, rmse=8.8),
)


def conditions(new: int, champion: ChampionFacts | None, spec: RetrainConditions = ALL) -> list[str]:
    return [each.condition for each in retrain_reasons(spec, new, champion)]


def test_a_model_that_meets_no_condition_is_not_trained_again() -> None:
    assert conditions(999, FINE) == []


def test_each_condition_is_a_reason_of_its_own_with_its_figures() -> None:
    (records,) = retrain_reasons(ALL, 1_000, FINE)
    assert (records.condition, records.text) == ("new records", "1,000 new records, at least 1,000")
    assert records.figures == {"records": 1_000}
    (drift,) = retrain_reasons(ALL, 999, replace(FINE, drift=DRIFT))
    assert (drift.condition, drift.text) == ("drift", "km drifted: its PSI is 0.300, above 0.2")
    assert drift.figures == {"rows": 500, "age": 0.01, "km": 0.3}
    (live,) = retrain_reasons(ALL, 999, replace(FINE, live=LIVE))
    assert live.condition == "live error"
    assert live.text == "the live RMSE of 1.2.0 is 8.900, above 8.800; it was 8.000 when it was trained"
    assert live.figures == {"rmse": 8.9, "trained_rmse": 8.0, "rows": 500, "unlabelled": 3}
    (age,) = retrain_reasons(ALL, 999, replace(FINE, age_s=7_201))
    assert (age.condition, age.text) == ("age", "1.2.0 is 2.0 hours old, more than 2")
    assert age.figures == {"age_s": 7_201}


def test_all_reasons_are_given_the_new_records_first() -> None:
    worst = replace(FINE, drift=DRIFT, live=LIVE, age_s=1e6)
    assert conditions(1_000, worst) == ["new records", "drift", "live error", "age"]


def test_a_condition_without_a_limit_is_not_tested() -> None:
    worst = replace(FINE, drift=DRIFT, live=LIVE, age_s=1e6)
    assert conditions(10**6, worst, NONE) == ["age"]
    assert conditions(10**6, worst, replace(NONE, new_records=1, max_age_hours=None)) == ["new records"]


def test_without_enough_new_records_there_is_nothing_to_train_on() -> None:
    worst = replace(FINE, drift=DRIFT, live=LIVE, age_s=1e6)
    assert conditions(9, worst) == []
    assert conditions(0, worst, NONE) == []
    assert conditions(0, None, replace(NONE, new_records=0)) == []


def test_the_first_model_is_trained_when_records_are_there() -> None:
    assert conditions(1_000, None) == ["new records"]
    assert conditions(999, None) == []


def test_few_rows_are_no_evidence() -> None:
    for drift in (replace(DRIFT, rows=499), replace(DRIFT, reference_rows=499), None):
        assert conditions(999, replace(FINE, drift=drift)) == []
    for live in (replace(LIVE, rows=499), None):
        assert conditions(999, replace(FINE, live=live)) == []
