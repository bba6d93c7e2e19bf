import pytest

from wasmline.errors import InvalidTrainSpec
from wasmline.retrain_conditions import RetrainConditions


@pytest.mark.parametrize(
    ("limits", "fault"),
    [
        ({}, "set one of new_records, max_psi, max_error_growth, max_age_hours"),
        ({"min_new_records": 5}, "set one of"),
        ({"max_psi": -0.1}, "max_psi must be at least 0 and finite, got -0.1"),
        ({"max_age_hours": float("nan")}, "max_age_hours must be at least 0"),
        ({"new_records": 5, "cooldown_seconds": -1}, "cooldown_seconds must be at least 0"),
        ({"new_records": 5, "cooldown_seconds": float("inf")}, "cooldown_seconds must be at least 0 and finite"),
        ({"max_error_growth": 0.1}, "predictions is missing"),
    ],
)
def test_conditions_that_could_never_be_met_are_rejected(limits: dict[str, float], fault: str) -> None:
    with pytest.raises(InvalidTrainSpec, match=fault):
        RetrainConditions(model="eta", models="models", topic="features", **limits)  # type: ignore[arg-type]


def test_one_condition_is_enough() -> None:
    assert RetrainConditions(model="eta", models="models", topic="features", new_records=0).max_psi is None
