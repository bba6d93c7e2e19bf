"""Where topics ended at one moment, and whether a consumer has come that far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from wasmline.consumer import ConsumerHealth
from wasmline.kafka import KafkaConfig, Topics, read_slice
from wasmline.records import TopicPartition


def ends_now(config: KafkaConfig, topics: Sequence[str]) -> dict[TopicPartition, tuple[int, int]]:
    """Return begin and end of each partition that holds anything. Raises TopicNotFound, BrokerUnavailable."""
    known = Topics(config)
    ends = {}
    for topic in topics:
        begins = known.beginning_offsets(topic)
        for partition, end in known.end_offsets(topic).items():
            if begins[partition] < end:
                ends[TopicPartition(topic, partition)] = (begins[partition], end)
    return ends


class Ends:
    """The committed records between begin and end of some partitions; told how far a consumer came by and by."""

    def __init__(self, config: KafkaConfig, ends: Mapping[TopicPartition, tuple[int, int]]) -> None:
        self._config = config
        self._left = dict(ends)

    def reached(self, health: ConsumerHealth) -> bool:
        """Say whether all of them are done, of which a consumer tells by and by, as it is the only one of its group."""
        for each in health.partitions:
            self._look(each.partition, each.next_commit or 0, busy=each.incompletes > 0)
        return not self._left

    def passed(self, committed: Mapping[TopicPartition, int]) -> bool:
        """Say whether all of them are done, as the committed offsets of the group tell."""
        for partition, offset in committed.items():
            self._look(partition, offset)
        return not self._left

    def _look(self, partition: TopicPartition, offset: int, *, busy: bool = False) -> None:
        """Strike a partition off if nothing is left from an offset on but markers, which nobody is given."""
        if partition not in self._left:
            return
        begin, end = self._left[partition]
        begin = max(begin, offset)
        topic, number = partition
        if begin >= end or (not busy and next(read_slice(self._config, topic, {number: (begin, end)}), None) is None):
            del self._left[partition]
