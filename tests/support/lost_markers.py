"""Makes logs as a broker leaves them that lost transaction markers: those of a stopped node, without some batches.

A log with a gap in its offsets is one that Kafka reads, as compaction leaves such gaps, too. The node has to recover it
whole: what it derived from the log goes.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from wasmline.kafka.record_batch_headers import Batch, batches
from wasmline.local import LocalKafka
from wasmline.topic_partitions import TopicPartition

DERIVED = ("*.index", "*.timeindex", "*.txnindex", "*.snapshot")

Chooses = Callable[[bytes, list[Batch]], list[Batch]]
"""Which of the batches of a log to take out."""


def lose(kafka: LocalKafka, partition: TopicPartition, which: Chooses) -> None:
    """Take batches out of a partition's log, of which there is one segment, while its only node is down."""
    folder = _data(kafka) / f"{partition.topic}-{partition.partition}"
    [log] = folder.glob("*.log")
    data = log.read_bytes()
    there = list(batches(data))
    gone = which(data, there)
    assert gone, f"nothing to lose in {partition}: {there}"
    log.write_bytes(b"".join(data[each.begin : each.end] for each in there if each not in gone))
    for pattern in DERIVED:
        for file in folder.glob(pattern):
            file.unlink()
    for name in (".kafka_cleanshutdown", "recovery-point-offset-checkpoint"):
        (_data(kafka) / name).unlink(missing_ok=True)


def last_marker(producer_id: int) -> Chooses:
    """Choose the newest marker of a producer."""
    return lambda _, there: [each for each in there if each.is_control and each.producer_id == producer_id][-1:]


def containing(text: bytes) -> Chooses:
    """Choose every batch but the last of those that have this text somewhere, as compaction does with a key."""
    return lambda data, there: [each for each in there if text in data[each.begin : each.end]][:-1]


def every(text: bytes) -> Chooses:
    """Choose every batch that has this text somewhere."""
    return lambda data, there: [each for each in there if text in data[each.begin : each.end]]


def _data(kafka: LocalKafka) -> Path:
    return kafka.folder / "node-1" / "data"
