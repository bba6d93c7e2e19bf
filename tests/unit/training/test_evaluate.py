import numpy as np
import pytest

from wasmline.errors import NotEnoughData
from wasmline.training.evaluate import Baselines, histogram, measure, sample


def test_errors_are_those_of_the_textbook() -> None:
    metrics = measure(
        np.array([1.0, 3.0]), np.array([2.0, 1.0]), baselines=Baselines(mean_rmse=2.2, linear_rmse=1.5), holdout="h"
    )
    assert metrics.rmse == pytest.approx((5 / 2) ** 0.5)
    assert metrics.mae == 1.5
    assert metrics.r2 == pytest.approx(1 - 2.5 / 1)
    assert (metrics.mean_rmse, metrics.linear_rmse) == (2.2, 1.5)
    assert (metrics.rows, metrics.holdout) == (2, "h")


def test_nothing_can_be_measured_on_nothing() -> None:
    with pytest.raises(NotEnoughData, match="only 1 rows are held out"):
        measure(np.array([1.0]), np.array([1.0]), baselines=Baselines(mean_rmse=0), holdout="h")


def test_a_sample_is_bounded_ordered_and_the_same_each_time() -> None:
    truth = np.arange(100.0)
    pairs = sample(truth, truth + 0.5, size=10, seed=1)
    assert len(pairs) == 10
    assert pairs == sorted(pairs) == sample(truth, truth + 0.5, size=10, seed=1)
    assert all(prediction == actual + 0.5 for actual, prediction in pairs)


def test_few_rows_are_all_in_the_sample() -> None:
    assert sample(np.array([1.0, 2.0]), np.array([1.0, 2.0]), size=10, seed=1) == [(1.0, 1.0), (2.0, 2.0)]


def test_every_residual_is_in_the_histogram() -> None:
    found = histogram(np.random.default_rng(1).normal(size=500), bins=20)
    assert sum(found.counts) == 500
    assert len(found.edges) == len(found.counts) + 1 == 21
