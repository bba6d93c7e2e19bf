"""The consumer group of a job as the keeper of its progress: what has to be there, and what to do where it is not."""

from __future__ import annotations

from typing import Literal

from wasmline.consumer.confluent.assigned import lost
from wasmline.kafka import ConsumerGroups, KafkaConfig, Topics
from wasmline.records import TopicPartition


def settle(
    config: KafkaConfig,
    group: str,
    topic: str,
    starting: Literal["earliest", "latest"],
    *,
    known: int = 0,
    is_anew: bool = False,
) -> dict[int, int]:
    """See to it that every partition of a topic has progress in the group, and return it.

    ``known`` partitions must have it. The others begin at ``starting`` where the group has been at none of them, and at
    their beginning where it has: they came later. What is committed says nothing of a topic that ``is_anew`` under its
    name. Raises ProgressLost.
    """
    groups, topics = ConsumerGroups(config), Topics(config)
    committed = {} if is_anew else groups.committed(group, topic)
    for partition in range(known):
        if partition not in committed:
            raise lost(group, topic, partition, None, None)
    begins_at_end = starting == "latest" and not committed
    starts = topics.end_offsets(topic) if begins_at_end else topics.beginning_offsets(topic)
    if new := {TopicPartition(topic, each): at for each, at in starts.items() if each not in committed}:
        groups.commit_offsets(group, new)
    return starts | committed
