"""Compares a job's progress with where its topic's logs begin: retention may remove records before they are read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from wasmline.data_loss import removed_by_retention
from wasmline.kafka import KafkaConfig, Topics
from wasmline.records import TopicPartition


class DataLossCheck:
    """Watches for records of a topic that are removed before a job has read them; ``fails`` says that this ends it."""

    def __init__(self, config: KafkaConfig, topic: str, *, fails: bool) -> None:
        self._topics = Topics(config)
        self._topic = topic
        self._fails = fails

    def refuse_loss(self, progress: Mapping[int, int], begins: Mapping[int, int] | None = None) -> None:
        """Raise OffsetOutOfRange where a log begins above the offset to read next, unless that is only counted.

        ``begins`` is where the logs begin, where that was just asked for.
        """
        if not self._fails:
            return
        begins = self._topics.beginning_offsets(self._topic) if begins is None else begins
        for partition, offset in progress.items():
            if offset < begins.get(partition, offset):
                raise removed_by_retention(TopicPartition(self._topic, partition), offset, begins[partition])

    def lost(self, ranges: Mapping[int, tuple[int, int]]) -> Counter[int]:
        """Return how many offsets of some ranges are gone, by partition, where that is allowed.

        Asked for once the ranges are read, so that none is left out: what was read before it went may be among them.
        """
        if self._fails:
            return Counter()
        begins = self._topics.beginning_offsets(self._topic)
        gone = {each: min(begins.get(each, at), end) - at for each, (at, end) in ranges.items()}
        return Counter({each: count for each, count in gone.items() if count > 0})
