from dataclasses import replace

from wasmline.retrain_conditions import RetrainConditions
from wasmline.training.live_error import LiveError
from wasmline.training.retrain_reasons import (
    MIN_ROWS,
    ChampionFacts,
    FeatureDrift,
    RetrainReason,
    check_conditions,
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
    expected_rmse=8.0,
    age_s=3_600,
    drift=replace(DRIFT, psi={"age": 0.01, "km": 0.2}),
    live=replace(LIVE, rmse=8.8),
)


def reasons(new: int, champion: ChampionFacts | None, spec: RetrainConditions = ALL) -> list[RetrainReason]:
    return [each.reason for each in check_conditions(spec, new, champion) if each.is_met]


def conditions(new: int, champion: ChampionFacts | None, spec: RetrainConditions = ALL) -> list[str]:
    return [each.condition for each in reasons(new, champion, spec)]


def test_a_model_that_meets_no_condition_is_not_trained_again_and_each_says_why() -> None:
    checks = check_conditions(ALL, 999, FINE)
    assert [(each.is_met, each.reason.text) for each in checks] == [
        (False, "999 new records, fewer than 1,000"),
        (False, "the PSI of km is 0.200, not above 0.2"),
        (False, "the live RMSE of 1.2.0 is 8.800, not above 8.800; its training expected 8.000"),
        (False, "the last training was 1.0 hours ago, not above 2"),
    ]


def test_each_condition_is_a_reason_of_its_own_with_its_figures() -> None:
    (records,) = reasons(1_000, FINE)
    assert (records.condition, records.text) == ("new records", "1,000 new records, at least 1,000")
    assert records.figures == {"records": 1_000}
    (drift,) = reasons(999, replace(FINE, drift=DRIFT))
    assert (drift.condition, drift.text) == ("drift", "the PSI of km is 0.300, above 0.2")
    assert drift.figures == {"rows": 500, "age": 0.01, "km": 0.3}
    (live,) = reasons(999, replace(FINE, live=LIVE))
    assert live.condition == "live error"
    assert live.text == "the live RMSE of 1.2.0 is 8.900, above 8.800; its training expected 8.000"
    assert live.figures == {"rmse": 8.9, "expected_rmse": 8.0, "rows": 500, "unlabelled": 3}
    (age,) = reasons(999, replace(FINE, age_s=7_201))
    assert (age.condition, age.text) == ("age", "the last training was 2.0 hours ago, above 2")
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
    (check,) = check_conditions(ALL, 9, worst)
    assert (check.is_met, check.reason.text) == (False, "9 new records, fewer than 10")
    assert conditions(0, worst, NONE) == []
    assert conditions(0, None, replace(NONE, new_records=0)) == []


def test_the_first_model_is_trained_when_records_are_there() -> None:
    assert conditions(1_000, None) == ["new records"]
    assert conditions(999, None) == []


def unmeasured(champion: ChampionFacts) -> list[str]:
    return [each.reason.text for each in check_conditions(ALL, 999, champion) if each.is_met is None]


def test_few_rows_are_no_evidence() -> None:
    for drift, text in (
        (replace(DRIFT, rows=499), "drift needs 500 rows: 499 are new, 500 were held out"),
        (replace(DRIFT, reference_rows=499), "drift needs 500 rows: 500 are new, 499 were held out"),
        (None, "drift is not measured"),
    ):
        assert unmeasured(replace(FINE, drift=drift)) == [text]
    for live, rows in ((replace(LIVE, rows=499), 499), (None, 0)):
        assert unmeasured(replace(FINE, live=live)) == [
            f"the live error needs 500 labelled predictions: {rows} are there"
        ]
