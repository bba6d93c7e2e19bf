import numpy as np
import pyarrow as pa
import pytest

from wasmline.training import FeatureLayout
from wasmline.training.feature_drift import feature_drift, population_stability_index

LAYOUT = FeatureLayout(features=("km", "vehicle"), categories={"vehicle": ("scooter", "bicycle")})


def rows(km: object, vehicle: object) -> pa.Table:
    return pa.table({"km": pa.array(km, pa.float64()), "vehicle": pa.array(vehicle, pa.string())})


def sample(seed: int, size: int = 2_000, *, shift: float = 0.0, bicycles: float = 0.3) -> pa.Table:
    generator = np.random.default_rng(seed)
    vehicles = np.where(generator.random(size) < bicycles, "bicycle", "scooter")
    return rows(generator.normal(8 + shift, 3, size), vehicles)


def test_the_index_of_the_textbook_example_is_the_sum_over_its_bins() -> None:
    expected, found = np.array([100_000, 200_000, 700_000]), np.array([200_000, 200_000, 600_000])
    by_hand = 0.1 * np.log(2) + 0 + -0.1 * np.log(6 / 7)
    assert population_stability_index(expected, found) == pytest.approx(by_hand, rel=1e-4)
    assert population_stability_index(found, expected) == pytest.approx(by_hand, rel=1e-4)


def test_equal_samples_have_no_drift_and_an_empty_bin_has_a_finite_one() -> None:
    assert population_stability_index(np.array([5, 5]), np.array([5, 5])) == 0
    assert 1 < population_stability_index(np.array([500, 500]), np.array([1_000, 0])) < 10


@pytest.mark.parametrize("seed", range(5))
def test_two_samples_of_one_distribution_drift_by_noise_only(seed: int) -> None:
    drift = feature_drift(sample(seed), sample(seed + 100), LAYOUT)
    assert list(drift) == ["km", "vehicle"]
    assert max(drift.values()) < 0.05


def test_each_feature_drifts_on_its_own() -> None:
    farther = feature_drift(sample(1), sample(2, shift=3.0), LAYOUT)
    assert farther["km"] > 0.25 > 0.05 > farther["vehicle"]
    greener = feature_drift(sample(1), sample(2, bicycles=0.7), LAYOUT)
    assert greener["vehicle"] > 0.25 > 0.05 > greener["km"]


def test_values_beyond_the_reference_count_even_where_it_is_constant() -> None:
    layout = FeatureLayout(features=("km",))
    constant, above, below = (pa.table({"km": [km] * 1_000}) for km in (5.0, 6.0, 4.0))
    assert feature_drift(constant, constant, layout) == {"km": 0}
    assert feature_drift(constant, above, layout)["km"] > 1
    assert feature_drift(constant, below, layout)["km"] > 1


def test_missing_values_and_unknown_categories_are_bins_of_their_own() -> None:
    known = rows([5.0] * 900 + [6.0] * 100, ["scooter"] * 900 + ["bicycle"] * 100)
    missing = rows([5.0] * 500 + [None] * 500, ["scooter"] * 500 + [None] * 500)
    unknown = rows([5.0] * 900 + [6.0] * 100, ["scooter"] * 500 + ["rocket"] * 500)
    assert min(feature_drift(known, missing, LAYOUT).values()) > 1
    drift = feature_drift(known, unknown, LAYOUT)
    assert drift["vehicle"] > 1
    assert drift["km"] == 0


def test_a_reference_without_a_value_is_no_error() -> None:
    layout = FeatureLayout(features=("km",))
    nothing, something = (pa.table({"km": pa.array(km, pa.float64())}) for km in ([None] * 600, [1.0] * 600))
    assert feature_drift(nothing, nothing, layout) == {"km": 0}
    assert feature_drift(nothing, something, layout)["km"] > 1
