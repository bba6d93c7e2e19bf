from collections.abc import Iterable
from typing import Any
from unittest.mock import Mock

import pytest

from wasmline.consumer.options import ConsumerOptions, NullKeys, Ordering, RetryPolicy
from wasmline.consumer.records import BatchResult, ConsumedRecord, Output
from wasmline.consumer.state.calls import MAX_FOLLOWED_CALL_S, Batch
from wasmline.consumer.state.offsets import InitialProgress
from wasmline.consumer.state.work_manager import WorkManager
from wasmline.errors import TerminalFailure
from wasmline.offset_maps import DEFAULT_LIMITS, OffsetMapLimits
from wasmline.topic_partitions import TopicPartition

ORDERS, OTHERS = TopicPartition("orders", 0), TopicPartition("orders", 1)
FAULT = OSError("refused")


def work(*partitions: TopicPartition, map_limits: OffsetMapLimits = DEFAULT_LIMITS, **options: Any) -> WorkManager:
    it = WorkManager(ConsumerOptions(topics=("orders",), group_id="billing", **options), map_limits)
    it.assign(dict.fromkeys(partitions or (ORDERS,)))
    return it


def record(offset: int, key: bytes | None = b"a", partition: int = 0) -> ConsumedRecord:
    return ConsumedRecord("orders", partition, offset, key, b"0123456789")


def records(numbers: Iterable[int], key: bytes | None = b"a", partition: int = 0) -> list[ConsumedRecord]:
    return [record(number, key, partition) for number in numbers]


def taken(it: WorkManager, now: float = 0.0) -> Batch:
    batch = it.take(now)
    assert batch is not None
    return batch


def offsets(batch: Batch) -> list[int]:
    return [each.offset for each in batch.records]


def finish(it: WorkManager, batch: Batch) -> None:
    assert it.release(batch, 0.0) == []
    it.complete(batch.work, batch.records)


def drained(it: WorkManager, now: float = 0.0) -> list[list[int]]:
    found = []
    while batch := it.take(now):
        found.append(offsets(batch))
        finish(it, batch)
    return found


def bases(it: WorkManager) -> dict[TopicPartition, int | None]:
    return {each.partition: each.offsets.base for each in it}


@pytest.mark.parametrize(
    ("ordering", "null_keys", "keys", "at_once"),
    [
        (Ordering.KEY, NullKeys.SERIAL, [b"a", b"b", b"a", None, None], [0, 1, 3]),
        (Ordering.KEY, NullKeys.UNORDERED, [b"a", b"b", b"a", None, None], [0, 1, 3, 4]),
        (Ordering.KEY, NullKeys.SERIAL, [None, b"", b""], [0, 1]),
        (Ordering.PARTITION, NullKeys.SERIAL, [b"a", b"b", None], [0]),
        (Ordering.UNORDERED, NullKeys.SERIAL, [b"a", b"a", None, None], [0, 1, 2, 3]),
    ],
)
def test_only_what_need_not_wait_is_out_at_once(
    ordering: Ordering, null_keys: NullKeys, keys: list[bytes | None], at_once: list[int]
) -> None:
    it = work(ordering=ordering, null_keys=null_keys)
    it.add([record(offset, key) for offset, key in enumerate(keys)])
    found = []
    while batch := it.take(0.0):
        found += offsets(batch)
    assert found == at_once
    assert it.calls_in_flight == len(at_once)


def test_one_key_in_two_partitions_does_not_wait_for_itself() -> None:
    it = work(ORDERS, OTHERS)
    it.add([record(0), record(0, partition=1)])
    assert {taken(it).work.partition, taken(it).work.partition} == {ORDERS, OTHERS}


def test_partitions_are_served_in_turn() -> None:
    it = work(ORDERS, OTHERS, ordering="unordered")
    it.add(records(range(3)) + records(range(3), partition=1))
    assert [taken(it).work.partition for _ in range(4)] == [ORDERS, OTHERS, ORDERS, OTHERS]


