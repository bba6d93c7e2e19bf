"""What is left of a partition, by what its group has committed."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wasmline.consumer.offset_codec import encode, parse
from wasmline.errors import InvalidOffsetMetadata
from wasmline.pipeline.part import Remaining
from wasmline.records import CommittedOffset


def offsets(first: int, last: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(range(first, last), pa.int64())], names=["offset"])


def done(progress: CommittedOffset, last: int) -> set[int]:
    left = Remaining(progress).of(offsets(0, last)).column("offset").to_pylist()
    return set(range(last)) - set(left)


def test_without_a_map_what_is_below_the_offset_is_done() -> None:
    assert done(CommittedOffset(7), 20) == set(range(7))


@given(st.integers(0, 10), st.sets(st.integers(0, 29)), st.integers(0, 30))
def test_what_was_done_stays_done_and_what_is_below_the_end_becomes_so(base: int, some: set[int], end: int) -> None:
    finished = {offset for offset in some if offset > base}
    highest = max(finished, default=base - 1)
    incompletes = [offset for offset in range(base, highest) if offset not in finished]
    progress = CommittedOffset(base, encode(base, highest, incompletes))
    assert done(progress, 40) == set(range(base)) | finished

    after = Remaining(progress).after(end)

    assert after.offset >= base
    assert done(after, 40) == set(range(max(base, end))) | finished


def test_progress_without_a_change_is_the_same() -> None:
    progress = CommittedOffset(5, encode(5, 9, [5, 7]))
    assert Remaining(progress).after(5) == progress
    assert parse(Remaining(progress).after(6).metadata, 7) == (9, (7,))


def test_a_map_that_cannot_be_read_is_an_error_and_not_an_empty_one() -> None:
    with pytest.raises(InvalidOffsetMetadata):
        Remaining(CommittedOffset(5, "!"))


def test_the_rows_that_are_left_are_not_copied_where_all_are() -> None:
    batch = offsets(10, 20)
    assert Remaining(CommittedOffset(10)).of(batch) is batch
    assert np.array_equal(Remaining(CommittedOffset(15)).of(batch).column("offset"), range(15, 20))
