import numpy as np
import pytest

from wasmline.training.linear_baseline import LinearBaseline


def test_a_linear_target_is_predicted_exactly() -> None:
    matrix = np.random.default_rng(1).normal(size=(50, 2)).astype(np.float32)
    target = 3 + matrix.astype(np.float64) @ [2, -1]
    assert LinearBaseline(matrix, target).predict(matrix) == pytest.approx(target)


def test_columns_that_follow_from_others_do_no_harm() -> None:
    kind = np.arange(60) % 3
    matrix, target = np.eye(3, dtype=np.float32)[kind], np.asarray(kind * 5, dtype=np.float64)
    assert LinearBaseline(matrix, target).predict(matrix) == pytest.approx(target)


def test_a_missing_value_counts_as_the_mean_of_the_training_rows() -> None:
    matrix = np.array([[1], [2], [3], [np.nan]], dtype=np.float32)
    baseline = LinearBaseline(matrix, np.array([10.0, 20.0, 30.0, 20.0]))
    assert baseline.predict(np.array([[np.nan], [5]], dtype=np.float32)) == pytest.approx([20, 50])


def test_a_column_without_any_value_is_ignored() -> None:
    matrix = np.array([[np.nan, 1], [np.nan, 2]], dtype=np.float32)
    assert LinearBaseline(matrix, np.array([1.0, 2.0])).predict(matrix) == pytest.approx([1, 2])
