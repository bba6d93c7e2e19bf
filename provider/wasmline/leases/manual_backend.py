"""Reads partitions that were assigned outside of Kafka, for a group that has no members.

The progress is the group's, and lag tools see it, but the group protects nothing: a commit of a non-member is accepted
as long as there are no members. The right to write is decided by the transactional ids, and where outputs are written
at least once, by ``held``: docs/protocols/leases.md.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from confluent_kafka import Message

from wasmline.background_call import BackgroundCall
from wasmline.consumer.backends import RebalanceListener
from wasmline.consumer.backends.kafka import (
    PRODUCER_SETTINGS,
    REQUEST_TIMEOUT_S,
    RESET,
    CommitContents,
    GroupSource,
    KafkaSink,
    KafkaTransactions,
    LazyOffsetStore,
    OpenTransactionalId,
    output_topics,
    require_exactly_once,
    topic_partitions,
)
from wasmline.consumer.columns import RecordColumns
from wasmline.consumer.options import ConsumerOptions, Delivery
from wasmline.consumer.records import ConsumedRecord
from wasmline.errors import BrokerUnavailable, HangingTransactionEnded, ProducerFenced, WasmlineError
from wasmline.errors import KafkaError as KafkaFailed
from wasmline.job_offsets.committed_offset_reader import require_committed
from wasmline.kafka.committed_offset_store import LibrdkafkaOffsetStore, OffsetsOnlyStore, require_tested_client
from wasmline.kafka.config import SOCKET_TIMEOUT_MS, KafkaConfig
from wasmline.kafka.error_mapping import ReportedError, translate_errors
from wasmline.kafka.reconnecting_clients import ReconnectingProducer
from wasmline.kafka.transactional_producer import abort_open_transactions
from wasmline.topic_partitions import CommittedOffset, TopicPartition
from wasmline.transactional_ids import shared_id

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionAssignment:
    """The assignment of a consumer.

    progress: the partitions that it reads and whose progress it alone writes for as long as it is ``held``, whole
        virtual shards of their topic; each with a lower bound of its committed offset, kept up to date.
    followed: partitions of other topics and their first offsets; each of their records is passed to ``follow``, once.
    require_owner: raises ProducerFenced if another owner was ordered, as far as the cluster knows at that moment.
    keeps_maps: whether this cluster and client store offset maps, as ``probe_cluster`` found with the release
        ``client`` of confluent-kafka.
    outputs: output topics, as far as they are known beforehand.
    """

    progress: dict[TopicPartition, int]
    followed: Mapping[TopicPartition, int]
    follow: Callable[[ConsumedRecord], None]
    held: Callable[[], bool]
    require_owner: Callable[[], None]
    keeps_maps: bool = True
    client: str = ""
    outputs: tuple[str, ...] = ()

    @property
    def partitions(self) -> Collection[TopicPartition]:
        """The assigned partitions."""
        return self.progress.keys()

    def require_committed(
        self, group: str, partitions: Collection[TopicPartition], found: Mapping[TopicPartition, CommittedOffset]
    ) -> None:
        """Raise ProgressLost where less is committed than before: no other owner sets progress back."""
        offsets = {partition: each.offset for partition, each in found.items()}
        require_committed(group, offsets, {partition: self.progress[partition] for partition in partitions})

    def committed(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Record committed offsets."""
        self.progress.update({partition: each.offset for partition, each in offsets.items()})


class ManualBackend:
    """One consumer of an assignment. Once another owner has taken over one of its partitions, it stops writing."""

    def __init__(self, options: ConsumerOptions, assignment: PartitionAssignment) -> None:
        """Raises ReleaseMismatch if this process has another client than the one that was tested."""
        if assignment.keeps_maps:
            require_tested_client(assignment.client)
        config = KafkaConfig.completed(options.kafka)
        offset_store = LazyOffsetStore(
            config, options.group_id, LibrdkafkaOffsetStore() if assignment.keeps_maps else OffsetsOnlyStore()
        )
        self.source = ManualSource(options, config, offset_store, assignment)
        self.sink = KafkaSink(config)
        prefix = options.transactional_id or options.group_id
        output_topics[prefix].update(assignment.outputs)
        self.transactions = ManualTransactions(config, prefix, self.source, offset_store, assignment)

    def use_columns(self) -> None:
        from wasmline.kafka.compiled_columns import compiled_columns

        self.source.compiled = self.sink.compiled = self.transactions.compiled = compiled_columns()


def probe_cluster(options: ConsumerOptions, partition: TopicPartition) -> bool:
    """Return whether the cluster can store offset maps; raise UnsafeBroker if exactly-once cannot be guaranteed."""
    config = KafkaConfig.completed(options.kafka)
    offset_store = LazyOffsetStore(config, options.group_id)
    if options.delivery is Delivery.EXACTLY_ONCE:
        require_exactly_once(config, options.transactional_id or options.group_id, partition, offset_store)
    return offset_store.on(partition).keeps_metadata


