from collections.abc import Iterable

import pytest

from wasmline.consumer.state.offsets import Commit, InitialProgress, PartitionOffsets
from wasmline.offset_maps import DEFAULT_LIMITS, decode


def read(offsets: PartitionOffsets, numbers: Iterable[int]) -> list[int]:
    """Admit these, and return those that are to be done."""
    return [number for number in numbers if offsets.admit(number)]


def begun(*numbers: int, done: Iterable[int] = ()) -> PartitionOffsets:
    offsets = PartitionOffsets()
    read(offsets, numbers)
    for number in done:
        offsets.done(number)
    return offsets


def committed(offsets: PartitionOffsets) -> Commit:
    commit = offsets.commit()
    assert commit is not None
    return commit


def test_a_partition_without_a_commit_has_nothing_to_commit_before_something_is_done() -> None:
    assert PartitionOffsets().base is None
    assert PartitionOffsets().commit() is None
    assert begun(7, 8).commit() is None
    assert begun(7, 8).base == 7


def test_the_lowest_incomplete_offset_is_committed_beside_what_is_done_above_it() -> None:
    offset, metadata, _ = committed(begun(0, 1, 2, 3, 4, done=[4, 0, 2]))
    assert offset == 1
    assert decode(metadata, offset) == (4, (1, 3))


def test_once_all_is_done_the_next_offset_is_committed_alone() -> None:
    assert committed(begun(3, 4, done=[4, 3]))[:2] == (5, "")


def test_a_gap_in_the_log_holds_nothing_up() -> None:
    offsets = begun(3, 5, 90, done=[3])
    assert offsets.base == 5
    offsets.done(5)
    assert offsets.base == 90


def test_a_restart_runs_what_was_not_done_and_nothing_else() -> None:
    first = begun(*range(10), done=[0, 1, 3, 5, 6, 8])
    offset, metadata, _ = committed(first)
    second = PartitionOffsets(InitialProgress(offset, *decode(metadata, offset)))
    assert second.base == 2
    assert read(second, range(2, 12)) == [2, 4, 7, 9, 10, 11]


def test_the_first_record_after_a_commit_without_a_map_is_not_skipped() -> None:
    offsets = PartitionOffsets(InitialProgress(5, 4))
    assert read(offsets, [5, 6]) == [5, 6]


@pytest.mark.parametrize(("numbers", "base"), [([2, 3, 4, 5], 2), ([4, 5], 4), ([5], 6), ([9], 9)])
def test_incompletes_that_the_log_no_longer_has_are_done(numbers: list[int], base: int) -> None:
    offsets = PartitionOffsets(InitialProgress(2, 5, (2, 4)))
    for number in read(offsets, numbers):
        assert number in (2, 4, 9)
    assert offsets.base == base


def test_a_map_that_lost_its_records_is_committed_anew() -> None:
    offsets = PartitionOffsets(InitialProgress(2, 5, (2, 4)))
    read(offsets, [3, 4])
    assert committed(offsets).offset == 4


def test_what_was_done_since_the_snapshot_is_committed_next() -> None:
    offsets = begun(0, 1, done=[0])
    commit = committed(offsets)
    offsets.done(1)
    offsets.committed(commit)
    assert committed(offsets).offset == 2


def test_a_commit_without_an_answer_is_made_again() -> None:
    offsets = begun(0, 1, done=[0])
    assert committed(offsets) == committed(offsets)
    offsets.committed(committed(offsets))
    assert offsets.commit() is None


def test_a_late_answer_to_an_older_commit_takes_nothing_back() -> None:
    offsets = begun(0, 1, done=[0])
    older = committed(offsets)
    offsets.done(1)
    offsets.committed(committed(offsets))
    offsets.committed(older)
    assert offsets.commit() is None


@pytest.mark.parametrize(
    ("undone", "offset", "highest"), [([4], 4, 3), ([3], 3, 4), ([4, 3], 3, 2), ([0, 1, 2, 3, 4], 0, -1)]
)
def test_a_record_that_is_incomplete_again_is_not_the_highest_that_succeeded(
    undone: list[int], offset: int, highest: int
) -> None:
    offsets = begun(*range(5), done=range(5))
    for number in undone:
        offsets.undo(number)
    assert (offsets.base, offsets.highest_succeeded) == (offset, highest)
    again = begun(*range(5), done=set(range(5)).difference(undone))
    assert committed(offsets)[:2] == committed(again)[:2] if highest >= 0 else again.commit() is None


def scattered(count: int) -> PartitionOffsets:
    """A partition of which about half is done, without a pattern that would compress."""
    return begun(*range(count), done=[number for number in range(1, count) if pow(3, number, 65_537) % 2])


def test_a_map_above_the_pressure_is_committed_and_blocks_the_partition_until_it_is_smaller() -> None:
    offsets = scattered(20_000)
    assert DEFAULT_LIMITS.back_pressure_length < len(committed(offsets).metadata) <= DEFAULT_LIMITS.max_metadata_length
    assert offsets.blocked
    offsets.done(0)
    for number in range(1, 20_000):
        if not pow(3, number, 65_537) % 2:
            offsets.done(number)
    assert committed(offsets)[:2] == (20_000, "")
    assert not offsets.blocked


