"""The delivery-distance transform, built and run in the real host."""

import csv
import json
import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from delivery.reference_transform import transform
from wasmline.build import TransformProject, build, load_project, run_samples
from wasmline.record_batches import RECORD_SCHEMA
from wasmline.wasm import TransformInstance, TransformRuntime

ROOT = Path(__file__).parents[3]
REAL_FILE = ROOT.parent / "shared/data/food_delivery.csv"
EARTH_RADIUS_KM = 6371.0088


@pytest.fixture(scope="module")
def project() -> TransformProject:
    return load_project(ROOT / "wasm_modules/delivery_distance")


@pytest.fixture(scope="module")
def wasm(project: TransformProject, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return Path(build(project, output=tmp_path_factory.mktemp("module") / "m.wasm").path).read_bytes()


@pytest.fixture
def instance(project: TransformProject, wasm: bytes) -> Iterator[TransformInstance]:
    with TransformRuntime().compile(wasm).instantiate(project.context(), project.limits()) as instance:
        yield instance


def batch(*lines: bytes | None) -> pa.RecordBatch:
    columns = {
        "key": [line.split(b",")[1] if line and b"," in line else None for line in lines],
        "value": list(lines),
        "headers": [None] * len(lines),
        "timestamp": [0] * len(lines),
        "partition": [0] * len(lines),
        "offset": list(range(len(lines))),
    }
    return pa.RecordBatch.from_pydict(columns, schema=RECORD_SCHEMA)


def chord_km(latitude1: float, longitude1: float, latitude2: float, longitude2: float) -> float:
    """Distance by another way than the guest's: from the straight line through the earth between two unit vectors."""

    def vector(latitude: float, longitude: float) -> tuple[float, float, float]:
        phi, lam = math.radians(latitude), math.radians(longitude)
        return math.cos(phi) * math.cos(lam), math.cos(phi) * math.sin(lam), math.sin(phi)

    chord = math.dist(vector(latitude1, longitude1), vector(latitude2, longitude2))
    return 2 * EARTH_RADIUS_KM * math.asin(chord / 2)


def test_its_samples_pass(project: TransformProject, wasm: bytes) -> None:
    report = run_samples(project, wasm)
    assert report.failures == 0
    assert report.outputs == report.records


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"i,d,30,4.5,-12.9,77.6,13.0,77.7,Snack,scooter,24", "flipped sign: restaurant_latitude is -12.9"),
        (
            b"i,d,30,4.5,12.9,77.6,13.0,-77.7,Snack,scooter,24",
            "flipped sign: delivery_location_longitude is -77.7",
        ),
        (b"i,d,30,4.5,12.9,77.6,13.0,77.7,Snack,scooter", "wrong number of columns: 10 instead of 11"),
        (b"i,d,30,4.5,12.9,77.6,13.0,77.7,Snack,scooter,24,", "wrong number of columns: 12 instead of 11"),
        (b"", "wrong number of columns: 1 instead of 11"),
        (b'i,d,30,4.5,12.9,77.6,13.0,77.7,"Snack,scooter,24', "wrong number of columns: 9 instead of 11"),
        (b"i,d,old,4.5,12.9,77.6,13.0,77.7,Snack,scooter,24", 'not a number: delivery_person_age is "old"'),
        (b"i,d,30,,12.9,77.6,13.0,77.7,Snack,scooter,24", 'not a number: delivery_person_ratings is ""'),
        (b"i,d,30,4.5,12.9,77.6,inf,77.7,Snack,scooter,24", "not finite: delivery_location_latitude is inf"),
        (b"i,d,30,4.5,12.9,77.6,13.0,77.7,Snack,scooter,nan", "not finite: time_taken(min) is nan"),
        (None, "null value"),
    ],
)
def test_a_record_that_breaks_the_contract_is_passed_on_with_the_reason(
    instance: TransformInstance, line: bytes | None, reason: str
) -> None:
    record = batch(line)
    (output,) = instance.transform(record).outputs.to_pylist()
    assert output["output"] == 1
    assert (output["key"], output["value"]) == (record.column("key")[0].as_py(), line)
    assert output["headers"] == [{"key": "wasmline.reason", "value": reason.encode()}]


