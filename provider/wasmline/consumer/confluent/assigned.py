"""Reading partitions that somebody else has shared out, for a group that has no members.

The progress is the group's, and lag tools see it, but the group protects nothing: a commit of whoever is no member is
taken as long as there are none. Who may write is for the transactional ids to say, and where outputs are written at
least once, for ``held``: docs/protocols/leases.md.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, Producer

from wasmline.consumer.backend import Listener, shared_id
from wasmline.consumer.confluent.door import GroupDoor
from wasmline.consumer.confluent.sink import ConfluentSink
from wasmline.consumer.confluent.source import PATIENCE, RESET, ConfluentSource, plain
from wasmline.consumer.confluent.stable_read import stable_read
from wasmline.consumer.confluent.transactions import Claim, ConfluentTransactions, Work, assure_safe, written
from wasmline.consumer.errand import Errand
from wasmline.consumer.options import ConsumerOptions, Delivery
from wasmline.consumer.records import ConsumedRecord
from wasmline.errors import KafkaError as KafkaFailed
from wasmline.errors import ProducerFenced, ProgressLost, WasmlineError
from wasmline.kafka import librdkafka
from wasmline.kafka.commit_metadata import ExactDoor, PlainDoor
from wasmline.kafka.config import KafkaConfig
from wasmline.kafka.failures import mapped
from wasmline.kafka.groups import group_in_use
from wasmline.records import CommittedOffset, TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What a consumer is given.

    progress: the partitions that it reads and whose progress it writes, as nobody else does for as long as it is
        ``held``, virtual shards of their topic as a whole; of each what is committed at least, kept up to date.
    followed: partitions of other topics and where to begin; each record of theirs is told to ``follow``, once.
    keeps_maps: whether this cluster and client keep offset maps, as ``examine`` found.
    outputs: topics that are written to, as far as they are known beforehand.
    """

    progress: dict[TopicPartition, int]
    followed: Mapping[TopicPartition, int]
    follow: Callable[[ConsumedRecord], None]
    held: Callable[[], bool]
    keeps_maps: bool = True
    outputs: tuple[str, ...] = ()

    @property
    def partitions(self) -> Collection[TopicPartition]:
        """Which they are."""
        return self.progress.keys()

    def refuse_lost(
        self, group: str, partitions: Collection[TopicPartition], found: Mapping[TopicPartition, CommittedOffset]
    ) -> None:
        """Raise ProgressLost where less is committed than there was: no other owner sets progress back."""
        offsets = {partition: each.offset for partition, each in found.items()}
        refuse_lost(group, offsets, {partition: self.progress[partition] for partition in partitions})

    def committed(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Note what is committed by now."""
        self.progress.update({partition: each.offset for partition, each in offsets.items()})


class AssignedBackend:
    """One consumer of a share. Once somebody else has taken a partition of it over, it writes nothing any more."""

    def __init__(self, options: ConsumerOptions, share: Share) -> None:
        config = KafkaConfig.completed(options.kafka)
        door = GroupDoor(config, options.group_id, ExactDoor() if share.keeps_maps else PlainDoor())
        self.source = AssignedSource(options, config, door, share)
        self.sink = ConfluentSink(config)
        prefix = options.transactional_id or options.group_id
        written[prefix].update(share.outputs)
        self.transactions = AssignedTransactions(config, prefix, self.source, door, share)


def examine(options: ConsumerOptions, partition: TopicPartition) -> bool:
    """Return whether offset maps can be kept on this cluster; raise UnsafeBroker if exactly-once cannot be promised."""
    config = KafkaConfig.completed(options.kafka)
    door = GroupDoor(config, options.group_id)
    if options.delivery is Delivery.EXACTLY_ONCE:
        assure_safe(config, options.transactional_id or options.group_id, partition, door)
    return door.on(partition).keeps_metadata


class AssignedSource(ConfluentSource):
    """Reads a share. See Source for what its methods promise.

    ``commit`` raises ProducerFenced when the share is not held, ``committed`` ProgressLost below what it begins with.
    """

    def __init__(self, options: ConsumerOptions, config: KafkaConfig, door: GroupDoor, share: Share) -> None:
        # Where to begin without a commit must not depend on when that is asked: the next who asks would skip records.
        super().__init__(options, config, door, {RESET: "earliest", "isolation.level": "read_committed"})
        self._share = share
        self._topics_followed = {partition.topic for partition in share.followed}

    def open(self, listener: Listener) -> None:
        self._listener = listener
        with mapped(self._config.bootstrap_servers):
            # It finds its brokers while the listener opens transactions: a client that knows none waits up to a second.
            warm = Errand(partial(self.consumer.list_topics, timeout=PATIENCE))
            if not self._share.held():
                raise not_held()
            starts = listener.assigned(self._share.partitions)
            warm.result()
            self.consumer.assign(
                [
                    *self._places({partition: starts.get(partition) for partition in self._share.partitions}),
                    *self._places(self._share.followed),
                ]
            )
            if waiting := [partition for partition in self._share.partitions if partition not in starts]:
                self.consumer.pause(plain(waiting))

    def poll(self, limit: int, timeout: float) -> Sequence[ConsumedRecord]:
        records = super().poll(limit, timeout)
        followed = [record for record in records if record.topic in self._topics_followed]
        if not followed:
            return records
        for record in followed:
            self._share.follow(record)
        return [record for record in records if record.topic not in self._topics_followed]

    def _out_of_range(self, listener: Listener, message: Message, truncated: re.Match[str] | None) -> None:
        if message.topic() in self._topics_followed:
            text = f"{message.topic()} was made anew, so that what it said of this job is not known any more"
            raise KafkaFailed(text)
        super()._out_of_range(listener, message, truncated)

    def committed(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, CommittedOffset]:
        found = super().committed(partitions)
        self._share.refuse_lost(self.group, partitions, found)
        return found

    def transactional_id(self, partition: TopicPartition) -> str:
        return shared_id(self._prefix, partition)

    def commit(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        if not self._share.held():
            raise not_held()
        super().commit(offsets)
        self._share.committed(offsets)

    def close(self) -> None:
        try:
            if self._listener is not None:
                self._listener.revoked(self._share.partitions)
        finally:
            super().close()


class AssignedTransactions(ConfluentTransactions):
    """A producer for each virtual shard of a share, until one is fenced: then the share is somebody else's."""

    def __init__(
        self, config: KafkaConfig, prefix: str, source: ConfluentSource, door: GroupDoor, share: Share
    ) -> None:
        super().__init__(config, prefix, source, door, is_safe=True)
        self._share = share
        self.fenced: ProducerFenced | None = None
        """Why nothing is written any more."""

    def open(self, partitions: Collection[TopicPartition]) -> None:
        try:
            super().open(partitions)
        except ProducerFenced as error:
            self.fenced = error
            raise

    def begin(self, work: Work) -> Callable[[], Mapping[TopicPartition, WasmlineError]]:
        begun = super().begin(work)

        def carry_out() -> Mapping[TopicPartition, WasmlineError]:
            self._refuse()
            failures = begun()
            fences = (error for error in failures.values() if isinstance(error, ProducerFenced))
            self.fenced = self.fenced or next(fences, None)
            # Raised at once: what else of this round failed may not be tried again by the last commit.
            self._refuse()
            return failures

        return carry_out

    def _id(self, partition: TopicPartition) -> str:
        return shared_id(self._prefix, partition)

    def _fence(self, name: str, deadline: float) -> Producer:
        self._refuse()
        return super()._fence(name, deadline)

    def _refuse_moved(
        self, left: Mapping[TopicPartition, CommittedOffset | None], found: Mapping[TopicPartition, CommittedOffset]
    ) -> None:
        self._share.refuse_lost(self._source.group, left.keys(), found)
        super()._refuse_moved(left, found)

    def _commit(self, name: str, claim: Claim | None, work: Work, member: Any) -> WasmlineError | None:
        error = super()._commit(name, claim, work, member)
        if error is None:
            self._share.committed({partition: progress for partition, (_, progress) in work.items()})
        return error

    def _refuse(self) -> None:
        if self.fenced is None and not self._share.held():
            self.fenced = not_held()
        if self.fenced is not None:
            raise self.fenced


def not_held() -> ProducerFenced:
    """Return why a consumer whose time is over writes nothing."""
    return ProducerFenced("this consumer's time with its partitions is over: they may be somebody else's")


class GroupProgress:
    """Reads the progress of a group without members as it is once every transaction that holds some is decided."""

    def __init__(self, config: KafkaConfig, group: str, prefix: str, *, keeps_maps: bool) -> None:
        """``prefix`` is that of the transactional ids under which the progress is written, all of them the caller's."""
        self._config = config
        self._group = group
        self._prefix = prefix
        self._door = ExactDoor() if keeps_maps else PlainDoor()
        settings = {"group.id": group, "enable.auto.commit": "false", "isolation.level": "read_committed"}
        with mapped(config.bootstrap_servers):
            self._reader = Consumer(config.client(**settings))

    def committed(self, partitions: Collection[TopicPartition], limit: float = PATIENCE) -> dict[TopicPartition, int]:
        """Return the next offsets to read; partitions without a commit are absent.

        Raises BrokerUnavailable where that is not decided within ``limit`` seconds.
        """
        return {partition: each.offset for partition, each in self.read(partitions, limit).items()}

    def renew(self, partitions: Collection[TopicPartition]) -> None:
        """Commit what is committed once more, as it is. Raises GroupInUse."""
        found = self.read(partitions)
        with mapped(self._config.bootstrap_servers, {KafkaError.UNKNOWN_MEMBER_ID: group_in_use(self._group)}):
            self._door.commit(self._reader, found, PATIENCE)

    def close(self) -> None:
        """Close the client."""
        librdkafka.close(self._reader)

    def read(
        self, partitions: Collection[TopicPartition], limit: float = PATIENCE
    ) -> Mapping[TopicPartition, CommittedOffset]:
        """Return what ``committed`` does, with the maps."""
        ids = {shared_id(self._prefix, partition) for partition in partitions}
        with mapped(self._config.bootstrap_servers):
            read = partial(self._door.committed, self._reader, partitions)
            return stable_read(self._config, self._group, ids, read, time.monotonic() + limit)


def refuse_lost(group: str, found: Mapping[TopicPartition, int | None], least: Mapping[TopicPartition, int]) -> None:
    """Raise ProgressLost where what is committed is gone, or less than a job made of it."""
    for (topic, partition), before in least.items():
        offset = found.get(TopicPartition(topic, partition))
        if offset is None or offset < before:
            raise lost(group, topic, partition, offset, before)


def lost(group: str, topic: str, partition: int, found: int | None, *before: int) -> ProgressLost:
    """Return what a job ends with that ``found`` other progress than it made; None is none.

    ``before`` is where it got to, where that is known: one offset, or one of two.
    """
    text = f"group {group} has {'nothing' if found is None else found} committed for {topic}-{partition}, "
    text += f"and the job got to {' or '.join(map(str, before))}" if before else "where the job has been before"
    text += (
        ". Its offsets were moved, deleted, or expired, so that going on would repeat or lose records. Set them to "
        "where the outputs end (kafka-consumer-groups --bootstrap-server HOST:PORT --execute --reset-offsets "
        f"--group {group} --topic {topic}:{partition} --to-offset {before[0] if len(before) == 1 else 'N'}). "
        "What parallel mode had finished above that offset runs again. To go on where the group is, whatever the job "
        "has done, set fail_on_moved_progress to false for a run"
    )
    return ProgressLost(text, group=group, topic=topic, partition=partition, offset=found)
