"""Generates synthetic deliveries with the shape and the defects of a real export.

Unlike in a real file, the factors of the delivery time are known: age and distance act as steps, a low rating and a
worn vehicle cost minutes. The condition of the vehicle is not among the columns; only motorcycles are ever worn, so the
vehicle is a proxy for it. The rest is noise that grows with the time itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from delivery.great_circle import haversine_km
from delivery.source_records import START_MS, Source

Floats = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

ROWS = 45_600
"""Deliveries in the default run."""

CITIES = (
    ("AMRITSAR", 31.634, 74.872),
    ("BHUBANESWAR", 20.296, 85.825),
    ("CHANDIGARH", 30.733, 76.779),
    ("CUTTACK", 20.462, 85.883),
    ("DELHI", 28.614, 77.209),
    ("GUNTUR", 16.307, 80.437),
    ("GUWAHATI", 26.145, 91.736),
    ("GWALIOR", 26.218, 78.183),
    ("HUBLI", 15.365, 75.124),
    ("JABALPUR", 23.182, 79.987),
    ("JODHPUR", 26.239, 73.024),
    ("LUCKNOW", 26.847, 80.946),
    ("MADURAI", 9.925, 78.120),
    ("MANGALORE", 12.914, 74.856),
    ("NAGPUR", 21.146, 79.088),
    ("NASHIK", 19.998, 73.790),
    ("PATNA", 25.594, 85.138),
    ("RAIPUR", 21.251, 81.630),
    ("RAJKOT", 22.304, 70.802),
    ("SALEM", 11.664, 78.146),
    ("VARANASI", 25.318, 82.974),
    ("WARANGAL", 17.969, 79.594),
)
"""Locations of the drivers: a city and roughly its centre, in degrees."""

DRIVERS_PER_CITY = 60
RESTAURANTS_PER_CITY = 28

OFFSETS = np.array([0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.07, 0.08, 0.09, 0.11, 0.13, 0.14])
"""Degrees from restaurant to destination, the same in latitude and longitude; the last is rare."""

ORDERS = ("Snack", "Meal", "Drinks", "Buffet")
VEHICLES = ("motorcycle", "scooter", "electric_scooter", "bicycle")

SHORTEST_MIN, LONGEST_MIN = 10, 54
"""The range of the delivery times without drift, in minutes."""

MINUTE_MS = 60_000
DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Defects:
    """Shares of rows with a defect, as a real export has them."""

    flipped_sign: float = 0.0095
    near_zero: float = 0.08
    too_good: float = 0.0012
    too_young: float = 0.0008
    repeated_id: float = 0.0031
    no_break_space: float = 0.0023


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """From day ``day`` on, counted from the first delivery, each takes longer: roadworks, in whole minutes."""

    day: int
    low_rating_min: int = 8
    other_min: int = 4

    def __post_init__(self) -> None:
        if self.day < 0:
            raise ValueError(f"day must be at least 0, got {self.day}")


@dataclass(frozen=True, slots=True)
class _Deliveries:
    driver: Numbers
    age: Numbers
    rating: Numbers
    restaurant: Floats
    destination: Floats
    order: Numbers
    vehicle: Numbers
    minutes: Numbers


def generate(
    rows: int = ROWS,
    *,
    seed: int = 7,
    defects: Defects | None = None,
    start_ms: int = START_MS,
    end_ms: int | None = None,
    drift: Drift | None = None,
    late_labels: bool = False,
) -> Iterator[Source]:
    """Yield ``rows`` deliveries in time order, about one a minute. The same arguments give the same bytes.

    The first is ordered at ``start_ms``; with ``end_ms``, the last is ordered then instead. With ``late_labels`` each
    is in two records: without its minutes when it is ordered, and with them when it has arrived.
    """
    wanted = defects or Defects()
    random = np.random.Generator(np.random.PCG64(seed))
    made = _deliveries(random, rows, wanted)
    ids = _ids(random, rows, wanted)
    gaps = random.integers(20_000, 100_000, rows)
    since_first = np.cumsum(gaps) - gaps[:1]
    times = since_first + (start_ms if end_ms is None else end_ms - since_first[-1])
    minutes = _delayed(made.minutes, made.rating, since_first, drift)
    for time_ms, row, arrived in _moments(times, minutes, late_labels=late_labels):
        city, number = divmod(int(made.driver[row]), DRIVERS_PER_CITY)
        driver = f"{CITIES[city][0]}-{number + 1:02d}"
        line = _line(made, row, ids[row], driver, str(minutes[row]) if arrived else "")
        yield Source(driver.encode(), line.encode(), time_ms)


def _delayed(minutes: Numbers, rating: Numbers, since_first: Numbers, drift: Drift | None) -> Numbers:
    """Return the minutes with those that the drift adds, also above the longest."""
    if drift is None:
        return minutes
    added = np.where(rating < 45, drift.low_rating_min, drift.other_min)
    return np.asarray(minutes + np.where(since_first >= drift.day * DAY_MS, added, 0))


def _moments(times: Numbers, minutes: Numbers, *, late_labels: bool) -> list[tuple[int, int, bool]]:
    """Return when a record of which row is written, in time order, and whether the delivery has arrived."""
    if not late_labels:
        return [(int(ordered), row, True) for row, ordered in enumerate(times)]
    ordered = [(int(time), row, False) for row, time in enumerate(times)]
    return sorted(ordered + [(time + int(minutes[row]) * MINUTE_MS, row, True) for time, row, _ in ordered])


def _line(made: _Deliveries, row: int, identity: str, driver: str, minutes: str) -> str:
    rating = f"{made.rating[row] / 10:g}"
    points = ",".join(f"{degrees:.6f}" for degrees in (*made.restaurant[row], *made.destination[row]))
    kinds = f"{ORDERS[made.order[row]]} ,{VEHICLES[made.vehicle[row]]} "
    return f"{identity},{driver},{made.age[row]},{rating},{points},{kinds},{minutes}"


def _ids(random: np.random.Generator, rows: int, defects: Defects) -> list[str]:
    """Return short hexadecimal ids: some given to two deliveries, some with a no-break space inside."""
    ids = [f"{number:05X}" for number in random.permutation(0xFFFFF - 0x10000)[:rows] + 0x10000]
    for row in np.flatnonzero(random.random(rows) < defects.no_break_space):
        ids[row] = f"{ids[row][:3]}\u00a0{ids[row][3:]}"
    for row in np.flatnonzero(random.random(rows) < defects.repeated_id):
        ids[row] = ids[int(random.integers(0, rows))]
    return ids


def _deliveries(random: np.random.Generator, rows: int, defects: Defects) -> _Deliveries:
    driver = random.integers(0, len(CITIES) * DRIVERS_PER_CITY, rows)
    age = random.integers(20, 40, rows)
    rating = _ratings(random, age)
    offset = OFFSETS[np.minimum(random.integers(0, 8 * len(OFFSETS) - 7, rows) // 8, len(OFFSETS) - 1)]
    near_zero = random.random(rows) < defects.near_zero
    restaurant = np.where(near_zero[:, None], 0.0, _restaurants(random, driver // DRIVERS_PER_CITY))
    destination = restaurant + offset[:, None]
    distance = haversine_km(restaurant[:, 0], restaurant[:, 1], destination[:, 0], destination[:, 1])
    worn = random.random(rows) < 0.36
    vehicle = np.where(worn, 0, random.choice(len(VEHICLES), rows, p=[0.355, 0.515, 0.1277, 0.0023]))
    minutes = _minutes(random, age=age, rating=rating, distance=distance, worn=worn)
    _misreport(random, age, rating, defects)
    return _Deliveries(
        driver=driver,
        age=age,
        rating=rating,
        restaurant=_flip_signs(random, restaurant, ~near_zero, defects.flipped_sign / (1 - defects.near_zero)),
        destination=destination,
        order=random.integers(0, len(ORDERS), rows),
        vehicle=vehicle,
        minutes=minutes,
    )


def _ratings(random: np.random.Generator, age: Numbers) -> Numbers:
    """Return ratings in tenths: most lie in 4.5 to 5.0, and older drivers are oftener below."""
    kind = random.random(len(age))
    low = np.where(age >= 30, 0.265, 0.11)
    usual = random.choice(np.arange(45, 51), len(age), p=[0.09, 0.23, 0.19, 0.19, 0.19, 0.11])
    lower = np.where(
        random.random(len(age)) < 0.82, random.integers(40, 45, len(age)), random.integers(35, 40, len(age))
    )
    lowest = random.integers(25, 35, len(age))
    return np.where(kind < 0.03 * low, lowest, np.where(kind < low, lower, usual))


def _restaurants(random: np.random.Generator, city: Numbers) -> Floats:
    """Return each delivery's restaurant: one of its city's, all within about seven kilometres of the centre."""
    centres = np.array([(latitude, longitude) for _, latitude, longitude in CITIES])
    spread = random.uniform(-0.06, 0.06, (len(CITIES), RESTAURANTS_PER_CITY, 2))
    chosen = random.integers(0, RESTAURANTS_PER_CITY, len(city))
    return np.asarray(np.round(centres[city] + spread[city, chosen], 6))


def _minutes(random: np.random.Generator, *, age: Numbers, rating: Numbers, distance: Floats, worn: Flags) -> Numbers:
    """Return whole minutes: steps at an age of 30 and at 3.8 and 9.5 km, more for a low rating and a worn vehicle."""
    rated_low = np.select([rating < 40, rating < 45], [10.6, 8.5], 0.0)
    way = np.select([distance < 3.8, distance < 9.5], [0.0, 2.0], 8.2)
    expected = 16.0 + np.where(age >= 30, 5.2, 0.0) + way + rated_low + np.where(worn, 5.6, 0.0)
    spread = 4.3 + 0.1 * expected
    minutes = np.rint(expected + spread * _noise(random, len(age)))
    return np.asarray(np.clip(minutes, SHORTEST_MIN, LONGEST_MIN), dtype=np.int64)


def _noise(random: np.random.Generator, rows: int) -> Floats:
    """Return noise of mean 0 and variance 1 with short tails: the sum of three uniform draws."""
    return np.asarray((random.random((rows, 3)).sum(axis=1) - 1.5) * 2)


def _misreport(random: np.random.Generator, age: Numbers, rating: Numbers, defects: Defects) -> None:
    """Overwrite, in place, some drivers' facts with placeholders out of range; the minutes came from the true ones."""
    kind = random.random(len(age))
    too_good = kind < defects.too_good
    too_young = ~too_good & (kind < defects.too_good + defects.too_young)
    age[too_good], rating[too_good] = 50, 60
    age[too_young], rating[too_young] = 15, 10


def _flip_signs(random: np.random.Generator, restaurant: Floats, eligible: Flags, share: float) -> Floats:
    """Return the restaurants with some signs lost: of the latitude, and in four of ten cases of the longitude too."""
    latitude = eligible & (random.random(len(restaurant)) < share)
    longitude = latitude & (random.random(len(restaurant)) < 0.38)
    signs: Any = np.where(np.stack([latitude, longitude], axis=1), -1.0, 1.0)
    return np.asarray(restaurant * signs)
