"""Requests about transactions on the cluster in memory: what ``wasmline.kafka.transaction_requests`` asks brokers."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from confluent_kafka import KafkaException

from support.simulation.clients import Client
from wasmline.consumer.backends.memory import MemoryCluster, MemoryTransactionalProducer
from wasmline.consumer.backends.memory.cluster import OFFSETS
from wasmline.errors import BrokerUnavailable, TopicNotFound
from wasmline.kafka import KafkaConfig
from wasmline.kafka.transaction_log import Decided, Decision
from wasmline.kafka.transaction_requests import OpenTransaction, ProducerIdentity, TransactionState
from wasmline.topic_partitions import TopicPartition

BROKER = 1


class MemoryTransactionRequests:
    """Stands for TransactionRequests."""

    def __init__(self, _: KafkaConfig, timeout: float) -> None:
        runtime = Client.environment.runtime
        self._runtime, self._deadline = runtime, runtime.seconds + timeout
        self._fenced: dict[str, MemoryTransactionalProducer] = {}

    def leaders(self, topics: Iterable[str]) -> dict[TopicPartition, int]:
        cluster, asked = self._asked(), set(topics)
        found = {each: BROKER for each in cluster.partitions if each.topic in asked}
        return found | ({OFFSETS: BROKER} if OFFSETS.topic in asked else {})

    def open_transactions(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, list[OpenTransaction]]:
        cluster = self._asked()
        found = {}
        for each in partitions:
            try:
                known = cluster.open_transactions(each)
            except TopicNotFound:
                continue
            found[each] = [OpenTransaction(producer, 0, one.first_offset) for producer, one in known]
        return found

    def is_of_one_epoch(self, partition: TopicPartition, producer_id: int, start: int) -> bool:
        known = self._asked().open_transactions(partition)
        return all(
            len(one.epochs) == 1 for producer, one in known if (producer, one.first_offset) == (producer_id, start)
        )

    def describe(self, transactional_id: str) -> TransactionState | None:
        cluster = self._asked()
        if transactional_id not in cluster.writers:
            return None
        writer = cluster.writers[transactional_id]
        partitions = writer.partitions if isinstance(writer, MemoryTransactionalProducer) else frozenset()
        state = "Ongoing" if partitions else "Empty"
        return TransactionState(state, cluster.producer_ids[transactional_id], 0, partitions)

    def owners(self, producer_ids: Collection[int]) -> dict[int, str]:
        known = self._asked().producer_ids
        return {producer_id: name for name, producer_id in known.items() if producer_id in producer_ids}

    def fence(self, transactional_id: str) -> ProducerIdentity:
        producer = self._fenced[transactional_id] = MemoryTransactionalProducer(self._asked(), transactional_id)
        return ProducerIdentity(transactional_id, producer.producer_id, 0)

    def end_empty(
        self, producer: ProducerIdentity, group: str, partitions: Collection[TopicPartition], *, commit: bool
    ) -> None:
        self._asked()
        self._fenced[producer.transactional_id].end_empty(partitions, group, commit=commit)

    def __enter__(self) -> MemoryTransactionRequests:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def _asked(self) -> MemoryCluster:
        """Let a request be a step."""
        try:
            return Client.environment.request(max(0.0, self._deadline - self._runtime.seconds))
        except KafkaException as error:
            raise BrokerUnavailable(str(error), bootstrap_servers="memory") from error


def decisions(_: KafkaConfig, transactional_id: str) -> list[Decided]:
    """Stand for the reading of the coordinator's log."""
    try:
        log = Client.environment.request().decided
    except KafkaException as error:
        raise BrokerUnavailable(str(error), bootstrap_servers="memory") from error
    return [
        Decided(
            transactional_id,
            each.producer_id,
            0,
            Decision.COMMIT if each.is_committed else Decision.ABORT,
            each.partitions,
        )
        for each in log
        if each.transactional_id == transactional_id
    ]
