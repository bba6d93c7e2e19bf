"""A snapshot of the end offsets of topics, and a check whether a consumer has reached them."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from wasmline.consumer import ConsumerHealth
from wasmline.errors import KafkaError, OffsetOutOfRange, TopicNotFound
from wasmline.kafka import KafkaConfig, Topics, read_range
from wasmline.topic_partitions import TopicPartition

logger = logging.getLogger(__name__)


def snapshot_end_offsets(
    config: KafkaConfig, topics: Sequence[str], progress: Mapping[TopicPartition, int] | None = None
) -> dict[TopicPartition, tuple[int, int]]:
    """Return begin and end of each partition with records, or whose log has lost those that follow its ``progress``.

    Raises TopicNotFound, BrokerUnavailable.
    """
    known = Topics(config)
    ends = {}
    for topic in topics:
        begins = known.beginning_offsets(topic)
        for partition, end in known.end_offsets(topic).items():
            place = TopicPartition(topic, partition)
            if min(begins[partition], (progress or {}).get(place, end)) < end:
                ends[place] = (begins[partition], end)
    return ends


class CatchUpTarget:
    """The committed records between begin and end of some partitions; repeated checks follow a consumer's progress."""

    def __init__(self, config: KafkaConfig, ends: Mapping[TopicPartition, tuple[int, int]]) -> None:
        self._config = config
        self._left = dict(ends)

    def reached(self, health: ConsumerHealth, *, committed: bool = False) -> bool:
        """Return True once every partition has reached its end. Call repeatedly; the group has no other consumer.

        ``committed``: and the broker has all of it. False while the cluster cannot be read: that must not hide the
        consumer's own error. Raises TopicNotFound.
        """
        try:
            for each in health.partitions:
                if not committed or each.settled == each.next_commit:
                    self._check(each.partition, each.next_commit, busy=each.incompletes > 0)
        except TopicNotFound:
            raise
        except KafkaError as error:
            logger.warning("cannot check whether all records are done, retrying: %s", error)
            return False
        return not self._left

    def passed(self, committed: Mapping[TopicPartition, int]) -> bool:
        """Return whether all of them are done, by the committed offsets of the group."""
        for partition, offset in committed.items():
            self._check(partition, offset)
        return not self._left

    def _check(self, partition: TopicPartition, offset: int | None, *, busy: bool = False) -> None:
        """Mark a partition as done if only markers, which readers never receive, are left from an offset on.

        An offset that the log no longer has is for the reader of the partition to handle.
        """
        if partition not in self._left:
            return
        begin, end = self._left[partition]
        if offset is not None and offset < begin:
            return
        begin = begin if offset is None else offset
        topic, number = partition
        try:
            if begin >= end or (
                not busy and next(read_range(self._config, topic, {number: (begin, end)}), None) is None
            ):
                del self._left[partition]
        except OffsetOutOfRange as error:
            logger.warning("it is not known yet whether %s-%d is done: %s", topic, number, error)
