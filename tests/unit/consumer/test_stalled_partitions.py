"""Partitions whose buffers are full of records that wait."""

from __future__ import annotations

import pytest

from wasmline.consumer import ConsumedRecord, ConsumerOptions
from wasmline.consumer.runtime.stalled_partitions import STALLED_S, StalledPartitions
from wasmline.consumer.state.partition_work import PartitionWork
from wasmline.consumer.state.work_manager import WorkManager
from wasmline.topic_partitions import TopicPartition

PARTITION = TopicPartition("orders", 0)


@pytest.fixture
def work() -> WorkManager:
    """A partition whose buffer is full."""
    work = WorkManager(ConsumerOptions(topics=("orders",), group_id="group", buffer_records=4))
    work.assign({PARTITION: None})
    work.add([ConsumedRecord(*PARTITION, offset, b"%d" % offset, b"") for offset in range(4)])
    assert work.balance() == ([PARTITION], [])
    return work


def of(work: WorkManager) -> PartitionWork:
    (partition,) = work
    return partition


def test_a_full_buffer_of_which_nothing_is_done_is_told_of_once(
    work: WorkManager, caplog: pytest.LogCaptureFixture
) -> None:
    stalls = StalledPartitions()
    stalls.check(work, 100.0)
    assert stalls.seconds(of(work), 103.0) == 3.0
    stalls.check(work, 100.0 + STALLED_S - 0.1)
    assert caplog.messages == []
    stalls.check(work, 100.0 + STALLED_S)
    stalls.check(work, 500.0)
    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith("orders-0: its buffer is full, and none of its 4 records was done for 10 s")
    assert stalls.seconds(of(work), 500.0) == 400.0


def test_a_record_that_is_done_and_room_end_a_stall(work: WorkManager, caplog: pytest.LogCaptureFixture) -> None:
    stalls = StalledPartitions()
    stalls.check(work, 100.0)
    first, second = work.take(105.0), work.take(105.0)
    assert first is not None
    assert second is not None
    work.release(first, 105.0)
    work.complete(of(work), first.records)
    assert stalls.seconds(of(work), 108.0) == 0.0
    stalls.check(work, 108.0)
    stalls.check(work, 100.0 + STALLED_S)
    assert stalls.seconds(of(work), 112.0) == 4.0
    work.release(second, 112.0)
    work.complete(of(work), second.records)
    assert work.balance() == ([], [PARTITION])
    stalls.check(work, 200.0)
    assert stalls.seconds(of(work), 200.0) == 0.0
    assert caplog.messages == []
