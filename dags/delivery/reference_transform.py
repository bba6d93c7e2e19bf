"""Reference implementation of the transform in plain Python, row by row, for tests and benchmarks."""

from __future__ import annotations

import json

from delivery.contract import Violation, read
from delivery.great_circle import haversine_km


def transform(value: bytes | None) -> bytes | Violation:
    """Return the expected feature of a raw record as JSON, or why it must be dead-lettered."""
    delivery = read(value)
    if isinstance(delivery, Violation):
        return delivery
    feature = {
        "id": delivery.id,
        "driver": delivery.driver,
        "age": delivery.age,
        "rating": delivery.rating,
        "distance_km": float(haversine_km(*delivery.restaurant, *delivery.destination)),
        "order_type": delivery.order_type,
        "vehicle": delivery.vehicle,
        "time_min": delivery.time_min,
    }
    return json.dumps(feature, ensure_ascii=False, separators=(",", ":")).encode()
