import pytest

from delivery.correlations import Signals, signals
from delivery.generator import generate
from wasmline.training import Correlation


@pytest.fixture(scope="module")
def found() -> Signals:
    return signals(record.value for record in generate())


def of(correlations: tuple[Correlation, ...], feature: str) -> Correlation:
    return next(one for one in correlations if one.feature == feature)


def test_flipped_signs_hide_what_distance_says_and_without_them_it_is_back(found: Signals) -> None:
    assert of(found.raw, "distance_km").pearson == pytest.approx(0, abs=0.02)
    assert of(found.clean, "distance_km").pearson == pytest.approx(0.32, abs=0.02)


def test_age_slows_and_rating_speeds_as_in_a_real_export(found: Signals) -> None:
    assert of(found.clean, "age").pearson == pytest.approx(0.295, abs=0.02)
    assert of(found.clean, "rating").pearson == pytest.approx(-0.34, abs=0.02)


def test_motorcycles_are_about_three_minutes_slower(found: Signals) -> None:
    means = of(found.clean, "vehicle").means
    assert means["motorcycle"] - means["scooter"] == pytest.approx(3.1, abs=0.5)
    assert means["electric_scooter"] == pytest.approx(means["scooter"], abs=0.5)


def test_points_are_a_bounded_sample_and_the_broken_ones_are_far_away(found: Signals) -> None:
    assert len(found.kept) == 2_000
    assert 0 < len(found.broken) <= 500
    assert max(distance for distance, _ in found.kept) < 25
    assert min(distance for distance, _ in found.broken) > 2_000


def test_lines_that_are_no_delivery_are_passed_over() -> None:
    assert signals([b"", None, b"a,b"]) == signals([])
    assert signals([]).raw[0] == Correlation(feature="distance_km", rows=0)
