"""Where topics ended at one moment, and whether a consumer has come that far."""

from __future__ import annotations

from collections.abc import Sequence

from wasmline.consumer import ConsumerHealth
from wasmline.consumer.health import PartitionHealth
from wasmline.kafka import KafkaConfig, Topics, read_slice
from wasmline.records import TopicPartition


class Ends:
    """The committed records that some topics hold when this is made. Raises TopicNotFound, BrokerUnavailable."""

    def __init__(self, config: KafkaConfig, topics: Sequence[str]) -> None:
        self._config = config
        self._left: dict[TopicPartition, tuple[int, int]] = {}
        known = Topics(config)
        for topic in topics:
            begins = known.beginning_offsets(topic)
            for partition, end in known.end_offsets(topic).items():
                if begins[partition] < end:
                    self._left[TopicPartition(topic, partition)] = (begins[partition], end)

    def reached(self, health: ConsumerHealth) -> bool:
        """Say whether all of them are done, of which a consumer tells by and by, as it is the only one of its group."""
        for each in health.partitions:
            if each.partition in self._left and self._is_done(each):
                del self._left[each.partition]
        return not self._left

    def _is_done(self, health: PartitionHealth) -> bool:
        begin, end = self._left[health.partition]
        position = max(begin, health.next_commit or 0)
        if position >= end:
            return True
        if health.incompletes:
            return False
        topic, partition = health.partition  # what is left may be transaction markers, which nobody is given
        return next(read_slice(self._config, topic, {partition: (position, end)}), None) is None
