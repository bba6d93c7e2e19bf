"""Columns in the state of a consumer: what runs when, and what is done then."""

from __future__ import annotations

from typing import Any

import pytest

from support.consumers.column_handlers import output_columns
from wasmline.consumer.columns import ColumnResult, RecordColumns
from wasmline.consumer.options import ConsumerOptions
from wasmline.consumer.records import ConsumedRecord, Output
from wasmline.consumer.state import work_manager
from wasmline.consumer.state.column_queue import ColumnBatch, ColumnCall
from wasmline.consumer.state.offsets import InitialProgress
from wasmline.consumer.state.work_manager import CALL_TARGET_S, FIRST_CALL_ROWS, WorkManager
from wasmline.offset_maps import DEFAULT_LIMITS, OffsetMapLimits, decode
from wasmline.topic_partitions import TopicPartition

ORDERS, OTHERS = TopicPartition("orders", 0), TopicPartition("orders", 1)


def work(*partitions: TopicPartition, map_limits: OffsetMapLimits = DEFAULT_LIMITS, **options: Any) -> WorkManager:
    options = {"batch_size": 1_000, "max_concurrency": 1, **options}
    it = WorkManager(ConsumerOptions(topics=("orders",), group_id="billing", **options), map_limits)
    it.assign(dict.fromkeys(partitions or (ORDERS,)))
    return it


def columns(*offsets: int, partition: int = 0) -> RecordColumns:
    return RecordColumns.of([ConsumedRecord("orders", partition, each, b"%d" % (each % 5), b"..") for each in offsets])


def taken(it: WorkManager) -> list[int]:
    """Dispatch, and return the offsets."""
    return [offset for call in it.take_columns() for offset in call.columns.offsets.tolist()]


def finish(it: WorkManager, *, seconds: float = 0.0) -> ColumnBatch:
    """Return the calls in flight of the only partition that has some, and complete their batch."""
    [queue] = [each.columns for each in it if each.columns.batch is not None]
    batch = queue.batch
    assert batch is not None
    found = [it.release_columns(timed(call, seconds)) for call in batch.calls]
    assert found == [None] * (len(found) - 1) + [batch]
    it.complete_columns(batch)
    return batch


def timed(call: ColumnCall, seconds: float) -> ColumnCall:
    call.began, call.seconds = 0.0, seconds
    return call


def base(it: WorkManager, partition: TopicPartition = ORDERS) -> int | None:
    return next(each.offsets.base for each in it if each.partition == partition)


def test_columns_that_a_log_no_longer_has_above_them_run_as_records() -> None:
    """Skipped offsets above them make a map of them, which may be too large for anything else to run."""
    it = work(map_limits=OffsetMapLimits(back_pressure_length=4))
    it.add_columns([columns(*range(0, 40, 3))])
    [only] = it
    it.skip_to(only, 50, 40)
    it.commits()
    assert only.offsets.blocked
    found = []
    while batch := it.take(0.0):
        found += [record.offset for record in batch.records]
        it.release(batch, 0.0)
        it.complete(batch.work, batch.records)
    assert sorted(found) == list(range(0, 40, 3))
    assert base(it) == 50
    it.commits()
    assert not only.offsets.blocked


def test_what_was_read_runs_together_and_what_comes_meanwhile_waits() -> None:
    it = work()
    it.add_columns([columns(0, 1, 2)])
    it.add_columns([columns(5, 6)])
    assert taken(it) == [0, 1, 2, 5, 6]
    it.add_columns([columns(7)])
    assert (taken(it), it.calls_in_flight, it.queued, base(it)) == ([], 1, 1, 0)
    finish(it)
    assert (base(it), it.calls_in_flight) == (7, 0)
    assert taken(it) == [7]
    finish(it)
    [commit] = it.commits().values()
    assert (commit[:2], [each.bytes for each in it]) == ((8, ""), [0])


def test_partitions_run_beside_each_other_in_turn() -> None:
    it = work(ORDERS, OTHERS)
    it.add_columns([columns(0, 1), columns(4, partition=1)])
    assert [taken(it), taken(it), taken(it)] == [[0, 1], [4], []]


def test_a_partition_is_divided_between_the_workers_that_are_free() -> None:
    it = work(max_concurrency=3)
    it.add_columns([columns(*range(200))])
    calls = it.take_columns()
    assert [len(call.columns) for call in calls] == [40, 80, 80]
    assert it.calls_in_flight == 3
    assert it.release_columns(calls[1]) is None
    assert (it.take_columns(), base(it)) == ([], 0)
    batch = calls[0].batch
    assert [it.release_columns(calls[0]), it.release_columns(calls[2])] == [None, batch]
    it.complete_columns(batch)
    assert base(it) == 200


