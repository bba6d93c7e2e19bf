"""Committed offsets of consumer groups, read and written from outside the group."""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

import confluent_kafka
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException

from wasmline.errors import BrokerUnavailable, GroupInUse, WasmlineError
from wasmline.kafka.admin import Topics
from wasmline.kafka.administrator import LOOK_AGAIN, TIMEOUT, Administrator
from wasmline.kafka.config import KafkaConfig
from wasmline.kafka.failures import mapped
from wasmline.records import TopicPartition

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

    def refuse_members(self, group: str) -> None:
        """Raise GroupInUse if consumers are subscribed with this group. A group that is not there has none.

        The broker takes a transaction's offsets for a group beside those of its members, so whoever commits without
        being a member looks first.
        """
        described = self._described(group)
        if members := tuple(f"{member.client_id} on {member.host}" for member in described.members or ()):
            text = f"group {group} keeps a job's progress, and somebody reads with it: {', '.join(members)}. "
            text += "Stop these consumers, or let them use a group of their own"
            raise GroupInUse(text, group=group, members=members)

    def _described(self, group: str) -> Any:
        loading: WasmlineError = BrokerUnavailable(
            f"{self._admin.servers} has not loaded group {group}", bootstrap_servers=self._admin.servers
        )
        deadline = time.monotonic() + self._timeout
        while True:
            answer = self._admin.client.describe_consumer_groups([group], request_timeout=self._timeout)[group]
            try:
                return self._admin.result(answer, dict.fromkeys(LOADING, loading))
            except BrokerUnavailable as error:
                if error is not loading or time.monotonic() > deadline:
                    raise
                time.sleep(LOOK_AGAIN)

    def _checked(self, answer: Future[ConsumerGroupTopicPartitions]) -> list[confluent_kafka.TopicPartition]:
        partitions = self._admin.result(answer).topic_partitions or []
        with mapped(self._admin.servers):
            for partition in partitions:
                if partition.error is not None:
                    raise KafkaException(partition.error)
        return partitions
