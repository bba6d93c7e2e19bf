"""Reads as a member of a group, in memory."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from wasmline.consumer.backends.base import RebalanceListener
from wasmline.consumer.backends.memory.cluster import MemoryCluster
from wasmline.consumer.backends.memory.group import Member
from wasmline.consumer.options import ConsumerOptions
from wasmline.consumer.records import ConsumedRecord
from wasmline.consumer.timings import DEFAULT_TIMINGS, Timings
from wasmline.errors import BrokerUnavailable, KafkaError
from wasmline.topic_partitions import CommittedOffset, TopicPartition

if TYPE_CHECKING:
    from wasmline.consumer.columns import RecordColumns

EARLIEST = ("earliest", "smallest", "beginning")
LATEST = ("latest", "largest", "end")


class MemorySource:
    """One member of the group. See Source for its contract.

    Of the librdkafka settings it supports ``auto.offset.reset`` and ``isolation.level``.
    """

    def __init__(
        self, cluster: MemoryCluster, options: ConsumerOptions, member: Member, timings: Timings = DEFAULT_TIMINGS
    ) -> None:
        self.member = member
        self._timings = timings
        self._cluster = cluster
        self._group = options.group_id
        self._reset = options.kafka.get("auto.offset.reset", "earliest")
        self._committed_only = options.kafka.get("isolation.level", "read_committed") == "read_committed"
        self._listener: RebalanceListener | None = None
        self._positions: dict[TopicPartition, int] = {}
        """Positions by partition, in the order in which they are served."""
        self._paused: set[TopicPartition] = set()
        self._ends: dict[TopicPartition, int] = {}
        self._truncations: dict[TopicPartition, int] = {}
        """The number of truncations of each log that this member has handled."""

    @property
    def begins_at_end(self) -> bool:
        return self._reset in LATEST

    @property
    def connected_brokers(self) -> int | None:
        return 0 if self._cluster.is_unavailable else 1

    def open(self, listener: RebalanceListener) -> None:
        with self._cluster.atomic():
            self._cluster.require_available()
            for topic in self.member.topics:
                if not topic.startswith("^"):
                    self._cluster.log(TopicPartition(topic, 0))
            self._listener = listener
            self._join()

    def poll(self, limit: int, timeout: float) -> Sequence[ConsumedRecord]:
        deadline = time.monotonic() + timeout
        while True:
            with self._cluster.changed:
                seen = self._cluster.version
                away = self._cluster.is_unavailable
            if not away:
                self._follow_assignment()
            with self._cluster.changed:
                gone = {} if away else self._out_of_range()
                if not gone:
                    if records := self._fetch(limit):
                        return records
                    left = deadline - time.monotonic()
                    if left <= 0:
                        return []
                    self._cluster.changed.wait_for(lambda seen=seen: self._cluster.version != seen, left)  # type: ignore[misc]
            for partition, (offset, end) in gone.items():
                assert self._listener is not None
                self._listener.out_of_range(partition, offset, end)
            if gone:
                return []

    def poll_columns(self, limit: int, timeout: float) -> Sequence[RecordColumns]:
        from wasmline.consumer.columns import by_partition

        return by_partition(self.poll(limit, timeout))

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        self._paused.update(partitions)

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        self._paused.difference_update(partitions)

    def seek(self, offsets: Mapping[TopicPartition, int]) -> None:
        self._positions.update(offsets)

    def committed(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, CommittedOffset]:
        with self._cluster.changed:
            self._cluster.require_available()
            group = self._cluster.group(self._group)
            timeout = self._timings.request_timeout_s
            if not self._cluster.changed.wait_for(lambda: not any(map(group.is_held, partitions)), timeout):
                text = f"no committed offsets within {timeout:g} s: a transaction holds them"
                raise BrokerUnavailable(text, bootstrap_servers="memory")
            return {each: group.committed[each] for each in partitions if each in group.committed}

    def beginning_offsets(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        with self._cluster.changed:
            self._cluster.require_available()
            return {partition: self._cluster.log(partition).start for partition in partitions}

    def end_offsets(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        with self._cluster.changed:
            self._cluster.require_available()
            return {partition: self._end(partition) for partition in partitions}

    def cached_end_offsets(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        return {partition: self._ends[partition] for partition in partitions if partition in self._ends}

    def commit(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        with self._cluster.atomic():
            self._cluster.require_available()
            with self._cluster.committing():
                self._cluster.commit(self._group, offsets, self.member)

    def close(self) -> None:
        if self._listener is None:
            return
        try:
            self._revoke(sorted(self.member.owned))
        finally:
            with self._cluster.atomic():
                self.member.owned.clear()
                if self.member.is_member:
                    self._cluster.group(self._group).leave(self.member, self._cluster.partitions)
            self._listener = None

    def _join(self) -> None:
        self._cluster.group(self._group).join(self.member, self._cluster.partitions)

    def _follow_assignment(self) -> None:
        """Release and open partitions as the group assigned them."""
        if self._listener is None:
            return
        with self._cluster.changed:
            gone = sorted(self.member.owned - self.member.target if self.member.is_member else self.member.owned)
        if gone:
            self._revoke(gone)
            with self._cluster.atomic():
                self.member.owned.difference_update(gone)
        with self._cluster.atomic():
            if not self.member.is_member:
                self.member.target.clear()
                self._join()
            new = self._cluster.group(self._group).assignable(self.member)
            self.member.owned.update(new)
        if new:
            self._open_assigned(self._listener, new)

    def _revoke(self, partitions: Collection[TopicPartition]) -> None:
        if self._listener is None or not partitions:
            return
        if self.member.is_member:
            self._listener.revoked(partitions)
        else:
            self._listener.lost(partitions)
        for partition in partitions:
            self._positions.pop(partition, None)
            self._ends.pop(partition, None)
            self._paused.discard(partition)

    def _open_assigned(self, listener: RebalanceListener, partitions: Collection[TopicPartition]) -> None:
        starts = listener.assigned(partitions)
        with self._cluster.changed:
            for partition in partitions:
                start = starts.get(partition)
                self._positions[partition] = self._begin(partition) if start is None else start
                self._truncations[partition] = len(self._cluster.log(partition).truncations)
        self._paused.update(partition for partition in partitions if partition not in starts)

    def _out_of_range(self) -> dict[TopicPartition, tuple[int, int | None]]:
        """Return the positions that the logs do not have, and the truncated ends below them; some have grown since."""
        gone: dict[TopicPartition, tuple[int, int | None]] = {}
        for partition in [each for each in self._positions if each not in self._paused]:
            log, position = self._cluster.log(partition), self._positions[partition]
            cuts = [cut for cut in log.truncations[self._truncations[partition] :] if cut < position]
            self._truncations[partition] = len(log.truncations)
            if cuts or not log.start <= position <= log.end:
                gone[partition] = position, min(cuts, default=None)
        return gone

    def _fetch(self, limit: int) -> list[ConsumedRecord]:
        """Return available records; the partition served first is the last in the next call."""
        found: list[ConsumedRecord] = []
        if self._cluster.is_unavailable:
            return found
        for partition in [each for each in self._positions if each not in self._paused]:
            if len(found) == limit:
                break
            position = self._positions.pop(partition)
            left = limit - len(found)
            records, position = self._cluster.fetch(partition, position, left, committed=self._committed_only)
            self._positions[partition] = position
            self._ends[partition] = self._end(partition)
            found += records
        return found

    def _begin(self, partition: TopicPartition) -> int:
        """Return the reset policy's first offset."""
        if self._reset in EARLIEST:
            return self._cluster.log(partition).start
        if self._reset in LATEST:
            return self._end(partition)
        raise KafkaError(f"{partition} has no offset to begin at, and auto.offset.reset is {self._reset}")

    def _end(self, partition: TopicPartition) -> int:
        log = self._cluster.log(partition)
        return log.stable if self._committed_only else log.end
