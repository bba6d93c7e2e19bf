"""Committed offsets of consumer groups, read and written from outside the group."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

import confluent_kafka
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, KafkaException
from confluent_kafka.admin import ConfigResource  # type: ignore[attr-defined]  # public, though not in its __all__

from wasmline.errors import BrokerUnavailable, GroupInUse, NotAuthorized
from wasmline.kafka.bounded_admin_client import (
    COORDINATOR_REQUEST_TIMEOUT_S,
    REQUEST_TIMEOUT_S,
    BoundedAdminClient,
    Codes,
)
from wasmline.kafka.committed_offset_store import OffsetsOnlyStore
from wasmline.kafka.config import KafkaConfig
from wasmline.kafka.detached_consumer import detached_consumer, is_group_denial, read_group
from wasmline.kafka.error_mapping import denied_errors, translate_errors
from wasmline.kafka.reconnecting_clients import ReconnectingConsumer
from wasmline.kafka.topics import Topics
from wasmline.topic_partitions import CommittedOffset, TopicPartition

T = TypeVar("T")

LOADING_CODES = (KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.NOT_COORDINATOR)
"""Error codes of a broker that has just become the group's coordinator."""


RENEWAL_CLIENT = "wasmline-renewal"
"""The client.id of ``touch``, which distinguishes it from other subscribers of a job's group."""

POLL_INTERVAL_S = 0.05