def test_a_batch_is_of_one_partition() -> None:
    it = work(ORDERS, OTHERS, batch_size=9)
    it.add(records(range(3)) + records(range(3), partition=1))
    assert drained(it) == [[0, 1, 2], [0, 1, 2]]


def test_a_record_that_failed_runs_again_before_the_others_of_its_key_and_counts_its_attempts() -> None:
    it = work(retry=RetryPolicy(delay_ms=1_000, factor=2))
    it.add(records(range(2)))
    assert it.fail(taken(it), 10.0, FAULT) == []
    assert (it.due, it.take(10.9)) == (11.0, None)
    again = taken(it, 11.0)
    assert (offsets(again), again.records[0].attempt) == ([0], 2)
    it.fail(again, 11.0, FAULT)
    assert it.due == 13.0


def test_a_record_is_given_up_after_its_last_attempt_and_is_done_only_once_it_is_completed() -> None:
    it = work(retry=RetryPolicy(delay_ms=0, max_attempts=2))
    it.add(records(range(2)))
    assert it.fail(taken(it), 0.0, FAULT) == []
    last = taken(it)
    ((given_up, error),) = it.fail(last, 0.0, FAULT)
    assert (given_up.offset, given_up.attempt, error) == (0, 2, FAULT)
    assert bases(it) == {ORDERS: 0}
    it.complete(last.work, [given_up])
    assert bases(it) == {ORDERS: 1}
    assert drained(it) == [[1]]


def test_of_a_batch_only_the_records_that_failed_run_again() -> None:
    it = work(batch_size=9, retry=RetryPolicy(delay_ms=0))
    it.add([record(0, b"a"), record(1, b"a"), record(2, b"a"), record(3, b"b")])
    batch = taken(it)
    ((given_up, _),) = it.release(batch, 0.0, {1: FAULT, 3: TerminalFailure("no")})
    assert given_up.offset == 3
    it.complete(batch.work, [batch.records[0], batch.records[2], given_up])
    assert bases(it) == {ORDERS: 1}
    assert drained(it) == [[1]]


def test_a_batch_of_many_keys_that_fails_as_a_whole_finds_the_record_to_blame() -> None:
    it = work(batch_size=9, retry=RetryPolicy(delay_ms=0, max_attempts=2))
    it.add([record(offset, b"%d" % (offset % 3)) for offset in range(6)])
    calls, lost = [], []
    while batch := it.take(0.0):
        calls.append(offsets(batch))
        if 4 in offsets(batch):
            given_up = [each.record for each in it.fail(batch, 0.0, FAULT)]
            it.complete(batch.work, given_up)
            lost += [each.offset for each in given_up]
        else:
            finish(it, batch)
    assert lost == [4]
    assert sorted(map(len, calls)) == [1] * 7 + [6]
    assert bases(it) == {ORDERS: 6}


def test_a_record_that_failed_by_itself_takes_no_others_with_it() -> None:
    it = work(batch_size=9, retry=RetryPolicy(delay_ms=1_000))
    it.add(records([0], b"a"))
    it.fail(taken(it), 0.0, FAULT)
    it.add(records([1], b"b"))
    assert sorted(drained(it, now=1.0)) == [[0], [1]]


def test_a_result_that_comes_back_after_its_partition_went_changes_nothing() -> None:
    it = work()
    it.add(records(range(2)))
    batch = taken(it)
    it.revoke([ORDERS])
    it.assign({ORDERS: InitialProgress(0, -1)})
    it.add(records(range(2)))
    assert it.take(0.0) is None, "the key is still in somebody's hands"
    finish(it, batch)
    assert bases(it) == {ORDERS: 0}
    assert drained(it) == [[0], [1]]
    assert it.calls_in_flight == 0


@pytest.mark.parametrize("failing", [False, True])
def test_a_key_stays_locked_through_two_rebalances(failing: bool) -> None:
    it = work()
    it.add(records([0]))
    batch = taken(it)
    for _ in range(2):
        it.revoke([ORDERS])
        it.assign({ORDERS: None})
    it.add(records([0]))
    assert it.take(0.0) is None
    assert (it.fail(batch, 0.0, FAULT) if failing else it.release(batch, 0.0)) == []
    assert drained(it) == [[0]]


