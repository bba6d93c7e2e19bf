import pytest

from wasmline.training.live_error import live_error


def test_predictions_are_measured_by_the_labels_that_are_there() -> None:
    predictions = {"a": 10.0, "b": 20.0, "c": 30.0}
    found = live_error(predictions, {"a": 13.0, "b": 16.0, "z": 0.0})
    assert found is not None
    assert (found.rows, found.unlabelled) == (2, 1)
    assert found.rmse == pytest.approx((25 / 2) ** 0.5)


def test_without_a_label_there_is_no_error_to_tell() -> None:
    assert live_error({"a": 10.0}, {}) is None
    assert live_error({}, {"a": 10.0}) is None
