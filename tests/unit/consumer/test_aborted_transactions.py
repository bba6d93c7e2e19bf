"""A transaction that is aborted again and again is reported; one that is retried twice is not."""

from __future__ import annotations

import threading

import pytest

from wasmline.consumer import ConsumerOptions, Delivery, Output, ParallelConsumer
from wasmline.consumer.backends.memory import MemoryBackend, MemoryCluster
from wasmline.errors import CommitFailed
from wasmline.local.process import wait_until
from wasmline.topic_partitions import TopicPartition

OPTIONS = ConsumerOptions(topics=("in",), group_id="g", delivery=Delivery.EXACTLY_ONCE, commit_interval_ms=1)
TIMEOUT_S = 60.0


@pytest.mark.parametrize(("aborts", "warnings"), [(2, 0), (20, 2)])
def test_transactions_that_are_aborted_in_a_row_are_warned_of_and_counted(
    caplog: pytest.LogCaptureFixture, aborts: int, warnings: int
) -> None:
    cluster = MemoryCluster()
    cluster.create("in")
    cluster.write(Output("in", b"", key=b"key"))
    for _ in range(aborts):
        cluster.fail_next_commit(CommitFailed("an abortable error"))
    consumer = ParallelConsumer(OPTIONS, MemoryBackend(cluster, OPTIONS))
    thread = threading.Thread(target=consumer.run, args=[lambda record: None])
    thread.start()
    try:
        assert wait_until(lambda: TopicPartition("in", 0) in cluster.committed("g"), TIMEOUT_S)
        assert wait_until(lambda: not any(each.counts.aborts for each in consumer.health().partitions), TIMEOUT_S)
    finally:
        consumer.stop()
        thread.join()
    assert sum("transactions in a row" in each.message for each in caplog.records) == warnings
