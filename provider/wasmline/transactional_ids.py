"""Names the transactional ids under which the progress of partitions is written."""

from __future__ import annotations

from collections.abc import Iterable

from wasmline.topic_partitions import TopicPartition


def transactional_id(prefix: str, partition: TopicPartition) -> str:
    """Return the transactional id of a partition's progress, the same for every writer; no topic has a slash."""
    return f"{prefix}/{partition.topic}/{partition.partition}"


VIRTUAL_SHARDS = 64
"""Maximum number of transactional ids for a job's progress of a topic: a producer has some four threads and eight open
files, and a process is often limited to a thousand. It may never change: a writer of a partition's progress has to
fence, by its id, every earlier writer."""


def virtual_shard(partition: int) -> int:
    """Return the virtual shard of a partition: the partitions of a job's topic with one id have one owner."""
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
