"""Names the transactional ids under which the progress of partitions is written."""

from __future__ import annotations

from collections.abc import Iterable

from wasmline.records import TopicPartition


def transactional_id(prefix: str, partition: TopicPartition) -> str:
    """Return the id under which the progress of a partition is written, whoever writes it; no topic has a slash."""
    return f"{prefix}/{partition.topic}/{partition.partition}"


VIRTUAL_SHARDS = 64
"""The most transactional ids that a job writes the progress of a topic under: a producer has some four threads and
eight open files, and a process is often allowed a thousand. It may never change: whoever writes the progress of a
partition has to fence, by its id, whoever wrote it before."""


def virtual_shard(partition: int) -> int:
    """Return which partitions of a topic share an id: for a job's, where one owner has all that do."""
    return partition % VIRTUAL_SHARDS


def virtual_shards(partitions: Iterable[int]) -> list[list[int]]:
    """Return partitions of one topic by their virtual shard, in order: each has one owner."""
    shards: dict[int, list[int]] = {}
    for partition in sorted(partitions):
        shards.setdefault(virtual_shard(partition), []).append(partition)
    return list(shards.values())


def shared_id(prefix: str, partition: TopicPartition) -> str:
    """Return the transactional id of a partition's virtual shard."""
    return transactional_id(prefix, TopicPartition(partition.topic, virtual_shard(partition.partition)))
