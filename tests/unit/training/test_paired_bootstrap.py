import numpy as np
import pytest

from wasmline.training.paired_bootstrap import MAX_BLOCKS, MAX_RATIO, ratio_interval


def test_about_as_many_intervals_miss_the_true_ratio_as_their_confidence_says() -> None:
    random = np.random.default_rng(5)
    missed = 0
    for seed in range(200):
        shared, own = random.normal(size=400), random.normal(size=(2, 400))
        first, second = (shared + own[0]) ** 2, (shared + own[1]) ** 2
        found = ratio_interval(first, second, confidence=0.9, seed=seed)
        missed += not found.low <= 1 <= found.high
    assert 8 <= missed <= 34  # of a binomial distribution of mean 20, all but 0.4 %


def test_the_pairs_narrow_the_interval() -> None:
    random = np.random.default_rng(6)
    errors = random.normal(size=1_000)
    near = (errors + random.normal(0, 0.1, 1_000)) ** 2
    paired = ratio_interval(near, errors**2, confidence=0.99, seed=1)
    apart = ratio_interval(random.permutation(near), errors**2, confidence=0.99, seed=1)
    assert apart.high - apart.low > 5 * (paired.high - paired.low)


def test_many_rows_have_the_interval_of_the_normal_distribution() -> None:
    rows = 16 * MAX_BLOCKS
    errors = np.random.default_rng(7).normal(size=(2, rows)) ** 2
    found = ratio_interval(errors[0], errors[1], confidence=0.95, seed=1)
    assert found.high - found.low == pytest.approx(2 * 1.96 * rows**-0.5, rel=0.1)


@pytest.mark.parametrize(
    ("first", "second", "ratio"), [(0.0, 0.0, 1.0), (1.0, 0.0, MAX_RATIO), (0.0, 1.0, 0.0), (4.0, 1.0, 2.0)]
)
def test_models_without_errors_have_a_ratio(first: float, second: float, ratio: float) -> None:
    found = ratio_interval(np.full(9, first), np.full(9, second), confidence=0.99, seed=1)
    assert (found.low, found.high) == (ratio, ratio)
