"""A consumer of a thousand partitions: what its iterations cost, and how its buffers are divided."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from wasmline.consumer.columns import RecordColumns
from wasmline.consumer.options import ConsumerOptions, RetryPolicy
from wasmline.consumer.records import ConsumedRecord
from wasmline.consumer.state.partition_work import PartitionWork
from wasmline.consumer.state.work_manager import WorkManager
from wasmline.topic_partitions import TopicPartition

PARTITIONS = [TopicPartition("orders", number) for number in range(1_000)]


def work(partitions: list[TopicPartition] = PARTITIONS, **options: Any) -> WorkManager:
    it = WorkManager(ConsumerOptions(topics=("orders",), group_id="billing", **options))
    it.assign(dict.fromkeys(partitions))
    return it


def record(partition: int, offset: int = 0, size: int = 13) -> ConsumedRecord:
    key = b"%03d" % offset
    return ConsumedRecord("orders", partition, offset, key, b"." * (size - len(key)))


def run_records(it: WorkManager, partition: int, offset: int) -> None:
    it.add([record(partition, offset)])
    batch = it.take(0.0)
    assert batch is not None
    assert it.take(0.0) is None
    it.release(batch, 0.0)
    it.complete(batch.work, batch.records)


def run_columns(it: WorkManager, partition: int, offset: int) -> None:
    it.add_columns([RecordColumns.of([record(partition, offset)])])
    [call] = it.take_columns()
    assert it.take_columns() == []
    batch = it.release_columns(call)
    assert batch is not None
    it.complete_columns(batch)


@pytest.mark.parametrize("run", [run_records, run_columns])
def test_an_iteration_costs_as_much_as_its_partitions_and_not_as_all(
    run: Callable[[WorkManager, int, int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    it = work(batch_size=10)
    assert (it.queued, it.ready, it.due, it.is_starved, it.room, it.balance()) == (0, 0, None, False, 10, ([], []))
    looked_at: list[TopicPartition] = []

    class Noting(PartitionWork):
        __slots__ = ()

        def __getattribute__(self, name: str) -> Any:
            looked_at.append(object.__getattribute__(self, "partition"))
            return object.__getattribute__(self, name)

    for each in it:
        each.__class__ = Noting
    for offset in range(3):
        run(it, 7, offset)
        assert (it.queued, it.ready, it.due, it.is_starved, it.room) == (0, 0, None, False, 2_500)
        assert it.balance() == ([], [])
    assert set(looked_at) == {PARTITIONS[7]}


def test_the_first_poll_of_many_partitions_may_be_of_one() -> None:
    it = work(buffer_records=10_000)
    it.add(record(7, offset) for offset in range(2_500))
    assert it.balance() == ([], []), "its equal part is 10 records, and there is room"
    assert it.room == 2_500


def test_a_partition_that_does_not_get_on_leaves_half_of_the_buffers_to_the_others() -> None:
    it = work(PARTITIONS[:100], buffer_records=10_000)
    it.add(record(7, offset) for offset in range(5_000))
    assert it.balance() == ([PARTITIONS[7]], [])
    share = 50  # of the 5,000 that one leaves to 99
    assert it.room == share
    it.add(record(8, offset) for offset in range(share))
    assert it.balance() == ([PARTITIONS[8]], [])
    it.add(record(each.partition, offset) for each in PARTITIONS[9:100] for offset in range(share))
    it.add(record(each.partition, offset) for each in PARTITIONS[:7] for offset in range(share))
    paused, _ = it.balance()
    assert len(paused) == 98
    assert sum(each.buffered for each in it) == 5_000 + 99 * share <= 10_000
    assert it.room == 1


def test_large_records_fill_the_buffers_as_many_do() -> None:
    it = work(PARTITIONS[:100], buffer_bytes=13_000)
    it.add(record(7, offset) for offset in range(10))
    assert it.room == 250, "a quarter of the bytes, of records of 13 bytes"
    it.add(record(7, offset) for offset in range(10, 500))
    assert it.balance() == ([PARTITIONS[7]], [])
    assert it.room == 5


def test_records_are_as_large_as_those_that_were_read_last() -> None:
    it = work(PARTITIONS[:1], buffer_bytes=1_000_000)
    assert it.room == 10, "nothing was read"
    it.add(record(0, offset, 1_000) for offset in range(100))
    for _ in range(100):
        batch = it.take(0.0)
        assert batch is not None
        it.release(batch, 0.0)
    assert it.room == 250, "a quarter of the bytes; none of these records is done"
    it.add([record(0, 100, 100_000)])
    assert it.room == 2, "large ones count at once"
    it.add(record(0, offset, 1_000) for offset in range(101, 110))
    assert it.room == 4, "and small ones by and by"


def test_a_paused_partition_is_read_again_once_the_buffers_are_a_quarter_full() -> None:
    it = work(PARTITIONS[:10], buffer_records=100, max_concurrency=1)
    it.add(record(7, offset) for offset in range(50))
    assert it.balance() == ([PARTITIONS[7]], [])
    for left in range(49, 24, -1):
        batch = it.take(0.0)
        assert batch is not None
        it.release(batch, 0.0)
        it.complete(batch.work, batch.records)
        assert it.balance() == ([], [] if left > 25 else [PARTITIONS[7]]), left


def test_retries_of_many_partitions_are_served_in_the_order_in_which_they_are_due() -> None:
    it = work(PARTITIONS[:3], retry=RetryPolicy(delay_ms=1_000))
    it.add(record(number) for number in range(3))
    for number, batch in enumerate([it.take(0.0), it.take(0.0), it.take(0.0)]):
        assert batch is not None
        it.fail(batch, float(number), OSError("refused"))
    assert (it.due, it.take(0.5), it.queued, it.ready) == (1.0, None, 3, 0)
    found = [(now, batch.work.partition.partition) for now in (1.0, 2.0, 3.0) if (batch := it.take(now))]
    assert found == [(1.0, 0), (2.0, 1), (3.0, 2)]
    assert (it.due, it.queued) == (None, 0)


def test_what_is_revoked_is_in_no_sum() -> None:
    it = work(PARTITIONS[:3], retry=RetryPolicy(delay_ms=1_000))
    it.add(record(number, offset) for number in range(3) for offset in range(4))
    batch = it.take(0.0)
    assert batch is not None
    it.fail(batch, 0.0, OSError("refused"))
    it.revoke(PARTITIONS[:2])
    assert (it.queued, it.ready, it.due) == (4, 4, None)
    it.revoke(PARTITIONS[2:3])
    assert (it.queued, it.ready, it.due, it.take(9.0), it.balance()) == (0, 0, None, None, ([], []))
    assert it.room == 2_500


@pytest.mark.parametrize("large", [1, 2, 25])
def test_partitions_that_have_more_leave_equal_shares_of_the_rest(large: int) -> None:
    it = work(PARTITIONS[:100], buffer_records=10_000)
    for number in range(large):
        it.add(record(number, offset) for offset in range(5_000 // large))
    it.balance()
    for number in range(large, 100):
        it.add([record(number, offset) for offset in range(it.room)])
        it.balance()
    assert 10_000 - 100 <= sum(each.buffered for each in it) <= 10_000
    assert all(each.paused for each in it)


def test_a_stuck_partition_that_overfills_a_buffer_leaves_the_others_more_than_one_record() -> None:
    it = work(PARTITIONS[:2], buffer_records=10_000)
    it.add(record(0, offset) for offset in range(11_000))
    assert it.balance() == ([PARTITIONS[0]], [])
    assert it.room == 625
