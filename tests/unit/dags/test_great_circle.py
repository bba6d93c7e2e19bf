import math

import numpy as np
import pytest

from delivery.great_circle import EARTH_RADIUS_KM, haversine_km


def test_a_quarter_of_the_equator_is_a_quarter_of_the_circumference() -> None:
    assert haversine_km(0.0, 0.0, 0.0, 90.0) == pytest.approx(math.pi / 2 * EARTH_RADIUS_KM, rel=1e-15)


def test_opposite_points_are_half_the_circumference_apart() -> None:
    assert haversine_km(30.0, 75.0, -30.0, -105.0) == pytest.approx(math.pi * EARTH_RADIUS_KM, rel=1e-9)


def test_a_metre_is_not_lost_to_rounding() -> None:
    degrees = math.degrees(0.001 / EARTH_RADIUS_KM)
    assert haversine_km(22.7, 75.9, 22.7 + degrees, 75.9) == pytest.approx(0.001, rel=1e-8)


def test_many_points_at_once_are_the_same_as_one_by_one() -> None:
    points = np.random.default_rng(1).uniform(0, 60, (50, 4))
    assert haversine_km(*points.T).tolist() == [float(haversine_km(*point)) for point in points]
