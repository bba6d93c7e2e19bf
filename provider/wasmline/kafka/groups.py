"""Committed offsets of consumer groups, read and written from outside the group."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future

import confluent_kafka
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException

from wasmline.kafka.admin import Topics
from wasmline.kafka.administrator import TIMEOUT, Administrator
from wasmline.kafka.config import KafkaConfig
from wasmline.kafka.failures import mapped
from wasmline.records import TopicPartition


class ConsumerGroups:
    """What groups have committed. Every method raises BrokerUnavailable when no broker answers in time."""

    def __init__(self, config: KafkaConfig, *, timeout: float = TIMEOUT) -> None:
        self._timeout = timeout
        self._topics = Topics(config, timeout=timeout)
        self._admin = Administrator(config, timeout)

    def committed(self, group: str, topic: str) -> dict[int, int]:
        """Return the next offset to read by partition; partitions without a commit are absent. Raises TopicNotFound."""
        partitions = range(self._topics.describe(topic).partitions)
        asked = [confluent_kafka.TopicPartition(topic, partition) for partition in partitions]
        request = [ConsumerGroupTopicPartitions(group, asked)]
        answers = self._admin.client.list_consumer_group_offsets(request, request_timeout=self._timeout)
        return {each.partition: each.offset for each in self._checked(answers[group]) if each.offset >= 0}

    def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit the next offsets to read for a group without members; the group need not exist yet.

        Raises KafkaError while consumers are subscribed with this group: they own its offsets.
        """
        wanted = [
            confluent_kafka.TopicPartition(partition.topic, partition.partition, offset)
            for partition, offset in offsets.items()
        ]
        request = [ConsumerGroupTopicPartitions(group, wanted)]
        answers = self._admin.client.alter_consumer_group_offsets(request, request_timeout=self._timeout)
        self._checked(answers[group])

    def _checked(self, answer: Future[ConsumerGroupTopicPartitions]) -> list[confluent_kafka.TopicPartition]:
        partitions = self._admin.result(answer).topic_partitions or []
        with mapped(self._admin.servers):
            for partition in partitions:
                if partition.error is not None:
                    raise KafkaException(partition.error)
        return partitions
