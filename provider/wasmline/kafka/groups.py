"""Committed offsets of consumer groups, read and written from outside the group."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar

import confluent_kafka
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException

from wasmline.errors import GroupInUse
from wasmline.kafka.admin import Topics
from wasmline.kafka.administrator import TIMEOUT, Administrator, Codes
from wasmline.kafka.config import KafkaConfig
from wasmline.kafka.failures import mapped
from wasmline.records import TopicPartition

T = TypeVar("T")

LOADING = (KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.NOT_COORDINATOR)
"""What a broker answers that has just become the group's coordinator."""


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

        def ask(codes: Codes) -> list[confluent_kafka.TopicPartition]:
            answers = self._admin.client.list_consumer_group_offsets(request, request_timeout=self._timeout)
            return self._checked(answers[group], codes)

        return {each.partition: each.offset for each in self._once_loaded(group, ask) if each.offset >= 0}

    def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit the next offsets to read for a group without members; the group need not exist yet.

        Raises KafkaError while consumers are subscribed with this group: they own its offsets.
        """
        wanted = [
            confluent_kafka.TopicPartition(partition.topic, partition.partition, offset)
            for partition, offset in offsets.items()
        ]
        request = [ConsumerGroupTopicPartitions(group, wanted)]

        def ask(codes: Codes) -> None:
            answers = self._admin.client.alter_consumer_group_offsets(request, request_timeout=self._timeout)
            self._checked(answers[group], codes)

        self._once_loaded(group, ask)

    def refuse_members(self, group: str) -> None:
        """Raise GroupInUse if consumers are subscribed with this group. A group that is not there has none.

        The broker takes a transaction's offsets for a group beside those of its members, so whoever commits without
        being a member looks first.
        """

        def ask(codes: Codes) -> Any:
            answers = self._admin.client.describe_consumer_groups([group], request_timeout=self._timeout)
            return self._admin.result(answers[group], codes)

        described = self._once_loaded(group, ask)
        if members := tuple(f"{member.client_id} on {member.host}" for member in described.members or ()):
            text = f"group {group} keeps a job's progress, and somebody reads with it: {', '.join(members)}. "
            text += "Stop these consumers, or let them use a group of their own"
            raise GroupInUse(text, group=group, members=members)

    def _once_loaded(self, group: str, ask: Callable[[Codes], T]) -> T:
        return self._admin.settled(ask, LOADING, f"{self._admin.servers} has not loaded group {group}")

    def _checked(
        self, answer: Future[ConsumerGroupTopicPartitions], codes: Codes
    ) -> list[confluent_kafka.TopicPartition]:
        partitions = self._admin.result(answer, codes).topic_partitions or []
        with mapped(self._admin.servers, codes):
            for partition in partitions:
                if partition.error is not None:
                    raise KafkaException(partition.error)
        return partitions
