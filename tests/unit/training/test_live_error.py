import numpy as np
import pytest

from wasmline.training.live_error import live_error
from wasmline.training.prepare import MAX_NUMBER


def test_predictions_are_measured_by_the_labels_that_are_there() -> None:
    predictions = {"a": 10.0, "b": 20.0, "c": 30.0}
    found = live_error(predictions, {"a": 13.0, "b": 16.0, "z": 0.0})
    assert found is not None
    assert (found.rows, found.unlabelled) == (2, 1)
    assert found.rmse == pytest.approx((25 / 2) ** 0.5)


def test_wrong_labels_that_are_fewer_than_a_hundredth_hardly_move_the_error() -> None:
    errors = np.random.default_rng(1).normal(0, 4, 5_000)
    predictions = {str(place): 20.0 + float(error) for place, error in enumerate(errors)}
    labels = dict.fromkeys(predictions, 20.0)
    true = live_error(predictions, labels)
    wrong = live_error(predictions, {**labels, **dict.fromkeys(list(labels)[:40], MAX_NUMBER)})
    assert true is not None
    assert wrong is not None
    assert true.rmse == pytest.approx(4, rel=0.03)
    assert wrong.rmse == pytest.approx(true.rmse, rel=0.05)
    lost = live_error(predictions, dict.fromkeys(predictions, -MAX_NUMBER))
    assert lost is not None
    assert np.isfinite(lost.rmse)


def test_without_a_label_there_is_no_error_to_tell() -> None:
    assert live_error({"a": 10.0}, {}) is None
    assert live_error({}, {"a": 10.0}) is None
