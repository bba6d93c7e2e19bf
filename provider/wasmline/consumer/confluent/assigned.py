"""Reading partitions that somebody else has shared out, for a group that has no members.

The progress is the group's, and lag tools see it, but the group protects nothing: a commit of whoever is no member is
taken as long as there are none. Who may write is for the transactional ids to say, and where outputs are written at
least once, for ``held``: ``reference/leases_eos.md`` §4 and §5.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from confluent_kafka import Consumer, Producer

from wasmline.consumer.backend import Listener, shared_id
from wasmline.consumer.confluent.door import GroupDoor
from wasmline.consumer.confluent.sink import ConfluentSink
from wasmline.consumer.confluent.source import PATIENCE, ConfluentSource, places, plain
from wasmline.consumer.confluent.transactions import ConfluentTransactions, Work, assure_safe
from wasmline.consumer.errand import Errand
from wasmline.consumer.options import ConsumerOptions, Delivery
from wasmline.consumer.records import ConsumedRecord
from wasmline.errors import ProducerFenced, ProgressLost, WasmlineError
from wasmline.kafka.commit_metadata import ExactDoor, PlainDoor
from wasmline.kafka.config import KafkaConfig
from wasmline.kafka.failures import mapped
from wasmline.records import CommittedOffset, TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What a consumer is given.

    partitions: those that it reads and whose progress it writes, as nobody else does for as long as it is ``held``, and
        the least progress that it finds there; virtual shards of their topic as a whole.
    followed: partitions of other topics and where to begin; each record of theirs is told to ``follow``, once.
    keeps_maps: whether this cluster and client keep offset maps, as ``examine`` found.
    """

    partitions: Mapping[TopicPartition, int]
    followed: Mapping[TopicPartition, int]
    follow: Callable[[ConsumedRecord], None]
    held: Callable[[], bool]
    keeps_maps: bool = True


class AssignedBackend:
    """One consumer of a share. Once somebody else has taken a partition of it over, it writes nothing any more."""

    def __init__(self, options: ConsumerOptions, share: Share) -> None:
        config = KafkaConfig.completed(options.kafka)
        door = GroupDoor(config, options.group_id, ExactDoor() if share.keeps_maps else PlainDoor())
        self.source = AssignedSource(options, config, door, share)
        self.sink = ConfluentSink(config)
        prefix = options.transactional_id or options.group_id
        self.transactions = AssignedTransactions(config, prefix, self.source, door, share.held)


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
        super().__init__(options, config, door, {"auto.offset.reset": "earliest", "isolation.level": "read_committed"})
        self._group = options.group_id
        self._share = share
        self._topics_followed = {partition.topic for partition in share.followed}
        self._listener: Listener | None = None

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
                    *places({partition: starts.get(partition) for partition in self._share.partitions}),
                    *places(self._share.followed),
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

    def committed(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, CommittedOffset]:
        found = super().committed(partitions)
        offsets = {partition: each.offset for partition, each in found.items()}
        refuse_lost(self._group, offsets, {partition: self._share.partitions[partition] for partition in partitions})
        return found

    def commit(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        if not self._share.held():
            raise not_held()
        super().commit(offsets)

    def close(self) -> None:
        try:
            if self._listener is not None:
                self._listener.revoked(self._share.partitions)
        finally:
            super().close()


class AssignedTransactions(ConfluentTransactions):
    """A producer for each virtual shard of a share, until one is fenced: then the share is somebody else's."""

    def __init__(
        self, config: KafkaConfig, prefix: str, source: ConfluentSource, door: GroupDoor, held: Callable[[], bool]
    ) -> None:
        super().__init__(config, prefix, source, door, is_safe=True)
        self._held = held
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

    def _refuse(self) -> None:
        if self.fenced is None and not self._held():
            self.fenced = not_held()
        if self.fenced is not None:
            raise self.fenced


def not_held() -> ProducerFenced:
    """Return why a consumer whose time is over writes nothing."""
    return ProducerFenced("this consumer's time with its partitions is over: they may be somebody else's")


class GroupProgress:
    """Reads the progress of a group without members as it is once every transaction that holds some is decided."""

    def __init__(self, config: KafkaConfig, group: str, *, keeps_maps: bool) -> None:
        self._config = config
        self._door = ExactDoor() if keeps_maps else PlainDoor()
        settings = {"group.id": group, "enable.auto.commit": "false", "isolation.level": "read_committed"}
        with mapped(config.bootstrap_servers):
            self._reader = Consumer(config.client(**settings))

    def committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the next offsets to read; partitions without a commit are absent. Raises BrokerUnavailable."""
        with mapped(self._config.bootstrap_servers):
            found = self._door.committed(self._reader, partitions, PATIENCE)
        return {partition: each.offset for partition, each in found.items()}

    def renew(self, partitions: Collection[TopicPartition]) -> None:
        """Commit what is committed once more, as it is."""
        with mapped(self._config.bootstrap_servers):
            found = self._door.committed(self._reader, partitions, PATIENCE)
            self._door.commit(self._reader, found, PATIENCE)

    def close(self) -> None:
        """Close the client."""
        self._reader.close()


def refuse_lost(group: str, found: Mapping[TopicPartition, int | None], least: Mapping[TopicPartition, int]) -> None:
    """Raise ProgressLost where what is committed is gone, or less than a job made of it."""
    for (topic, partition), before in least.items():
        offset = found.get(TopicPartition(topic, partition))
        if offset is None or offset < before:
            raise lost(group, topic, partition, offset, before)


def lost(group: str, topic: str, partition: int, found: int | None, before: int | None) -> ProgressLost:
    """Return what a job ends with that ``found`` other progress than it made; None is none, or any."""
    text = f"group {group} has {'nothing' if found is None else found} committed for {topic}-{partition}, "
    text += "where the job has been before" if before is None else f"and the job got to {before}"
    text += (
        ". Its offsets were moved, deleted, or expired, so that going on would repeat or lose records. Set them to "
        f"where the outputs end (kafka-consumer-groups --group {group} --topic {topic}:{partition} --reset-offsets), "
        "or run this as a job of another name"
    )
    return ProgressLost(text, group=group, topic=topic, partition=partition, offset=found)
