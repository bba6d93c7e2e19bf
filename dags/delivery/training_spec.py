"""The delivery-time model: its features and its usable deliveries."""

from __future__ import annotations

from typing import Any

from wasmline.job_specs import TrainSpec

MODEL = "delivery-eta"

FEATURES = ("distance_km", "age", "rating", "vehicle")
"""Features of the model; the type of order, the city and the driver add nothing to these."""

VEHICLES = ("motorcycle", "scooter", "electric_scooter", "bicycle")

PLAUSIBLE = "rating BETWEEN 1 AND 5 AND age BETWEEN 18 AND 49 AND time_min > 0 AND time_min <= 180"
"""Excludes the placeholders, ages of 15 and 50 with ratings of 1 and 6, and times of which one could change a model.

Coordinates near zero stay: the restaurant is in the sea, but the distance to the destination is still correct, and the
model is as good with them as without.
"""


TRAINING: dict[str, Any] = {
    "model": MODEL,
    "fields": {
        "id": "string",
        "distance_km": "double",
        "age": "double",
        "rating": "double",
        "vehicle": "string",
        "time_min": "double",
    },
    "features": FEATURES,
    "categories": {"vehicle": VEHICLES},
    "units": {"distance_km": "km", "age": "years", "rating": "stars", "time_min": "min"},
    "target": "time_min",
    "identity": "id",
    "where": PLAUSIBLE,
    "segments": ("vehicle",),
}
"""The arguments of TrainModelOperator that are the same in each of its tasks."""


def train_spec(
    *,
    topic: str,
    models: str,
    since_ms: int = 0,
    seed: int = 7,
    margin: float = 0.0,
) -> TrainSpec:
    """Return the training spec of the delivery-time model for a features topic."""
    return TrainSpec(topic=topic, models=models, since_ms=since_ms, seed=seed, margin=margin, **TRAINING)
