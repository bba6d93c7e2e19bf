"""What is left of a partition, by what its group has committed."""

from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wasmline.errors import InvalidOffsetMetadata, JobError
from wasmline.job_offsets.exactly_once_task import RemainingOffsets, filter_unprocessed
from wasmline.offset_maps.codec import encode, parse
from wasmline.topic_partitions import CommittedOffset


def rows(partitions: Sequence[int], offsets: Sequence[int]) -> pa.RecordBatch:
    columns = [pa.array(partitions, pa.int32()), pa.array(offsets, pa.int64())]
    return pa.RecordBatch.from_arrays(columns, names=["partition", "offset"])


def done(progress: CommittedOffset, last: int) -> set[int]:
    left = filter_unprocessed(rows([3] * last, range(last)), {3: RemainingOffsets(progress)})
    return set(range(last)) - set(left.column("offset").to_pylist())


def test_without_a_map_what_is_below_the_offset_is_done() -> None:
    assert done(CommittedOffset(7), 20) == set(range(7))


@given(st.integers(0, 10), st.sets(st.integers(0, 29)), st.integers(0, 30))
def test_what_was_done_stays_done_and_what_is_below_the_end_becomes_so(base: int, some: set[int], end: int) -> None:
    finished = {offset for offset in some if offset > base}
    highest = max(finished, default=base - 1)
    incompletes = [offset for offset in range(base, highest) if offset not in finished]
    progress = CommittedOffset(base, encode(base, highest, incompletes))
    assert done(progress, 40) == set(range(base)) | finished

    after = RemainingOffsets(progress).after(end)

    assert after.offset >= base
    assert done(after, 40) == set(range(max(base, end))) | finished


def test_progress_without_a_change_is_the_same() -> None:
    progress = CommittedOffset(5, encode(5, 9, [5, 7]))
    assert RemainingOffsets(progress).after(5) == progress
    assert parse(RemainingOffsets(progress).after(6).metadata, 7) == (9, (7,))


def test_a_map_that_cannot_be_read_is_an_error_and_not_an_empty_one() -> None:
    with pytest.raises(InvalidOffsetMetadata):
        RemainingOffsets(CommittedOffset(5, "!"))


def test_the_rows_that_are_left_are_not_copied_where_all_are() -> None:
    batch = rows([0] * 10, range(10, 20))
    assert filter_unprocessed(batch, {0: RemainingOffsets(CommittedOffset(10))}) is batch
    assert filter_unprocessed(batch.slice(0, 0), {0: RemainingOffsets(CommittedOffset(10))}).num_rows == 0


def test_each_partition_has_what_is_left_of_it_and_the_rows_keep_their_order() -> None:
    batch = rows([7, 71, 7, 71, 7, 71], [4, 4, 5, 5, 6, 6])
    left = {7: RemainingOffsets(CommittedOffset(5)), 71: RemainingOffsets(CommittedOffset(4, encode(4, 6, [4])))}
    assert filter_unprocessed(batch, left).to_pydict() == {"partition": [71, 7, 7], "offset": [4, 5, 6]}


def test_rows_of_another_partition_are_refused() -> None:
    with pytest.raises(JobError, match="each partition's range in one task"):
        filter_unprocessed(rows([7, 8], [5, 5]), {7: RemainingOffsets(CommittedOffset(5))})