def test_calls_have_as_many_records_as_take_a_quarter_of_a_second() -> None:
    it = work(batch_size=4_000)
    it.add_columns([columns(*range(10_000))])
    assert len(taken(it)) == FIRST_CALL_ROWS
    finish(it, seconds=CALL_TARGET_S / 1_000)
    assert taken(it) == list(range(FIRST_CALL_ROWS, 3 * FIRST_CALL_ROWS))
    finish(it, seconds=CALL_TARGET_S / 1_000)
    for _ in range(4):
        size = len(taken(it))
        finish(it, seconds=CALL_TARGET_S / 1_000)
    assert size == 10_000 - 15 * FIRST_CALL_ROWS - 4_000
    it.add_columns([columns(*range(10_000, 20_000))])
    assert len(taken(it)) == 4_000
    finish(it, seconds=400 * CALL_TARGET_S)
    assert taken(it) == list(range(14_000, 14_010))
    finish(it, seconds=10 * 1_000 * CALL_TARGET_S)
    assert taken(it) == [14_010]
    finish(it)
    assert base(it) == 14_011


def test_large_records_are_in_several_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work_manager, "MAX_CALL_BYTES", 12)  # of three bytes each
    it = work()
    it.add_columns([columns(0), columns(1, 2), columns(3, 4, 5, 6, 7, 8, 9)])
    found = []
    while offsets := taken(it):
        found.append(offsets)
        finish(it)
    assert found == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert (base(it), [each.bytes for each in it]) == (10, [0])


def test_what_is_done_above_what_is_not_is_in_the_map() -> None:
    it = work()
    it.add_columns([columns(0, 1, 2)])
    taken(it)
    [first] = it
    batch = first.columns.batch
    assert batch is not None
    it.release_columns(batch.calls[0])
    it.add_columns([columns(4, 5)])
    taken(it)
    finish(it)
    [commit] = it.commits().values()
    assert (commit.offset, decode(commit.metadata, 0)) == (0, (5, (0, 1, 2)))
    it.complete_columns(batch)
    [commit] = it.commits().values()
    assert commit[:2] == (6, "")


def test_records_that_a_map_has_as_done_are_left_out_and_columns_wait_for_the_others() -> None:
    it = work()
    it.assign({ORDERS: InitialProgress(3, 6, (3, 5))})
    it.add_columns([columns(3, 4, 5, 6, 7)])
    it.add_columns([columns(8, 9)])
    assert it.take_columns() == []
    done = []
    while batch := it.take(0.0):
        done += [record.offset for record in batch.records]
        it.release(batch, 0.0)
        it.complete(batch.work, batch.records)
    assert sorted(done) == [3, 5, 7]
    assert taken(it) == [8, 9]


def test_records_below_those_read_before_are_told_and_not_run() -> None:
    it = work()
    it.add_columns([columns(0, 1, 2)])
    assert it.add_columns([columns(1, 2, 3), columns(2)]) == {ORDERS: 1}
    assert taken(it) == [0, 1, 2, 3]
    finish(it)
    assert (base(it), [each.bytes for each in it]) == (4, [0])


def test_records_that_come_twice_in_one_poll_run_once() -> None:
    it = work()
    assert it.add_columns([columns(3, 4, 4, 6, 5, 3, 7)]) == {ORDERS: 4}
    assert taken(it) == [3, 4, 6, 7]
    finish(it)
    assert base(it) == 8


def test_a_batch_of_an_assignment_that_is_over_changes_nothing_and_its_keys_wait_for_it() -> None:
    it = work()
    it.add_columns([columns(0, 1)])
    [call] = it.take_columns()
    it.add_columns([columns(2)])
    it.revoke([ORDERS])
    it.assign({ORDERS: None})
    it.add_columns([columns(0, 1, 2)])
    assert (it.take_columns(), it.calls_in_flight) == ([], 1)
    batch = call.batch
    assert it.release_columns(call) is batch
    it.complete_columns(batch)
    assert it.run_as_records(batch) == []
    assert (base(it), taken(it)) == (0, [0, 1, 2])


def test_a_batch_whose_partition_is_elsewhere_is_taken_back() -> None:
    it = work()
    it.add_columns([columns(0, 1)])
    [call] = it.take_columns()
    it.revoke([ORDERS])
    batch = call.batch
    assert it.release_columns(call) is batch
    it.assign({ORDERS: None})
    it.add_columns([columns(0, 1)])
    assert taken(it) == [0, 1]


def test_records_of_a_batch_that_failed_run_one_by_one_before_those_behind_them() -> None:
    it = work()
    it.add_columns([columns(0, 1, 5, 6)])
    [call] = it.take_columns()
    it.add_columns([columns(7)])
    batch = it.release_columns(call)
    assert batch is not None
    assert [record.offset for record in it.run_as_records(batch)] == [0, 1, 5, 6]
    assert it.take_columns() == []
    single = []
    while (one := it.take(0.0)) is not None:
        single.append([record.offset for record in one.records])
        it.release(one, 0.0)
        it.complete(one.work, one.records)
    assert sorted(single) == [[0], [1], [5], [6]]
    assert (base(it), taken(it)) == (7, [7])
    finish(it)
    assert [each.bytes for each in it] == [0]