def test_a_result_may_come_back_while_its_partition_is_elsewhere() -> None:
    it = work()
    it.add(records([0]))
    batch = taken(it)
    it.revoke([ORDERS])
    finish(it, batch)
    it.assign({ORDERS: None})
    it.add(records([0]))
    assert drained(it) == [[0]]


@pytest.mark.parametrize(("moment", "interrupted"), [("assign", "PartitionOffsets"), ("revoke", "Shards.successor")])
def test_a_call_comes_back_after_ctrl_c_in_a_rebalance(
    monkeypatch: pytest.MonkeyPatch, moment: str, interrupted: str
) -> None:
    it = work()
    it.add(records([0]))
    batch = taken(it)
    if moment == "assign":
        it.revoke([ORDERS])
    with monkeypatch.context() as patch:
        patch.setattr(f"wasmline.consumer.state.work_manager.{interrupted}", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            it.assign({ORDERS: None}) if moment == "assign" else it.revoke([ORDERS])
    it.put_back(batch)
    assert it.calls_in_flight == 0


def test_an_engine_need_not_begin_what_belongs_to_a_partition_that_is_gone_or_about_to_go() -> None:
    it = work(ORDERS, OTHERS)
    it.add([record(0), record(0, partition=1)])
    batches = {batch.work.partition: batch for batch in (taken(it), taken(it))}
    it.hold([ORDERS])
    it.revoke([OTHERS])
    assert all(batch.work.held for batch in batches.values())


def test_a_held_partition_hands_out_nothing_and_still_counts_what_is_out() -> None:
    it = work(ordering="unordered")
    it.add(records(range(2)))
    batch = taken(it)
    it.hold([ORDERS])
    assert it.take(0.0) is None
    finish(it, batch)
    assert bases(it) == {ORDERS: 1}


def test_records_of_a_partition_that_is_gone_are_dropped() -> None:
    it = work()
    assert it.add(records([0], partition=1)) == {}
    assert it.queued == 0


def test_records_that_are_returned_twice_are_left_out_whatever_became_of_them() -> None:
    it = work(ordering="unordered")
    it.add(records(range(3)))
    finish(it, taken(it))
    out = taken(it)
    assert it.add(records(range(5))) == {ORDERS: 0}
    finish(it, out)
    assert sorted(drained(it)) == [[2], [3], [4]]


def test_a_partition_is_paused_when_its_share_is_full_and_read_again_when_half_of_it_is_free() -> None:
    it = work(ORDERS, OTHERS, ordering="unordered", buffer_records=20, max_concurrency=1)
    it.add(records(range(9)))
    assert it.balance() == ([], [])
    it.add(records([9]))
    assert it.balance() == ([ORDERS], [])
    for left in (9, 8, 7, 6):
        finish(it, taken(it))
        assert it.balance() == ([], []), left
    finish(it, taken(it))
    assert it.balance() == ([], [ORDERS])


def test_bytes_count_until_the_outputs_are_safe() -> None:
    it = work(ordering="unordered", buffer_bytes=44)
    it.add(records(range(4)))
    assert it.balance() == ([ORDERS], [])
    batches = [taken(it) for _ in range(4)]
    for batch in batches:
        it.release(batch, 0.0)
    assert it.balance() == ([], [])
    for batch in batches[:2]:
        it.complete(batch.work, batch.records)
    assert it.balance() == ([], [ORDERS])
    assert [each.bytes for each in it] == [22]


def test_a_partition_whose_map_is_nearly_too_large_runs_only_what_shrinks_it() -> None:
    it = work(map_limits=OffsetMapLimits(back_pressure_length=4), ordering="unordered")
    it.add(records(range(4)))
    first, second, third = taken(it), taken(it), taken(it)
    finish(it, second)
    it.commits()
    assert it.take(0.0) is None, "3 would make it larger"
    it.add(records([4, 5]))
    it.release(third, 0.0)
    it.complete(third.work, third.records)
    assert it.take(0.0) is None
    finish(it, first)
    it.commits()
    assert drained(it) == [[3], [4], [5]]


def test_a_map_that_ends_in_an_incomplete_offset_lets_that_offset_run() -> None:
    """A result that was undone, or another library, leaves such a map; its last offset shrinks it like the others."""
    it = WorkManager(ConsumerOptions(topics=("orders",), group_id="billing"))
    it.assign({ORDERS: InitialProgress(10, 10, (10,))})
    it.limit_maps(4)
    it.add(records([10, 11], key=None))
    assert drained(it) == [[10]]
    it.commits()
    assert drained(it) == [[11]]


def test_what_the_highest_succeeded_offset_has_passed_may_run_although_it_was_passed_over() -> None:
    it = work(map_limits=OffsetMapLimits(back_pressure_length=4))
    it.add([record(0, b"a"), record(1, b"b"), record(2, b"c"), record(3, b"c"), record(4, b"d")])
    batches = [taken(it) for _ in range(4)]
    finish(it, batches[1])
    it.commits()
    it.release(batches[2], 0.0)
    assert it.take(0.0) is None, "3 lies above 1, the highest that succeeded"
    finish(it, batches[3])
    assert offsets(taken(it)) == [3]


def test_only_partitions_with_something_new_are_committed() -> None:
    it = work(ORDERS, OTHERS)
    it.add([record(0), record(0, partition=1)])
    finish(it, taken(it))
    assert {each.partition: commit.offset for each, commit in it.commits().items()} == {ORDERS: 1}
    assert it.commits([OTHERS]) == {}


def test_the_next_retry_of_all_partitions_is_the_one_that_is_due() -> None:
    it = work(ORDERS, OTHERS, retry=RetryPolicy(delay_ms=1_000))
    it.add([record(0), record(0, partition=1)])
    it.fail(taken(it), 5.0, FAULT)
    it.fail(taken(it), 3.0, FAULT)
    assert it.due == 4.0


def test_a_partition_whose_buffer_waits_for_retries_is_read_on_for_its_other_keys() -> None:
    it = work(buffer_records=16, retry=RetryPolicy(delay_ms=3_600_000, max_delay_ms=3_600_000))
    it.add([*records(range(12), key=b"failing"), *records(range(12, 16), key=b"good")])
    assert it.balance() == ([ORDERS], [])
    it.fail(taken(it), 0.0, FAULT)
    for _ in range(2):
        finish(it, taken(it))
    assert it.balance() == ([], [ORDERS]), "an eighth is free, and there is nothing for most workers"


def test_a_partition_whose_keys_all_fail_is_read_on_although_another_has_enough_for_all_workers() -> None:
    it = work(
        ORDERS,
        OTHERS,
        buffer_records=32,
        max_concurrency=1,
        retry=RetryPolicy(delay_ms=3_600_000, max_delay_ms=3_600_000),
    )
    it.add([*records(range(14), key=b"failing"), *records(range(14, 16), key=b"good")])
    it.add(record(offset, b"%d" % offset, partition=1) for offset in range(8))
    assert it.balance() == ([ORDERS], [])
    while it.of([ORDERS])[0].shards.ready:
        batch = taken(it)
        if batch.work.partition == ORDERS and batch.records[0].key == b"failing":
            it.fail(batch, 0.0, FAULT)
        elif batch.work.partition == ORDERS:
            finish(it, batch)
    assert it.ready > 1
    assert it.balance() == ([], [ORDERS])


def test_records_of_a_list_of_which_an_output_was_refused_run_alone_up_to_the_last() -> None:
    it = work(ordering="unordered", batch_size=4)
    it.add(records(range(12)))
    (only,) = it
    it.run_alone(only, 2)
    assert drained(it) == [[0], [1], [2], [3, 4, 5, 6], [7, 8, 9, 10], [11]]


def test_a_partition_is_starved_once_a_commit_would_let_more_of_it_run() -> None:
    it = work(map_limits=OffsetMapLimits(back_pressure_length=3), ordering="unordered")
    it.add(records(range(4)))
    first, second = taken(it), taken(it)
    finish(it, second)
    it.commits()
    assert not it.is_starved, "0 is out"
    finish(it, first)
    assert it.is_starved
    it.commits()
    assert not it.is_starved


def test_a_batch_that_is_recalled_is_the_next_again_with_what_followed_it() -> None:
    it = work(batch_size=None)
    it.add([*records(range(3)), *records([3], b"b"), *records([4], b"c")])
    first, second = it.take(0.0, 5), it.take(0.0, 5)
    assert first is not None
    assert second is not None
    assert [each.first_offset for each in (first, *first.following_batches, second)] == [0, 1, 2, 3]
    for batch in (second, first):
        it.put_back(batch)
    assert (it.calls_in_flight, it.queued, [each.following for each in it]) == (0, 5, [0])
    assert [offsets(taken(it)) for _ in range(3)] == [[0], [3], [4]]


@pytest.mark.parametrize(
    ("seconds", "outputs", "follows"),
    [
        (0.0, [], True),
        (MAX_FOLLOWED_CALL_S + 0.001, [], False),
        (0.0, [b"x"] * 4, True),
        (0.0, [b"x"] * 5, False),
        (0.0, [b"x" * 100], True),
        (0.0, [b"x" * 101], False),
    ],
)
def test_what_follows_a_long_call_or_many_outputs_is_queued_again(
    seconds: float, outputs: list[bytes], follows: bool
) -> None:
    it = work(batch_size=None, max_concurrency=2, buffer_records=40, buffer_bytes=1_000)
    it.add([*records(range(3)), *records([3], b"b")])
    first = it.take(0.0, 5)
    assert first is not None
    first.result, first.seconds = BatchResult([Output("out", value) for value in outputs]), seconds
    followed = first.follow()
    assert it.release(first, 0.0) == []
    assert (followed is first.next) is follows
    if follows:
        assert (it.calls_in_flight, it.queued) == (1, 2)
    else:
        assert (followed, it.calls_in_flight, it.queued) == (None, 0, 3)
        assert [offsets(taken(it)) for _ in range(2)] == [[3], [1]]


def test_a_suspect_that_is_recalled_runs_alone_again() -> None:
    it = work(batch_size=4)
    it.add([record(0, b"a"), record(1, b"b")])
    it.fail(taken(it), 0.0, FAULT)
    lone = taken(it, 9.0)
    it.put_back(lone)
    assert offsets(taken(it, 9.0)) == offsets(lone) == [0]


def test_a_batch_that_is_recalled_after_its_partition_was_revoked_is_not_queued() -> None:
    it = work()
    it.add(records(range(3)))
    batch = taken(it)
    it.revoke([ORDERS])
    it.put_back(batch)
    it.assign({ORDERS: None})
    assert (it.queued, it.calls_in_flight, it.take(0.0)) == (0, 0, None)


def test_a_retry_that_is_due_above_a_map_that_is_too_large_is_counted() -> None:
    it = work(
        map_limits=OffsetMapLimits(back_pressure_length=4), ordering="unordered", retry=RetryPolicy(delay_ms=1_000)
    )
    it.add(records(range(4)))
    first, second, third, last = (taken(it) for _ in range(4))
    it.fail(last, 0.0, FAULT)
    finish(it, second)
    it.commits()
    assert (it.take(5.0), it.ready, it.due) == (None, 1, None)
    assert {each.offsets.blocked for each in it} == {True}
    finish(it, first)
    finish(it, third)
    it.commits()
    assert offsets(taken(it, 5.0)) == [3]


def test_a_record_that_was_recalled_runs_with_others_unless_it_ran_alone() -> None:
    it = work(batch_size=4)
    it.add([record(0)])
    it.put_back(taken(it))
    it.add([record(1), record(2)])
    assert offsets(taken(it)) == [0, 1, 2]


def test_records_that_are_done_already_tell_how_large_others_are() -> None:
    it = work(buffer_bytes=4_400)
    it.assign({ORDERS: InitialProgress(0, 3, (0,))})
    it.add(records([1, 2, 3]))
    assert (it.queued, it.room) == (0, 100)
