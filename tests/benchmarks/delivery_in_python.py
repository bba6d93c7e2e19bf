"""The deliveries' transform as a Python function that is written to be fast: the rival of the Wasm stage.

It is for records as ``delivery.generator`` writes them, without quoted fields: one split, the standard library's
``math``, and msgspec for the JSON. ``delivery.reference_transform`` keeps every rule of the contract, and takes six
times as long.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from math import asin, cos, isclose, isfinite, radians, sin, sqrt

import msgspec

from delivery import reference_transform
from delivery.contract import COLUMNS
from delivery.great_circle import EARTH_RADIUS_KM

_encode = msgspec.json.Encoder().encode


def transform(value: bytes) -> bytes | None:
    """Return the feature of a raw record as JSON, or None for one that violates the contract."""
    cells = [cell.strip() for cell in value.decode().split(",")]
    if len(cells) != len(COLUMNS):
        return None
    try:
        age, rating, latitude, longitude, to_latitude, to_longitude = map(float, cells[2:8])
        minutes = float(cells[10]) if cells[10] else None
    except ValueError:
        return None
    if not isfinite(age + rating + latitude + longitude + to_latitude + to_longitude + (minutes or 0.0)):
        return None
    if latitude < 0 or longitude < 0 or to_latitude < 0 or to_longitude < 0:
        return None
    start, end = radians(latitude), radians(to_latitude)
    across = radians(to_longitude) - radians(longitude)
    chord = sin((end - start) / 2) ** 2 + cos(start) * cos(end) * sin(across / 2) ** 2
    return _encode(
        {
            "id": cells[0],
            "driver": cells[1],
            "age": age,
            "rating": rating,
            "distance_km": 2 * EARTH_RADIUS_KM * asin(sqrt(min(1.0, chord))),
            "order_type": cells[8],
            "vehicle": cells[9],
            "time_min": minutes,
        }
    )


def require_same(values: Iterable[bytes]) -> None:
    """Raise AssertionError unless all values have the features of the reference; libms differ in the last digit."""
    for value in values:
        expected, found = reference_transform.transform(value), transform(value)
        assert isinstance(expected, bytes) == (found is not None), value
        if isinstance(expected, bytes) and found is not None:
            theirs, ours = json.loads(expected), json.loads(found)
            assert isclose(theirs.pop("distance_km"), ours.pop("distance_km"), rel_tol=1e-12, abs_tol=1e-12), value
            assert theirs == ours, value
