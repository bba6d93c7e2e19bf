"""The training of a model that has one feature."""

from __future__ import annotations

from wasmline.job_specs import TrainSpec

SPEC = TrainSpec(
    model="eta",
    topic="features",
    models="",
    fields={"id": "string", "km": "double", "minutes": "double"},
    features=("km",),
    target="minutes",
    identity="id",
)
