import pytest
from hypothesis import given
from hypothesis import strategies as st

from wasmline.offset_ranges import (
    OffsetRanges,
    difference_of,
    intersection_of,
    offsets_beyond,
    ranges_of,
    ranges_text,
    require_ranges,
    union_of,
)


def test_a_partition_has_one_range_or_several() -> None:
    assert list(ranges_of({"0": (1, 5), "2": (0, 3, 7, 9)})) == [(0, 1, 5), (2, 0, 3), (2, 7, 9)]
    assert ranges_text({"0": (1, 5), "2": (0, 3, 7, 9)}) == "0: [1, 5), 2: [0, 3), 2: [7, 9)"


def test_ranges_that_touch_or_overlap_are_one() -> None:
    parts: list[OffsetRanges] = [{"10": (5, 9), "2": (0, 2)}, {"10": (0, 5)}, {"2": (4, 6)}, {"2": (5, 8), "3": (7, 7)}]
    assert union_of(parts) == {"2": (0, 2, 4, 8), "10": (0, 9)}
    assert list(union_of(parts)) == ["2", "10"]


RANGES = st.lists(
    st.tuples(st.sampled_from("012"), st.integers(0, 20), st.integers(0, 9)).map(
        lambda range_: {range_[0]: (range_[1], range_[1] + range_[2])}
    ),
    max_size=8,
).map(union_of)


def offsets_of(ranges: OffsetRanges) -> set[tuple[int, int]]:
    return {(partition, offset) for partition, start, end in ranges_of(ranges) for offset in range(start, end)}


@given(RANGES, RANGES)
def test_ranges_are_combined_as_sets_of_offsets_are(one: OffsetRanges, other: OffsetRanges) -> None:
    for combined, expected in (
        (intersection_of(one, other), offsets_of(one) & offsets_of(other)),
        (difference_of(one, other), offsets_of(one) - offsets_of(other)),
    ):
        assert offsets_of(combined) == expected
        assert combined == union_of([combined])
        require_ranges(combined)


@pytest.mark.parametrize("offsets", [{}, {"0": (0, 0)}, {"0": (5, 5)}, {"0": (0, 1, 2, 3)}, {"10": (0, 2**63 - 1)}])
def test_ranges_are_accepted(offsets: OffsetRanges) -> None:
    require_ranges(offsets)


@pytest.mark.parametrize(
    ("offsets", "fault"),
    [
        ({"x": (0, 1)}, "not the number of a partition"),
        ({"": (0, 1)}, "not the number of a partition"),
        ({"-1": (0, 1)}, "not the number of a partition"),
        ({"01": (0, 1)}, "not the number of a partition"),
        ({"\N{ARABIC-INDIC DIGIT ONE}": (0, 1)}, "not the number of a partition"),
        ({"9" * 5_000: (0, 1)}, "not the number of a partition"),
        ({"2147483648": (0, 1)}, "not the number of a partition"),
        ({"0": ()}, "not pairs"),
        ({"0": (1,)}, "not pairs"),
        ({"0": (0, 1, 2)}, "not pairs"),
        ({"0": (2, 1)}, "not pairs"),
        ({"0": (0, 2, 2, 4)}, "not pairs"),
        ({"0": (0, 2, 1, 4)}, "not pairs"),
        ({"0": (0, 2, 3, 3)}, "not pairs"),
        ({"0": (-1, 1)}, "no offset"),
        ({"0": (0, 2**63)}, "no offset"),
    ],
)
def test_what_is_no_range_is_named(offsets: OffsetRanges, fault: str) -> None:
    with pytest.raises(ValueError, match=fault) as caught:
        require_ranges(offsets)
    assert len(str(caught.value)) < 200


def test_the_offsets_beyond_others_come_after_their_end_in_each_partition() -> None:
    one: OffsetRanges = {"0": (0, 5, 8, 20), "1": (0, 5), "2": (3, 4), "3": (7, 7)}
    assert offsets_beyond(one, {"0": (2, 4, 6, 10), "1": (5, 5)}) == {"0": (10, 20), "2": (3, 4)}
    assert offsets_beyond(one, one) == {}