class ConsumerGroups:
    """Committed offsets of groups. For one thread; methods raise BrokerUnavailable when no broker answers in time."""

    def __init__(self, config: KafkaConfig, *, timeout: float = REQUEST_TIMEOUT_S) -> None:
        self._config = config
        self._timeout = timeout
        self._topics = Topics(config, timeout=timeout)
        self._admin = BoundedAdminClient(config, timeout)
        self._readers: dict[str, Consumer] = {}
        """By group."""

    def committed(self, group: str, topic: str) -> dict[int, int]:
        """Return the next offset to read by partition; partitions without a commit are absent. Raises TopicNotFound."""
        asked = [TopicPartition(topic, each) for each in range(self._topics.describe(topic).partitions)]
        reader = self._reader(group)

        def ask(codes: Codes, limit: float) -> dict[TopicPartition, CommittedOffset]:
            denied = denied_errors(self._admin.servers, topic=topic, group=group)
            with translate_errors(self._admin.servers, {**denied, **codes}):
                return read_group(reader, partial(OffsetsOnlyStore().committed, reader, asked), limit)

        return {partition.partition: each.offset for partition, each in self._once_loaded(group, ask).items()}

    def _reader(self, group: str) -> Consumer:
        """Return a consumer that never joins: librdkafka's ListConsumerGroupOffsets reads memory that is not its own
        where a broker is not the coordinator any more (its issue 5040)."""
        if group not in self._readers:
            with translate_errors(self._admin.servers):
                uncommitted = {"isolation.level": "read_uncommitted"}
                self._readers[group] = detached_consumer(self._config, group, uncommitted)
        return self._readers[group]

    def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit the next offsets to read for a group without members; the group need not exist yet.

        Raises GroupInUse while consumers are subscribed with this group: they own its offsets.
        """
        wanted = [
            confluent_kafka.TopicPartition(partition.topic, partition.partition, offset)
            for partition, offset in offsets.items()
        ]
        request = [ConsumerGroupTopicPartitions(group, wanted)]

        def ask(codes: Codes, limit: float) -> None:
            answers = self._admin.client.alter_consumer_group_offsets(
                request, request_timeout=COORDINATOR_REQUEST_TIMEOUT_S
            )
            denied = denied_errors(self._admin.servers, topic=", ".join({each.topic for each in offsets}), group=group)
            in_use = {KafkaError.UNKNOWN_MEMBER_ID: group_in_use_error(group)}
            self._check(answers[group], {**denied, **codes, **in_use}, limit)

        self._once_loaded(group, ask)

    def require_no_members(self, group: str) -> None:
        """Raise GroupInUse if consumers are subscribed with this group. A missing group has none.

        The broker accepts a transaction's offsets for a group beside those of its members, so a non-member checks
        before it commits.
        """
        found = [each for each in self._describe(group).members or () if each.client_id != RENEWAL_CLIENT]
        if members := tuple(f"{member.client_id} on {member.host}" for member in found):
            raise group_in_use_error(group, members)

    refuse_members = require_no_members  # its earlier name, until release 0.2.0

    def had_members(self, group: str) -> bool:
        """Return whether consumers have been subscribed with this group.

        All offsets of a classic group that had members expire together, counted from when the last one left, regardless
        of later commits. Offsets of one that never had any expire by themselves, each counted from its commit:
        https://cwiki.apache.org/confluence/display/KAFKA/KIP-211%3A+Revise+Expiration+Semantics+of+Consumer+Group+Offsets
        """
        described = self._describe(group)
        is_classic = getattr(described.type, "name", "CLASSIC") == "CLASSIC"
        return is_classic and not described.is_simple_consumer_group

    def touch(self, group: str, topic: str) -> None:
        """Join a group that had members and leave it, so that the time until its offsets expire restarts.

        Nothing is read or committed. Meanwhile only transactions can commit offsets for the group. Raises
        BrokerUnavailable.
        """
        joined: list[object] = []

        def assigned(consumer: Consumer, partitions: object) -> None:
            consumer.assign([])
            joined.append(partitions)

        settings = {"group.id": group, "client.id": RENEWAL_CLIENT, "enable.auto.commit": "false"}
        with translate_errors(self._admin.servers, denied_errors(self._admin.servers, topic=topic, group=group)):
            consumer = ReconnectingConsumer(self._config.client(**settings))
            try:
                consumer.subscribe([topic], on_assign=assigned)
                deadline = time.monotonic() + self._timeout
                while not joined:
                    message = consumer.poll(POLL_INTERVAL_S)
                    if message is not None and is_group_denial(message):
                        raise KafkaException(message.error())
                    if time.monotonic() > deadline:
                        text = f"group {group} on {self._admin.servers} could not be joined in {self._timeout:.0f} s"
                        raise BrokerUnavailable(text, bootstrap_servers=self._admin.servers)
            finally:
                consumer.close()

    def retention_s(self) -> float | None:
        """Return the seconds for which committed offsets are kept; None where this client is not permitted to read it,
        or the broker does not tell.

        It is ``offsets.retention.minutes`` of one broker: the result is undefined if the brokers' settings differ.
        """

        def ask(_: Codes, limit: float) -> float | None:
            broker = ConfigResource(ConfigResource.Type.BROKER, str(self._admin.brokers()[0]))
            answers = self._admin.client.describe_configs([broker], request_timeout=limit)
            minutes = self._admin.result(answers[broker], limit=limit).get("offsets.retention.minutes")
            return 60.0 * float(minutes.value) if minutes and minutes.value else None

        try:
            return self._admin.settled(ask, (), "", learns=True)
        except NotAuthorized:
            return None

    def _describe(self, group: str) -> Any:
        def ask(codes: Codes, limit: float) -> Any:
            answers = self._admin.client.describe_consumer_groups(
                [group], request_timeout=COORDINATOR_REQUEST_TIMEOUT_S
            )
            codes = {**denied_errors(self._admin.servers, group=group), **codes}
            return self._admin.result(answers[group], codes, limit=limit)

        return self._once_loaded(group, ask)

    def _once_loaded(self, group: str, ask: Callable[[Codes, float], T]) -> T:
        return self._admin.settled(
            ask, LOADING_CODES, f"{self._admin.servers} has not loaded group {group}", renews=True
        )

    def _check(self, answer: Future[ConsumerGroupTopicPartitions], codes: Codes, limit: float) -> None:
        partitions = self._admin.result(answer, codes, limit=limit).topic_partitions or []
        with translate_errors(self._admin.servers, codes):
            for partition in partitions:
                if partition.error is not None:
                    raise KafkaException(partition.error)


def group_in_use_error(group: str, members: tuple[str, ...] = ()) -> GroupInUse:
    """Return the error of a job whose group has members."""
    listed = f": {', '.join(members)}" if members else ""
    text = f"group {group} stores a job's progress and has active members{listed}. "
    text += "Stop these consumers, or let them use a group of their own"
    return GroupInUse(text, group=group, members=members)
