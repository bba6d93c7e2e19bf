"""Where each record of a dataset is read: in the topic, or in a kept slice."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from support.eta_model import eta_record
from wasmline.digests import digest_of
from wasmline.offset_ranges import OffsetRanges, difference_of, intersection_of, union_of
from wasmline.training.kept_rows import KeptSlice
from wasmline.training.record_source import sources_of

DATASET = replace(eta_record().dataset, topic="features", topic_id="t1", offsets={"0": (0, 30), "1": (5, 9, 12, 20)})


def kept(number: int, offsets: OffsetRanges, *, topic_id: str = "t1", topic: str = "features") -> KeptSlice:
    return KeptSlice(
        model="eta", number=number, topic=topic, topic_id=topic_id, offsets=offsets, records=0, digest=digest_of(b"")
    )


def test_kept_slices_come_first_and_only_the_rest_is_from_the_topic() -> None:
    first, second = kept(1, {"0": (0, 10), "1": (0, 8)}), kept(3, {"0": (10, 28), "1": (8, 14)})
    found = sources_of(DATASET, {"0": (0, 90), "1": (0, 90)}, [first, second])
    assert found.topic == {"0": (28, 30), "1": (14, 20)}
    assert found.kept == ((first, {"0": (0, 10), "1": (5, 8)}), (second, {"0": (10, 28), "1": (8, 9, 12, 14)}))
    assert found.missing == {}


def test_what_is_in_none_is_named() -> None:
    found = sources_of(DATASET, {"0": (12, 25)}, [kept(1, {"0": (0, 10)})])
    assert found.missing == {"0": (10, 12, 25, 30), "1": (5, 9, 12, 20)}


def test_slices_of_another_topic_and_of_one_that_had_its_name_have_no_record_of_it() -> None:
    others = [kept(1, DATASET.offsets, topic_id="t2"), kept(2, DATASET.offsets, topic="raw")]
    assert sources_of(DATASET, {}, others).missing == DATASET.offsets


RANGES = st.lists(
    st.tuples(st.sampled_from("01"), st.integers(0, 35), st.integers(1, 30)).map(
        lambda range_: {range_[0]: (range_[1], range_[1] + range_[2])}
    ),
    max_size=4,
).map(union_of)


@given(RANGES, st.lists(RANGES, max_size=4))
def test_each_offset_is_read_once(held: OffsetRanges, slices: list[OffsetRanges]) -> None:
    found = sources_of(DATASET, held, [kept(number, offsets) for number, offsets in enumerate(slices, 1)])
    parts = [found.topic, *(offsets for _, offsets in found.kept), found.missing]
    assert union_of(parts) == DATASET.offsets
    for place, part in enumerate(parts):
        assert all(not intersection_of(part, other) for other in parts[:place])
    assert not intersection_of(found.missing, union_of([held, *slices]))
    assert found.topic == intersection_of(difference_of(DATASET.offsets, union_of(slices)), held)
