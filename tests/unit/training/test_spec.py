from dataclasses import replace
from typing import Any

import pytest

from wasmline.documents import decode, encode
from wasmline.errors import InvalidTrainSpec
from wasmline.job_specs import ROW_COLUMNS, JobSpec, SliceRequest, TrainSpec
from wasmline.training.prepare import HELD_OUT, PLACE, TRANSFORM
from wasmline.training.stored_rows import STAND_IN

SLICE = SliceRequest(run="dag/run")
FIELDS = {"id": "string", "km": "double", "kind": "string", "minutes": "double"}


def test_a_spec_survives_its_journey_as_json(spec: TrainSpec) -> None:
    order = JobSpec(job="eta", run="1", storage="", train=replace(spec, offsets={"0": (1, 2)}))
    assert decode(JobSpec, encode(order)) == order


@pytest.mark.parametrize(
    "request_",
    [SLICE, replace(SLICE, since="beginning", until=1_767_225_600_000), replace(SLICE, since=1, until={"0": 5})],
)
def test_a_request_for_a_slice_survives_it_too(spec: TrainSpec, request_: SliceRequest) -> None:
    wanted = replace(spec, slice=request_, windows=("all", "last 2"), transform_versions=("distance@1.0.0",))
    assert decode(TrainSpec, encode(wanted)) == wanted


@pytest.mark.parametrize(
    "change",
    [
        {"run": ""},
        {"run": "r" * 1_025},
        {"since": 0},
        {"until": -1},
        {"until": 2**63},
        {"since": 5, "until": 5},
        {"until": {"x": 5}},
        {"until": {"0": -1}},
    ],
)
def test_a_request_for_a_slice_that_has_no_meaning_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(InvalidTrainSpec) as caught:
        replace(SLICE, **change)
    assert caught.value.field == "slice"


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"fields": {**FIELDS, "ID": "string"}}, "fields"),
        *(({"fields": {**FIELDS, name: "double"}}, "fields") for name in (*PLACE, TRANSFORM, HELD_OUT, "_STAND_IN")),
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
        ({"offsets": {"0": (2, 1)}}, "offsets"),
        ({"offsets": {"x": (0, 1)}}, "offsets"),
        ({"slice": SLICE, "since_ms": 1}, "slice"),
        ({"slice": SLICE, "offsets": {"0": (0, 1)}}, "slice"),
        ({"slice": SLICE, "windows": ()}, "windows"),
        ({"slice": SLICE, "windows": ("all", "all")}, "windows"),
        ({"slice": SLICE, "windows": ("last 0",)}, "windows"),
        ({"slice": SLICE, "windows": ("last",)}, "windows"),
        ({"slice": SLICE, "windows": ("last 1\n",)}, "windows"),
        ({"slice": SLICE, "min_new_rows": -1}, "min_new_rows"),
        ({"windows": ("all", "last 2")}, "windows"),
        ({"min_new_rows": 1}, "min_new_rows"),
        ({"keep_rows": True}, "keep_rows"),
        ({"transform_versions": ()}, "transform_versions"),
        ({"transform_versions": ("eta",)}, "transform_versions"),
    ],
)
def test_a_spec_that_has_no_meaning_is_refused_naming_the_field(
    spec: TrainSpec, change: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidTrainSpec) as caught:
        replace(spec, **change)
    assert caught.value.field == field


def test_what_a_training_lacks_is_told_with_what_to_write(spec: TrainSpec) -> None:
    with pytest.raises(InvalidTrainSpec, match="windows needs a slice: set since='previous' in TrainModelOperator"):
        replace(spec, windows=("last 7",))
    with pytest.raises(InvalidTrainSpec, match="'last 7 days': write 'all' or 'last N', of N slices, not days"):
        replace(spec, slice=SLICE, windows=("last 7 days",))


def test_no_field_has_the_name_of_a_column_of_rows() -> None:
    assert {*PLACE, TRANSFORM, HELD_OUT, STAND_IN} == ROW_COLUMNS
