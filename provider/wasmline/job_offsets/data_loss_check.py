"""Compares a job's progress with its topic's beginning offsets: retention may remove records that were not read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from wasmline.kafka import KafkaConfig, Topics
from wasmline.offset_errors import removed_by_retention_error
from wasmline.topic_partitions import TopicPartition


class DataLossCheck:
    """Detects records of a topic that retention removed before a job read them; ``fails``: that is an error."""

    def __init__(self, config: KafkaConfig, topic: str, *, fails: bool) -> None:
        self._topics = Topics(config)
        self._topic = topic
        self._fails = fails

    def require_no_loss(self, progress: Mapping[int, int], begins: Mapping[int, int] | None = None) -> None:
        """Raise OffsetOutOfRange if a log begins above the offset to read next, unless losses are only counted.

        ``begins``: the beginning offsets, if they were just read.
        """
        if not self._fails:
            return
        begins = self._topics.beginning_offsets(self._topic) if begins is None else begins
        for partition, offset in progress.items():
            if offset < begins.get(partition, offset):
                raise removed_by_retention_error(TopicPartition(self._topic, partition), offset, begins[partition])

    def lost(self, ranges: Mapping[int, tuple[int, int]]) -> Counter[int]:
        """Return the number of lost offsets of some ranges, by partition, where losses are allowed.

        Called once the ranges are read, so that none is missed: records read before their removal may be included.
        """
        if self._fails:
            return Counter()
        begins = self._topics.beginning_offsets(self._topic)
        gone = {each: min(begins.get(each, at), end) - at for each, (at, end) in ranges.items()}
        return Counter({each: count for each, count in gone.items() if count > 0})