def test_a_map_that_no_broker_takes_holds_the_commit_back_to_a_moment_whose_map_one_takes() -> None:
    offsets = scattered(30_000)
    first = committed(offsets)
    assert offsets.blocked
    assert DEFAULT_LIMITS.back_pressure_length < len(first.metadata) <= DEFAULT_LIMITS.max_metadata_length
    highest, incompletes = decode(first.metadata, first.offset)
    finished = [offset for offset in range(first.offset, highest + 1) if offset not in set(incompletes)]
    assert 18_000 < highest < 29_000
    assert finished == [offset for offset in range(1, highest + 1) if pow(3, offset, 65_537) % 2]
    offsets.committed(first)
    assert offsets.commit() is None, "nothing more of it fits"
    for number in range(30_000):
        if number == 0 or not pow(3, number, 65_537) % 2:
            offsets.done(number)
    assert committed(offsets)[:2] == (30_000, "")


def test_what_is_done_together_is_committed_together() -> None:
    offsets = begun(*range(60_000))
    offsets.done(*[number for number in range(1, 20_000) if pow(3, number, 65_537) % 2])
    first = committed(offsets)
    offsets.done(*[number for number in range(20_000, 60_000) if pow(3, number, 65_537) % 2])
    assert committed(offsets) == first
    assert offsets.blocked


def test_what_was_never_committed_can_be_undone() -> None:
    offsets = begun(0, 1, 2, 3, done=[0, 1, 3])
    assert committed(offsets).offset == 2
    offsets.undo(1)
    offset, metadata, _ = committed(offsets)
    assert (offset, decode(metadata, offset)) == (1, (3, (1, 2)))


def test_what_is_not_done_below_the_highest_stays_incomplete_in_the_last_place() -> None:
    offsets = PartitionOffsets(InitialProgress(7, 12, (7, 10, 11, 12)))
    assert read(offsets, range(7, 14)) == [7, 10, 11, 12, 13]


@pytest.mark.parametrize(
    ("cut", "expected"),
    [
        (0, InitialProgress(0, -1)),
        (2, InitialProgress(2, 1)),
        (3, InitialProgress(2, 2, (2,))),
        (5, InitialProgress(2, 4, (2, 4))),
        (6, InitialProgress(2, 5, (2, 4))),
        (9, InitialProgress(2, 5, (2, 4))),
    ],
)
def test_of_what_was_committed_that_below_a_cut_still_holds(cut: int, expected: InitialProgress) -> None:
    assert InitialProgress(2, 5, (2, 4)).below(cut) == expected


def test_a_commit_without_a_map_holds_below_a_cut() -> None:
    assert [InitialProgress(5, 4).below(cut) for cut in (3, 5, 7)] == [
        InitialProgress(3, 2),
        InitialProgress(5, 4),
        InitialProgress(5, 4),
    ]


def test_a_run_is_done_at_once_and_is_incomplete_until_then() -> None:
    offsets = begun(0, done=[0])
    offsets.admit_run([1, 2, 5])
    offsets.admit_run([6, 7])
    assert (offsets.base, offsets.incompletes, offsets.next) == (1, 5, 8)
    offsets.done(6)
    offset, metadata, _ = committed(offsets)
    assert (offset, decode(metadata, offset)) == (1, (7, (1, 2, 5)))
    offsets.done(1)
    assert committed(offsets)[:2] == (8, "")


def test_a_run_is_split_and_divided() -> None:
    offsets = begun()
    offsets.admit_run([1, 2, 5])
    offsets.admit_run([6, 7])
    offsets.split(1, 2)
    offsets.divide({6})
    offsets.done(5, 7)
    offset, metadata, _ = committed(offsets)
    assert (offset, decode(metadata, offset)) == (1, (7, (1, 2, 6)))
    offsets.done(1)
    assert offsets.base == 6
    offsets.done(6)
    assert offsets.base == 8


def test_an_undone_record_of_a_run_is_the_next_to_be_done() -> None:
    offsets = begun()
    offsets.admit_run([1, 2, 5])
    offsets.admit_run([6, 7])
    offsets.done(1)
    offsets.undo(2)
    assert (offsets.base, offsets.incompletes) == (2, 3)
    offsets.done(6)
    offset, metadata, _ = committed(offsets)
    assert (offset, decode(metadata, offset)) == (2, (7, (2,)))


def test_a_run_is_admitted_only_where_all_of_it_is_to_be_done() -> None:
    offsets = PartitionOffsets(InitialProgress(3, 6, (3, 5)))
    assert not offsets.admits_run(3)
    assert read(offsets, range(3, 7)) == [3, 5]
    assert not offsets.admits_run(6)
    assert offsets.admits_run(7)
    assert PartitionOffsets().admits_run(0)