def test_defects_that_training_cleans_are_not_rejected(instance: TransformInstance) -> None:
    result = instance.transform(
        batch(
            b"i,d,15,1.0,0.02,0.02,0.03,0.03,Snack,scooter,24",
            b"i,d,50,6,12.9,77.6,13.0,77.7,Snack,scooter,24",
        )
    )
    assert result.outputs.column("output").to_pylist() == [0, 0]


@pytest.mark.parametrize("time", [b"", b"  ", b"\xa0", b'""'])
def test_a_delivery_that_is_under_way_has_features_without_a_time(instance: TransformInstance, time: bytes) -> None:
    line = b"i,d,30,4.5,12.9,77.6,13.0,77.7,Snack,scooter," + time
    (output,) = instance.transform(batch(line)).outputs.to_pylist()
    assert output["output"] == 0
    expected = transform(line)
    assert isinstance(expected, bytes)
    made, document = json.loads(output["value"]), json.loads(expected)
    assert made["time_min"] is None
    assert made.pop("distance_km") == pytest.approx(document.pop("distance_km"))
    assert made == document


def test_text_is_trimmed_and_escaped(instance: TransformInstance) -> None:
    line = '"i ""1""", d\u00a0,30,4.5,12.9,77.6,12.9,77.6,"Snack,\tx ",\u00a0bike\\ \r\n'.encode()
    (rejected,) = instance.transform(batch(line)).outputs.to_pylist()
    assert rejected["headers"][0]["value"] == b"wrong number of columns: 10 instead of 11"
    (output,) = instance.transform(batch(line.replace(b"\r\n", b",24\r\n"))).outputs.to_pylist()
    document = json.loads(output["value"])
    assert [document[name] for name in ("id", "driver", "order_type", "vehicle")] == [
        'i "1"',
        "d",
        "Snack,\tx",
        "bike\\",
    ]
    assert document["distance_km"] == 0


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("voil\u00e0", "voil\u00e0"),  # ends in the byte A0, which is the letter's own
        ("Snack\u00a0\u00a0", "Snack"),
        (b"Snack \xa0\xa0", "Snack"),
        (b"\xa0", ""),
    ],
)
def test_only_a_byte_a0_of_its_own_is_a_blank(instance: TransformInstance, text: str | bytes, kept: str) -> None:
    field = text.encode() if isinstance(text, str) else text
    (output,) = instance.transform(batch(b"i,d,30,4.5,12.9,77.6,13.0,77.7,%b,scooter,24" % field)).outputs.to_pylist()
    assert json.loads(output["value"])["order_type"] == kept


def test_on_the_real_file_every_record_is_accounted_for(instance: TransformInstance) -> None:
    if not REAL_FILE.is_file():
        pytest.skip(f"no {REAL_FILE.name} beside the checkout")
    lines = REAL_FILE.read_bytes().splitlines()[1:]
    records = batch(*lines)
    result = instance.transform(records)
    assert result.failures == ()
    assert result.outputs.column("row").to_pylist() == list(range(len(lines)))
    assert Counter(result.outputs.column("output").to_pylist()) == {0: 45_162, 1: 431}
    for row, output, key, value in zip(
        *(result.outputs.column(name).to_pylist() for name in ("row", "output", "key", "value")), strict=True
    ):
        (fields,) = csv.reader([lines[row].decode()])
        assert key == fields[1].encode()
        if output == 1:
            assert value == lines[row]
            continue
        document = json.loads(value)
        coordinates = [float(field) for field in fields[4:8]]
        assert document["distance_km"] == pytest.approx(chord_km(*coordinates), rel=1e-7, abs=1e-7)
        assert [document[name] for name in ("id", "driver", "order_type", "vehicle")] == [
            fields[index].strip() for index in (0, 1, 8, 9)
        ]
        assert [document[name] for name in ("age", "rating", "time_min")] == [
            float(fields[index]) for index in (2, 3, 10)
        ]
