"""Errors of a consumer that would lose or repeat records by continuing."""

from __future__ import annotations

from wasmline.errors import OffsetOutOfRange
from wasmline.topic_partitions import TopicPartition


def removed_by_retention_error(partition: TopicPartition, offset: int, begin: int) -> OffsetOutOfRange:
    """Return the error for records from ``offset`` on that retention has removed: the log begins at ``begin``."""
    text = f"{partition} begins at {begin}, and is to be read from {offset} on: retention removed the records between"
    return out_of_range_error(partition, offset, begin, text)


def truncation(partition: TopicPartition, offset: int) -> str:
    """Return what is said of a log that does not have an offset of a group, and ends below it."""
    return (
        f"{partition} was truncated: it does not have offset {offset} of the group, because its leader lost records, "
        "it was recreated, or the group's offset was moved"
    )


def out_of_range_error(partition: TopicPartition, offset: int, start: int, text: str) -> OffsetOutOfRange:
    """Return an error whose message, after ``text``, names the option to continue anyway."""
    text += ". To go on anyway, set fail_on_data_loss to false for a run: lost offsets are counted as lost_offsets"
    return OffsetOutOfRange(text, topic=partition.topic, partition=partition.partition, offset=offset, start=start)
