from dataclasses import replace

import pytest

from wasmline.errors import TrainingError
from wasmline.training import Metrics, compare


@pytest.mark.parametrize(
    ("champion", "challenger", "margin", "decision", "reason"),
    [
        (None, 7.2, 0.0, "promote", "no champion yet"),
        (None, 9.4, 0.0, "keep", "no better than predicting the mean"),
        (7.3, 7.2, 0.0, "promote", "within the limit of 7.300"),
        (7.2, 7.3, 0.0, "keep", "above the limit of 7.200"),
        (7.2, 7.2, 0.0, "keep", "equal"),
        (7.2, 7.2, -0.01, "keep", "equal"),
        (7.3, 7.25, 0.01, "keep", "above the limit of 7.227"),
        (7.3, 7.2, 0.01, "promote", "within the limit"),
        (7.2, 7.23, -0.005, "promote", "within the limit of 7.236"),
        (7.2, 7.24, -0.005, "keep", "above the limit"),
        (20.0, 10.0, 0.0, "keep", "no better than predicting the mean"),
        (7.2, float("nan"), 0.0, "keep", "no better"),
    ],
)
def test_the_better_model_is_promoted_and_the_reason_says_why(
    metrics: Metrics, champion: float | None, challenger: float, margin: float, decision: str, reason: str
) -> None:
    live = None if champion is None else replace(metrics, rmse=champion)
    found = compare(live, replace(metrics, rmse=challenger), margin)
    assert found.decision == decision
    assert reason in found.reason
    assert found.promote == (decision == "promote")


def test_models_measured_on_different_rows_are_not_compared(metrics: Metrics) -> None:
    with pytest.raises(TrainingError, match="different rows"):
        compare(replace(metrics, holdout="sha256:bb"), metrics)