def test_a_partition_that_runs_alone_runs_its_columns_as_records() -> None:
    it = work()
    [only] = it
    it.run_alone(only, 1)
    it.add_columns([columns(0, 1, 2)])
    assert it.take_columns() == []
    batch = it.take(0.0)
    assert batch is not None
    assert [record.offset for record in batch.records] == [0]


def test_a_handler_of_one_record_a_call_runs_a_partition_alone_as_records() -> None:
    it = work(batch_size=1)
    [only] = it
    it.run_alone(only, 1)
    it.add_columns([columns(0, 1, 2)])
    assert it.take_columns() == []
    assert it.take(0.0) is not None


def test_nothing_of_a_partition_that_is_held_is_dispatched() -> None:
    it = work()
    it.add_columns([columns(0)])
    it.hold([ORDERS])
    assert it.take_columns() == []
    assert it.ready == 1


def test_calls_stay_below_half_of_their_time_limit() -> None:
    it = work(batch_size=4_000, handler_timeout_ms=100)
    it.add_columns([columns(*range(1_000))])
    assert len(taken(it)) == FIRST_CALL_ROWS
    finish(it, seconds=0.5)
    assert len(taken(it)) == FIRST_CALL_ROWS // 10


def test_records_wait_for_the_columns_before_them() -> None:
    it = work()
    it.add_columns([columns(0, 1, 2)])
    taken(it)
    it.add_columns([columns(2, 3)])
    assert taken(it) == []
    finish(it)
    assert taken(it) == [3]


def keyed(key: bytes | None, begin: int, end: int) -> RecordColumns:
    return RecordColumns.of([ConsumedRecord("orders", 0, each, key, b"..") for each in range(begin, end)])


@pytest.mark.parametrize(
    ("key", "options"),
    [(b"hot", {}), (None, {}), (b"hot", {"ordering": "partition"})],
    ids=["hot", "null", "partition"],
)
def test_a_call_has_no_more_rows_where_few_keys_leave_workers_idle(key: bytes | None, options: dict[str, Any]) -> None:
    it = work(batch_size=100, max_concurrency=8, **options)
    it.add_columns([keyed(key, 0, 150), keyed(key, 150, 300)])
    found = []
    while calls := it.take_columns():
        found.append([call.columns.offsets.tolist() for call in calls])
        finish(it)
    assert found == [[list(range(begin, begin + 100))] for begin in (0, 100, 200)]
    assert (base(it), [each.bytes for each in it]) == (300, [0])


def test_a_hot_key_shares_its_batch_with_the_others_that_fit() -> None:
    it = work(batch_size=100, max_concurrency=2)
    records = [ConsumedRecord("orders", 0, each, b"cold" if each % 4 == 0 else b"hot", b"") for each in range(400)]
    it.add_columns([RecordColumns.of(records)])
    done: list[int] = []
    while calls := it.take_columns():
        assert all(len(call.columns) <= 100 for call in calls)
        assert len(calls) == 2
        offsets = sorted(offset for call in calls for offset in call.columns.offsets.tolist())
        assert offsets == list(range(len(done), len(done) + len(offsets)))
        done += offsets
        finish(it)
    assert done == list(range(400))
    assert base(it) == 400


def test_a_hot_key_with_large_records_stays_within_both_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes are shared out by the records' mean, and the first ones may be the large ones."""
    monkeypatch.setattr(work_manager, "MAX_CALL_BYTES", 300)
    it = work(batch_size=100, max_concurrency=2)
    sizes = [10] * 80 + [1] * 320
    it.add_columns(
        [RecordColumns.of([ConsumedRecord("orders", 0, n, b"", b"x" * each) for n, each in enumerate(sizes)])]
    )
    done: list[int] = []
    while calls := it.take_columns():
        done += sorted(offset for call in calls for offset in call.columns.offsets.tolist())
        finish(it)
    assert done == list(range(400))


@pytest.mark.parametrize(("outputs", "size", "rows"), [(100, 0, 500), (1, 1 << 20, 16), (0, 0, 512)])
def test_calls_with_many_outputs_have_few_records(outputs: int, size: int, rows: int) -> None:
    """Those of a batch are in one transaction."""
    it = work()
    it.add_columns([columns(*range(2_000))])
    [call] = it.take_columns()
    assert len(call.columns) == FIRST_CALL_ROWS
    written = [Output("out", b"", timestamp=0)] * (outputs * FIRST_CALL_ROWS)
    made = output_columns(written, sorted(list(range(FIRST_CALL_ROWS)) * outputs))
    made.size = size * FIRST_CALL_ROWS
    call.result = ColumnResult(made)
    finish(it)
    assert len(taken(it)) == rows


def test_a_call_is_still_wanted_once_another_of_its_batch_was_begun() -> None:
    it = work(max_concurrency=2)
    it.add_columns([columns(*range(200))])
    first, second = it.take_columns()
    assert (first.is_wanted, second.is_wanted) == (True, True)
    it.hold([ORDERS])
    assert (first.is_wanted, second.is_wanted) == (False, False)
    first.began = 1.0
    assert second.is_wanted
    it.revoke([ORDERS])
    assert not second.is_wanted
