"""A consumer group: its assignments and committed offsets. All calls are made under the cluster's lock."""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Iterable, Mapping

from wasmline.errors import CommitFailed, MetadataTooLarge
from wasmline.topic_partitions import CommittedOffset, TopicPartition


class Member:
    """One member: its partitions, and its target assignment."""

    def __init__(self, topics: Iterable[str]) -> None:
        self.topics = tuple(topics)
        self.owned: set[TopicPartition] = set()
        self.target: set[TopicPartition] = set()
        self.is_member = False
        """Whether the group has this member."""

    def subscribes_to(self, topic: str) -> bool:
        """Return whether the member is subscribed to a topic, by its name or by a regular expression."""
        return any(re.search(each, topic) if each.startswith("^") else each == topic for each in self.topics)


class PendingOffsets:
    """The offsets of a group that a producer has written since its last marker there."""

    __slots__ = ("epochs", "first_offset", "offsets")

    def __init__(self, first_offset: int) -> None:
        self.first_offset = first_offset
        self.epochs: set[int] = set()
        """The leader epochs that they were written in."""
        self.offsets: dict[TopicPartition, tuple[int, CommittedOffset]] = {}
        """With the place of each among all that were written."""


class Group:
    """Assigns partitions evenly and moves as few as it can; a partition is assigned once its last owner released it."""

    def __init__(self, max_metadata_bytes: int) -> None:
        self.max_metadata_bytes = max_metadata_bytes
        self.committed: dict[TopicPartition, CommittedOffset] = {}
        self.open: dict[int, PendingOffsets] = {}
        """The offsets that open transactions hold, by producer id."""
        self.committed_at: dict[TopicPartition, float] = {}
        """Time of each offset's commit, in Unix seconds."""
        self.emptied_at: float | None = None
        """Time at which the last member left, in Unix seconds; None if there never was one, or there is one."""
        self._members: list[Member] = []
        self._written = 0
        """The number of offsets that were ever written, committed or not."""
        self._places: dict[TopicPartition, int] = {}
        """The place of each committed offset among them."""

    def record(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Store offsets that are committed now."""
        for partition, committed in offsets.items():
            self._store(partition, committed, self._next_place())

    def hold(self, producer_id: int, offsets: Mapping[TopicPartition, CommittedOffset], epoch: int) -> None:
        """Store offsets that the producer's next marker commits, or drops."""
        pending = self.open.setdefault(producer_id, PendingOffsets(self._written))
        pending.epochs.add(epoch)
        for partition, committed in offsets.items():
            pending.offsets[partition] = self._next_place(), committed

    def mark(self, producer_id: int, *, commit: bool) -> None:
        """Commit or drop what the producer's transaction holds; an offset that was written later stays."""
        pending = self.open.pop(producer_id, None)
        if pending is not None and commit:
            for partition, (place, committed) in pending.offsets.items():
                if place > self._places.get(partition, -1):
                    self._store(partition, committed, place)

    def is_held(self, partition: TopicPartition) -> bool:
        """Return whether an open transaction holds an offset of a partition."""
        return any(partition in each.offsets for each in self.open.values())

    def _next_place(self) -> int:
        self._written += 1
        return self._written - 1

    def _store(self, partition: TopicPartition, committed: CommittedOffset, place: int) -> None:
        self.committed[partition] = committed
        self.committed_at[partition] = time.time()
        self._places[partition] = place

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Drop the committed offsets of these partitions."""
        for partition in partitions:
            self.committed.pop(partition, None)
            self.committed_at.pop(partition, None)
            self._places.pop(partition, None)

    def expire(self, retention_s: float) -> None:
        """Drop the offsets that a broker with a retention of ``retention_s`` seconds drops.

        For a group that never had a member these are the offsets committed longer ago, partition by partition. For one
        that had one it is all of them, once its last member left longer ago, however recently they were committed. A
        group with members, and an offset that an open transaction holds, are not changed.
        """
        if self._members:
            return
        before = time.time() - retention_s
        for partition, at in list(self.committed_at.items()):
            if (at if self.emptied_at is None else self.emptied_at) <= before and not self.is_held(partition):
                self.forget([partition])
        if not self.committed:
            self.emptied_at = None

    @property
    def members(self) -> tuple[Member, ...]:
        """The current members."""
        return tuple(self._members)

    def join(self, member: Member, partitions: Collection[TopicPartition]) -> None:
        """Add a member; ``partitions`` are all that the cluster has."""
        member.is_member = True
        self.emptied_at = None
        self._members.append(member)
        self.rebalance(partitions)

    def leave(self, member: Member, partitions: Collection[TopicPartition]) -> None:
        """Remove a member, and assign its partitions to others."""
        member.is_member = False
        self._members.remove(member)
        if not self._members:
            self.emptied_at = time.time()
        self.rebalance(partitions)

    def assignable(self, member: Member) -> list[TopicPartition]:
        """Return the partitions of a member's target assignment that no other member still has."""
        taken = {partition for each in self._members for partition in each.owned}
        return sorted(member.target - taken)

    def require_may_commit(self, member: Member | None, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Raise CommitFailed unless ``member`` may commit; None is a non-member, which may while the group is empty.

        Raises MetadataTooLarge for metadata above the broker's limit.
        """
        if (member is None and self._members) or (member is not None and not member.is_member):
            raise CommitFailed("the group was rebalanced; records not committed belong to the next assignment")
        self.require_metadata_size(offsets)

    def require_metadata_size(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Raise KafkaError for more metadata than a broker accepts."""
        for partition, each in offsets.items():
            if len(each.metadata) > self.max_metadata_bytes:
                raise MetadataTooLarge(f"{partition} takes at most {self.max_metadata_bytes} characters of metadata")

    def rebalance(self, partitions: Collection[TopicPartition]) -> None:
        """Compute the target assignments."""
        wanted = {member: {each for each in partitions if member.subscribes_to(each.topic)} for member in self._members}
        targets = {member: member.target & wanted[member] for member in self._members}
        kept = set().union(*targets.values())
        for partition in sorted(set().union(*wanted.values()) - kept):
            taker = min((each for each in targets if partition in wanted[each]), key=lambda each: len(targets[each]))
            targets[taker].add(partition)
        while move := _uneven(targets, wanted):
            partition, giver, taker = move
            targets[giver].remove(partition)
            targets[taker].add(partition)
        for member, target in targets.items():
            member.target = target


Shares = Mapping[Member, set[TopicPartition]]


def _uneven(targets: Shares, wanted: Shares) -> tuple[TopicPartition, Member, Member] | None:
    """Return a partition whose move makes two assignments more even, its current member, and its new member."""
    for giver in targets:
        for taker in targets:
            movable = targets[giver] & wanted[taker]
            if movable and len(targets[giver]) - len(targets[taker]) > 1:
                return max(movable), giver, taker
    return None