class ManualSource(GroupSource):
    """Reads an assignment. See Source for its contract.

    ``commit`` raises ProducerFenced when the assignment is not held, ``committed`` ProgressLost below its start.
    """

    def __init__(
        self,
        options: ConsumerOptions,
        config: KafkaConfig,
        offset_store: LazyOffsetStore,
        assignment: PartitionAssignment,
    ) -> None:
        # The first offset without a commit must not depend on the time of the query: a later one would skip records.
        settings = {RESET: "earliest", "isolation.level": "read_committed"}
        settings["socket.timeout.ms"] = config.properties.get("socket.timeout.ms", SOCKET_TIMEOUT_MS)
        super().__init__(options, config, offset_store, settings)
        self._assignment = assignment
        self._delivery = options.delivery
        self._topics_followed = {partition.topic for partition in assignment.followed}

    def open(self, listener: RebalanceListener) -> None:
        self._listener = listener
        with translate_errors(self._config.bootstrap_servers):
            # It connects while the listener opens transactions: a client without brokers waits up to a second.
            warm = BackgroundCall(partial(self.consumer.list_topics, timeout=REQUEST_TIMEOUT_S))
            if not self._assignment.held():
                raise lease_expired_error()
            starts = listener.assigned(self._assignment.partitions)
            warm.result()
            self._read_compiled([*self._assignment.partitions, *self._assignment.followed])
            self.consumer.assign(
                [
                    *self._places({partition: starts.get(partition) for partition in self._assignment.partitions}),
                    *self._places(self._assignment.followed),
                ]
            )
            if waiting := [partition for partition in self._assignment.partitions if partition not in starts]:
                self.consumer.pause(topic_partitions(waiting))

    def poll(self, limit: int, timeout: float) -> Sequence[ConsumedRecord]:
        records = super().poll(limit, timeout)
        followed = [record for record in records if record.topic in self._topics_followed]
        if not followed:
            return records
        for record in followed:
            self._assignment.follow(record)
        return [record for record in records if record.topic not in self._topics_followed]

    def poll_columns(self, limit: int, timeout: float) -> Sequence[RecordColumns]:
        read = super().poll_columns(limit, timeout)
        followed = [columns for columns in read if columns.partition.topic in self._topics_followed]
        for columns in followed:
            for record in columns.records():
                self._assignment.follow(record)
        return [columns for columns in read if columns not in followed] if followed else read

    def _out_of_range(
        self, listener: RebalanceListener, message: Message | ReportedError, truncated: re.Match[str] | None
    ) -> None:
        if message.topic() in self._topics_followed:
            text = f"{message.topic()} was recreated, so that its records of this job are lost"
            raise KafkaFailed(text)
        super()._out_of_range(listener, message, truncated)

    def committed(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, CommittedOffset]:
        began = time.monotonic()
        try:
            found = super().committed(partitions)
        except HangingTransactionEnded:
            raise
        except BrokerUnavailable:
            if time.monotonic() - began >= self._timings.request_timeout_s:
                self._abort_open_transactions(partitions)
            raise
        self._assignment.require_committed(self.group, partitions, found)
        if self._delivery is Delivery.EXACTLY_ONCE:  # at least once, another attempt's commit may still arrive
            self._assignment.committed(found)
        return found

    def _abort_open_transactions(self, partitions: Collection[TopicPartition]) -> None:
        """Abort what a task of an earlier exactly-once run may have open: nothing else would within 15 minutes."""
        self._assignment.require_owner()
        ids = sorted({self.transactional_id(partition) for partition in partitions})
        abort_open_transactions(self._config, ids, PRODUCER_SETTINGS, REQUEST_TIMEOUT_S)

    def transactional_id(self, partition: TopicPartition) -> str:
        return shared_id(self._prefix, partition)

    def commit(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        if not self._assignment.held():
            raise lease_expired_error()
        super().commit(offsets)
        self._assignment.committed(offsets)

    def close(self) -> None:
        try:
            if self._listener is not None:
                self._listener.revoked(self._assignment.partitions)
        finally:
            super().close()


class ManualTransactions(KafkaTransactions):
    """A producer for each virtual shard of an assignment, until one is fenced: then the assignment is lost."""

    def __init__(
        self,
        config: KafkaConfig,
        prefix: str,
        source: GroupSource,
        offset_store: LazyOffsetStore,
        assignment: PartitionAssignment,
    ) -> None:
        super().__init__(config, prefix, source, offset_store, is_safe=True)
        self._assignment = assignment
        self.fenced: ProducerFenced | None = None
        """Why it no longer writes."""

    def open(self, partitions: Collection[TopicPartition]) -> None:
        try:
            super().open(partitions)
        except ProducerFenced as error:
            self.fenced = error
            raise

    def begin(self, work: CommitContents) -> Callable[[], Mapping[TopicPartition, WasmlineError]]:
        begun = super().begin(work)

        def commit() -> Mapping[TopicPartition, WasmlineError]:
            self._require_held()
            failures = begun()
            fences = (error for error in failures.values() if isinstance(error, ProducerFenced))
            self.fenced = self.fenced or next(fences, None)
            # Raised at once: the last commit must not retry other failures of this commit.
            self._require_held()
            return failures

        return commit

    def _id(self, partition: TopicPartition) -> str:
        return shared_id(self._prefix, partition)

    def _fence(self, name: str, deadline: float) -> ReconnectingProducer:
        self._require_held()
        return super()._fence(name, deadline)

    def _require_owner(self) -> None:
        self._assignment.require_owner()

    def _require_unmoved(
        self, left: Mapping[TopicPartition, CommittedOffset | None], found: Mapping[TopicPartition, CommittedOffset]
    ) -> None:
        self._assignment.require_committed(self._source.group, left.keys(), found)
        super()._require_unmoved(left, found)

    def _commit(
        self, name: str, open_id: OpenTransactionalId | None, work: CommitContents, member: Any
    ) -> WasmlineError | None:
        error = super()._commit(name, open_id, work, member)
        if error is None:
            self._assignment.committed({partition: progress for partition, (_, progress) in work.items()})
        return error

    def _require_held(self) -> None:
        if self.fenced is None and not self._assignment.held():
            self.fenced = lease_expired_error()
        if self.fenced is not None:
            raise self.fenced


def lease_expired_error() -> ProducerFenced:
    """Return the error of a consumer whose lease has expired, which writes nothing."""
    return ProducerFenced("the lease has expired; its partitions may have a new owner")
