"""A consumer group: who reads what, and how far the group came. All calls are made under the cluster's lock."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping

from wasmline.consumer import offset_codec
from wasmline.errors import CommitFailed, KafkaError
from wasmline.records import CommittedOffset, TopicPartition


class Member:
    """One member: what it has, and what it is to have."""

    def __init__(self, topics: Iterable[str]) -> None:
        self.topics = tuple(topics)
        self.owned: set[TopicPartition] = set()
        self.target: set[TopicPartition] = set()
        self.belongs = False
        """The group counts on this member."""

    def wants(self, topic: str) -> bool:
        """Say whether the member subscribed to a topic, by its name or by a regular expression."""
        return any(re.search(each, topic) if each.startswith("^") else each == topic for each in self.topics)


class Group:
    """Shares partitions out evenly and moves as few as it can; a partition is given to nobody while one has it."""

    def __init__(self) -> None:
        self.committed: dict[TopicPartition, CommittedOffset] = {}
        self.pending: dict[TopicPartition, int] = {}
        """How many open transactions hold an offset of a partition."""
        self._members: list[Member] = []

    def join(self, member: Member, partitions: Collection[TopicPartition]) -> None:
        """Count on a member; ``partitions`` are all that the cluster has."""
        member.belongs = True
        self._members.append(member)
        self.share(partitions)

    def leave(self, member: Member, partitions: Collection[TopicPartition]) -> None:
        """Count on a member no more, and give away what it has."""
        member.belongs = False
        self._members.remove(member)
        self.share(partitions)

    def grant(self, member: Member) -> list[TopicPartition]:
        """Return what a member is to have and nobody else has any more."""
        taken = {partition for each in self._members for partition in each.owned}
        return sorted(member.target - taken)

    def check(self, member: Member | None, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Raise CommitFailed unless ``member`` may commit; None is a stranger, who may while the group is empty."""
        if (member is None and self._members) or (member is not None and not member.belongs):
            raise CommitFailed("the group has moved on, so its next assignment says what is left to do")
        for partition, each in offsets.items():
            if len(each.metadata) > offset_codec.MAX_LENGTH:
                where = f"{partition.topic}-{partition.partition}"
                raise KafkaError(f"{where} takes {offset_codec.MAX_LENGTH} characters of metadata at most")

    def share(self, partitions: Collection[TopicPartition]) -> None:
        """Decide anew who is to have what."""
        wanted = {member: {each for each in partitions if member.wants(each.topic)} for member in self._members}
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
    """Return a partition whose move makes two shares more even, who has it, and who should."""
    for giver in targets:
        for taker in targets:
            movable = targets[giver] & wanted[taker]
            if movable and len(targets[giver]) - len(targets[taker]) > 1:
                return max(movable), giver, taker
    return None
