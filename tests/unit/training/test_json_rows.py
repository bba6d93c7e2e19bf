import pyarrow as pa
import pytest

from wasmline.training.json_rows import MAX_MEMBER_BYTES, json_objects, number, rows_from_json
from wasmline.training.prepare import MAX_NUMBER


def test_members_become_columns_and_those_of_another_type_are_missing() -> None:
    values = [
        b'{"km": 1.5, "age": 30, "vehicle": "scooter", "other": {}}',
        b'{"km": "far", "age": true, "vehicle": 7}',
        b"{}",
    ]
    rows = rows_from_json(values, {"km": "double", "age": "bigint", "vehicle": "string"})
    assert rows == pa.table(
        {"km": [1.5, None, None], "age": [30.0, None, None], "vehicle": ["scooter", None, None]},
        pa.schema([("km", pa.float64()), ("age", pa.float64()), ("vehicle", pa.string())]),
    )


@pytest.mark.parametrize("value", [None, b"", b"\xff", b"[1]", b"7", b'{"km": 1', b"[" * 100_000, b'{"km": "\xff"}'])
def test_a_value_that_is_no_object_is_no_row(value: bytes | None) -> None:
    assert rows_from_json([value, b'{"km": 2}'], {"km": "double"})["km"].to_pylist() == [2.0]


def test_only_the_members_that_are_asked_for_are_decoded_and_of_these_none_that_is_large() -> None:
    tree = b"[" + b"{}," * 300_000 + b"{}]"
    (found,) = json_objects([b'{"id": "d1", "other": %b, "km": %b, "age": 30}' % (tree, tree)], ("id", "km", "age"))
    assert found == {"id": "d1", "age": 30}
    longest = "x" * (MAX_MEMBER_BYTES - 2)
    values = [b'{"vehicle": "%b"}' % text.encode() for text in (longest, longest + "x")]
    assert rows_from_json(values, {"vehicle": "string"})["vehicle"].to_pylist() == [longest, None]


@pytest.mark.parametrize("value", [None, True, "1", 10**400, float("inf"), float("nan"), 2 * MAX_NUMBER, [1]])
def test_what_is_no_finite_number_is_none(value: object) -> None:
    assert number(value) is None
