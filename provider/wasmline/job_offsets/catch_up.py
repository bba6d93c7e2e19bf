"""A snapshot of the end offsets of topics, and a check whether a consumer has reached them."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence

from wasmline.consumer import ConsumerHealth
from wasmline.errors import BrokerUnavailable, KafkaError, OffsetOutOfRange, TopicNotFound
from wasmline.kafka import ConsumerGroups, KafkaConfig, Topics, read_range
from wasmline.topic_partitions import TopicPartition

logger = logging.getLogger(__name__)

GROUP_POLL_INTERVAL_S = 1.0
"""Seconds between two looks at what other members of a group have committed."""


def snapshot_bounds(
    config: KafkaConfig, topics: Sequence[str], progress: Mapping[TopicPartition, int] | None = None
) -> dict[TopicPartition, tuple[int, int]]:
    """Return begin and end of each partition with records, or whose log has lost those that follow its ``progress``.

    Raises TopicNotFound, BrokerUnavailable.
    """
    known = Topics(config)
    bounds = {}
    for topic in topics:
        begins = known.beginning_offsets(topic)  # first: a partition that is added meanwhile is not one of these
        ends = known.end_offsets(topic)
        for partition, begin in begins.items():
            source, end = TopicPartition(topic, partition), ends.get(partition, begin)
            if min(begin, (progress or {}).get(source, end)) < end:
                bounds[source] = (begin, end)
    return bounds


class CatchUpTarget:
    """The committed records between begin and end of some partitions; repeated checks follow a consumer's progress.

    A partition whose progress is set back is done no more: whoever asks must not take it for done while others do not.
    """

    def __init__(self, config: KafkaConfig, bounds: Mapping[TopicPartition, tuple[int, int]]) -> None:
        self._config = config
        self._bounds = dict(bounds)
        self._done: dict[TopicPartition, int] = {}
        """The offset by which a partition had reached its end."""

    def reached(self, health: ConsumerHealth, *, committed: bool = False) -> bool:
        """Return True once every partition has reached its end. Call repeatedly; no other consumer has any of them.

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
        return not self.left

    @property
    def left(self) -> set[TopicPartition]:
        """The partitions that have not reached their ends, as far as was checked."""
        return self._bounds.keys() - self._done.keys()

    def passed(self, committed: Mapping[TopicPartition, int]) -> bool:
        """Return whether all of them are done, by the committed offsets of the group."""
        for partition, offset in committed.items():
            self._check(partition, offset)
        return not self.left

    def _check(self, partition: TopicPartition, offset: int | None, *, busy: bool = False) -> None:
        """Mark a partition as done if only markers, which readers never receive, are left from an offset on.

        An offset that the log no longer has is for the reader of the partition to handle.
        """
        if partition not in self._bounds:
            return
        begin, end = self._bounds[partition]
        if partition in self._done:
            if offset is None or offset >= self._done[partition]:
                return
            del self._done[partition]
        if offset is not None and offset < begin:
            return
        begin = begin if offset is None else offset
        topic, number = partition
        try:
            if begin >= end or (
                not busy and next(read_range(self._config, topic, {number: (begin, end)}), None) is None
            ):
                self._done[partition] = begin
        except OffsetOutOfRange as error:
            logger.warning("it is not known yet whether %s-%d is done: %s", topic, number, error)
        except BrokerUnavailable:
            written = Topics(self._config).written_offsets(topic).get(number, end)
            if written >= end:
                raise
            logger.warning("%s-%d was truncated, and ends at %d: what is there is all of it", topic, number, written)
            self._bounds[partition] = (min(begin, written), written)
            self._check(partition, offset, busy=busy)


class GroupCatchUpTarget:
    """A CatchUpTarget of a member of a group: other members tell what they have done by their commits."""

    def __init__(self, config: KafkaConfig, group: str, topics: Sequence[str], *, committed: bool) -> None:
        """``committed``: the member itself counts what it has committed, and not what it has done, too."""
        self._target = CatchUpTarget(config, snapshot_bounds(config, topics))
        self._groups = ConsumerGroups(config)
        self._group = group
        self._committed = committed
        self._next_look = 0.0

    def reached(self, health: ConsumerHealth) -> bool:
        """Return True once every partition has reached its end. Call repeatedly. Raises TopicNotFound."""
        if self._target.reached(health, committed=self._committed):
            return True
        others = self._target.left - {each.partition for each in health.partitions}
        if not others or time.monotonic() < self._next_look:
            return False
        self._next_look = time.monotonic() + GROUP_POLL_INTERVAL_S
        try:
            return self._target.passed(
                {
                    TopicPartition(topic, partition): offset
                    for topic in sorted({each.topic for each in others})
                    for partition, offset in self._groups.committed(self._group, topic).items()
                    if TopicPartition(topic, partition) in others
                }
            )
        except TopicNotFound:
            raise
        except KafkaError as error:
            logger.warning("cannot check whether other members are done, retrying: %s", error)
            return False
