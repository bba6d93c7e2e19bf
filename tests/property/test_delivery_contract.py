"""No bytes whatever make the contract's reader fail; what it accepts is whole."""

import json
import math

from hypothesis import given
from hypothesis import strategies as st

from delivery.contract import FEATURES, Violation, number, read
from delivery.reference_transform import transform

CELLS = st.one_of(
    st.sampled_from([b"12.5", b"-3", b"1e400", b"", b" 7 ", b"nan", b'"a,b"', b"\xa0x\xff"]), st.binary(max_size=6)
)


@given(st.one_of(st.binary(max_size=80), st.lists(CELLS, min_size=10, max_size=12).map(b",".join)))
def test_any_bytes_are_a_delivery_or_a_violation_with_a_reason(value: bytes) -> None:
    found = read(value)
    if isinstance(found, Violation):
        assert found.reason
    else:
        assert min(*found.restaurant, *found.destination) >= 0
        assert all(map(math.isfinite, (found.age, found.rating, found.time_min or 0)))


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_finite_number_is_read_back_from_its_text(value: float) -> None:
    assert number(repr(value)) == value


@given(
    text=st.text(st.characters(codec="utf-8", exclude_characters='",'), max_size=12),
    places=st.tuples(*[st.floats(0, 90)] * 4),
)
def test_a_feature_is_json_with_all_its_fields_and_the_text_as_it_was(text: str, places: tuple[float, ...]) -> None:
    line = ",".join([f"x{text}x", "d", "30", "4.5", *map(repr, places), "Meal ", "bicycle", "20"])
    feature = transform(line.encode())
    assert isinstance(feature, bytes)
    document = json.loads(feature)
    assert tuple(document) == FEATURES
    assert document["id"] == f"x{text}x"
