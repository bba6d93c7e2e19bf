"""Reads what a group has committed, as a broker has it: also while a transaction is open that may change it."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import Consumer, KafkaException

from support.chaos.call_ledger import Left
from wasmline.kafka import KafkaConfig
from wasmline.kafka.committed_offset_store import LibrdkafkaOffsetStore
from wasmline.local.process import wait_until
from wasmline.offset_maps.codec import decode
from wasmline.topic_partitions import CommittedOffset, TopicPartition

TIMEOUT_S = 90.0


class GroupProgress:
    """A group's progress of one topic. Close it."""

    def __init__(self, config: KafkaConfig, group: str, topic: str, partitions: int) -> None:
        self._partitions = [TopicPartition(topic, each) for each in range(partitions)]
        self._offset_store = LibrdkafkaOffsetStore()
        settings = {"group.id": group, "enable.auto.commit": "false", "isolation.level": "read_uncommitted"}
        self._reader = Consumer(config.client(**settings))

    def committed(self) -> dict[int, tuple[int, str]]:
        """Return offset and metadata by partition."""
        found: Mapping[TopicPartition, CommittedOffset] = {}

        def read() -> bool:
            nonlocal found
            try:
                found = self._offset_store.committed(self._reader, self._partitions)
            except KafkaException:
                return False  # the group's coordinator is about to be another broker
            return True

        assert wait_until(read, TIMEOUT_S)
        return {partition.partition: (each.offset, each.metadata) for partition, each in found.items()}

    def left(self) -> dict[int, Left]:
        """Return by partition which records are committed."""
        found = {}
        for partition, (offset, metadata) in self.committed().items():
            highest, incompletes = decode(metadata, offset)
            found[partition] = Left(offset, highest, frozenset(incompletes))
        return found

    def commit(self, offsets: Mapping[int, CommittedOffset]) -> None:
        """Commit for a group without members."""
        mine = {self._partitions[partition]: each for partition, each in offsets.items()}
        self._offset_store.commit(self._reader, mine)

    def close(self) -> None:
        self._reader.close()
