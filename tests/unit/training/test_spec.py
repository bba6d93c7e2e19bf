from dataclasses import replace
from typing import Any

import pytest

from wasmline.documents import decode, encode
from wasmline.errors import InvalidTrainSpec
from wasmline.job_specs import JobSpec, TrainSpec


def test_a_spec_survives_its_journey_as_json(spec: TrainSpec) -> None:
    order = JobSpec(job="eta", run="1", storage="", train=replace(spec, offsets={"0": (1, 2)}))
    assert decode(JobSpec, encode(order)) == order


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"features": ()}, "features"),
        ({"features": ("km", "km")}, "features"),
        ({"features": ("km", "minutes")}, "features"),
        ({"features": ("km", "speed")}, "fields"),
        ({"identity": "uuid"}, "fields"),
        ({"target": "id"}, "target"),
        ({"categories": {}}, "categories"),
        ({"categories": {"kind": ("a",), "km": ("1",)}}, "categories"),
        ({"units": {"speed": "km/h"}}, "fields"),
        ({"units": {"km": ""}}, "units"),
        ({"units": {"km": "k" * 33}}, "units"),
        ({"holdout_share": 0.0}, "holdout_share"),
        ({"holdout_share": 1.0}, "holdout_share"),
        ({"margin": 1.0}, "margin"),
        ({"segments": ("city",)}, "fields"),
        ({"segments": ("kind", "kind")}, "segments"),
        ({"confidence": 1.0}, "confidence"),
        ({"confidence": 0.4}, "confidence"),
        ({"trees": 0}, "trees, depth, min_rows"),
        ({"learning_rate": 0.0}, "learning_rate"),
    ],
)
def test_a_spec_that_has_no_meaning_is_refused_naming_the_field(
    spec: TrainSpec, change: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidTrainSpec) as caught:
        replace(spec, **change)
    assert caught.value.field == field
