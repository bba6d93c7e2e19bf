"""Compares a job's progress with its topic's logs: retention may remove what was not read, a leader lose what was."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from wasmline.kafka import KafkaConfig, Topics
from wasmline.offset_errors import out_of_range_error, removed_by_retention_error, truncation
from wasmline.topic_partitions import TopicPartition


class DataLossCheck:
    """Detects records of a topic that were removed before a job read them, or truncated: an error if it ``fails``."""

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

    def truncated(self, progress: Mapping[int, int], ends: Mapping[int, int]) -> dict[int, int]:
        """Return the ends of the logs that were truncated below a job's progress; that is an error where a loss is one.

        ``ends``: the end offsets for a read_committed reader, as they were just read. What an open transaction hides is
        there all the same. Raises OffsetOutOfRange.
        """
        beyond = {each: at for each, at in progress.items() if at > ends.get(each, at)}
        written = self._topics.written_offsets(self._topic) if beyond else {}
        found = {each: written[each] for each, at in beyond.items() if at > written.get(each, at)}
        for partition, end in found.items() if self._fails else ():
            source = TopicPartition(self._topic, partition)
            raise out_of_range_error(source, beyond[partition], end, truncation(source, beyond[partition]))
        return found

    def lost(self, ranges: Mapping[int, tuple[int, int]]) -> Counter[int]:
        """Return the number of lost offsets of some ranges, by partition, where losses are allowed.

        Called once the ranges are read, so that none is missed: records read before their removal may be included.
        """
        if self._fails:
            return Counter()
        begins = self._topics.beginning_offsets(self._topic)
        gone = {each: min(begins.get(each, at), end) - at for each, (at, end) in ranges.items()}
        return Counter({each: count for each, count in gone.items() if count > 0})
