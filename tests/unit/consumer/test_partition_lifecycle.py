"""Records that are read again: from a log that was truncated, or by a client that returned them twice."""

from __future__ import annotations

from collections.abc import Collection
from types import SimpleNamespace
from typing import Any, cast

import pytest

from wasmline.consumer import ConsumedRecord, ConsumerOptions
from wasmline.consumer.health import Counters
from wasmline.consumer.runtime.partition_lifecycle import PartitionLifecycle
from wasmline.consumer.state.work_manager import WorkManager
from wasmline.errors import BrokerUnavailable, OffsetOutOfRange
from wasmline.topic_partitions import TopicPartition

PARTITION = TopicPartition("orders", 0)
READ = 10


class Source:
    """``end``: the end offset of the log, or why it is unknown."""

    def __init__(self, end: int | Exception) -> None:
        self.end = end
        self.paused: list[TopicPartition] = []

    def end_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        if isinstance(self.end, Exception):
            raise self.end
        return dict.fromkeys(partitions, self.end)

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        self.paused += partitions


@pytest.fixture
def work() -> WorkManager:
    """A partition of which READ records were read."""
    work = WorkManager(ConsumerOptions(topics=("orders",), group_id="group"))
    work.assign({PARTITION: None})
    work.add([ConsumedRecord(*PARTITION, offset, b"%d" % offset, b"") for offset in range(READ)])
    return work


def lifecycle(work: WorkManager, source: Source, *, fails_on_loss: bool) -> PartitionLifecycle:
    committer: Any = SimpleNamespace(close=lambda partitions: None)
    return PartitionLifecycle(work, cast(Any, source), committer, Counters(), fails_on_loss=fails_on_loss)


def test_of_records_that_a_log_lost_and_others_took_the_place_of_a_consumer_ends(work: WorkManager) -> None:
    with pytest.raises(OffsetOutOfRange, match="was truncated"):
        lifecycle(work, Source(READ - 1), fails_on_loss=True).reread({PARTITION: 4})
    assert len(list(work)) == 1


@pytest.mark.parametrize("end", [READ - 1, BrokerUnavailable("away", bootstrap_servers="x")])
def test_where_that_is_allowed_or_the_end_is_unknown_the_partition_is_reopened(
    end: int | Exception, work: WorkManager
) -> None:
    source = Source(end)
    (earlier,) = work
    lifecycle(work, source, fails_on_loss=isinstance(end, Exception)).reread({PARTITION: 4})
    assert (list(work), source.paused, earlier.closed) == ([], [PARTITION], True)


def test_records_that_a_client_returned_twice_change_nothing(work: WorkManager) -> None:
    source = Source(READ)
    lifecycle(work, source, fails_on_loss=True).reread({PARTITION: 4})
    assert (work.queued, source.paused) == (READ, [])
