"""Creates, describes and deletes topics, and reads their settings and offsets."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from confluent_kafka import IsolationLevel, KafkaError, TopicCollection, TopicPartition
from confluent_kafka.admin import ConfigResource, NewTopic, OffsetSpec, TopicDescription  # type: ignore[attr-defined]  # public, though not in its __all__

from wasmline.errors import BrokerUnavailable, TopicNotFound, WasmlineError
from wasmline.errors import KafkaError as KafkaFailed
from wasmline.kafka.bounded_admin_client import REQUEST_TIMEOUT_S, RETRY_INTERVAL_S, BoundedAdminClient, Codes
from wasmline.kafka.config import KafkaConfig
from wasmline.kafka.error_mapping import denied_errors
from wasmline.kafka.list_offsets import list_offsets, list_topic_offsets

URL_SAFE = str.maketrans("+/", "-_")
"""Translates the client's Base64 alphabet to the URL-safe one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicInfo:
    """A topic as the cluster describes it. ``id`` changes when a topic is deleted and recreated under its name.

    It is in the alphabet of Kafka's own tools, which is safe in a path.
    """

    name: str
    id: str
    partitions: int
    replication: int


class Topics:
    """The topics of a cluster. A method raises BrokerUnavailable if a request has no answer in ``timeout`` seconds."""

    def __init__(self, config: KafkaConfig, *, timeout: float = REQUEST_TIMEOUT_S) -> None:
        self._servers = config.bootstrap_servers
        self._timeout = timeout
        self._admin = BoundedAdminClient(config, timeout)

    def create(
        self,
        name: str,
        partitions: int,
        *,
        config: Mapping[str, str] | None = None,
        replication: int | None = None,
        exist_ok: bool = False,
    ) -> None:
        """Create a topic and return once it can be used; ``replication`` None is the cluster's default.

        An existing topic raises KafkaError, or with ``exist_ok`` is left unchanged. Where a connection is
        lost before the answer, the request is made again, and may raise that of the topic that it has created.
        """
        factor = -1 if replication is None else replication
        topic = NewTopic(name, num_partitions=partitions, replication_factor=factor, config=dict(config or {}))
        exists = KafkaFailed(f"topic {name} exists already on {self._servers}")

        def ask(codes: Codes, limit: float) -> None:
            limit = limit if exist_ok else self._timeout  # another attempt may find the topic that this one creates
            answers = self._admin.client.create_topics([topic], request_timeout=limit)
            denied = denied_errors(self._servers, topic=name)
            known = {KafkaError.TOPIC_ALREADY_EXISTS: exists, **denied, **codes}
            self._admin.result(answers[name], known, limit=limit)

        self._admin.brokers()  # a client that was told of none waits for a controller until its time is over
        # A broker counts for replicas only some time after its start.
        too_few = f"{self._servers} has fewer brokers up than {name} has replicas"
        try:
            self._admin.settled(ask, (KafkaError.INVALID_REPLICATION_FACTOR,), too_few, learns=True)
        except KafkaFailed as error:
            if not (exist_ok and error is exists):
                raise
        self._until(lambda: self.exists(name), f"topic {name} does not exist yet")

    def delete(self, names: Iterable[str]) -> None:
        """Delete topics with their records, one after another, and return once they are gone. Raises TopicNotFound.

        Where an answer is lost, this raises BrokerUnavailable: another attempt might delete a topic that was made anew.
        """
        for name in names:
            answers = self._admin.client.delete_topics([name], request_timeout=self._timeout)
            self._admin.result(answers[name], self._codes(name), limit=self._timeout)
            self._until(partial(self._is_gone, name), f"topic {name} still exists")

    def exists(self, name: str) -> bool:
        """Return whether there is a topic of that name."""
        try:
            self.describe(name)
        except TopicNotFound:
            return False
        return True

    def describe(self, name: str) -> TopicInfo:
        """Return the cluster's description of a topic. Raises TopicNotFound."""
        found = self.describe_existing([name])
        if name not in found:
            raise self._not_found(name)
        return found[name]

    def describe_existing(self, names: Collection[str]) -> dict[str, TopicInfo]:
        """Return the cluster's descriptions of those of these topics that exist, in one request."""

        def ask(_: Codes, limit: float) -> dict[str, TopicDescription]:
            asked = TopicCollection(list(names))
            answers = self._admin.client.describe_topics(asked, request_timeout=limit)
            found = {}
            for name in names:
                with suppress(TopicNotFound):
                    found[name] = self._admin.result(answers[name], self._codes(name), limit=limit)
            return found

        return {name: _topic_info(name, each) for name, each in self._admin.settled(ask, (), "", learns=True).items()}

    def max_message_bytes(self, name: str) -> int | None:
        """Return the topic's maximum bytes of a batch of records; None where its settings are not readable.

        Raises TopicNotFound.
        """
        settings = self.settings([name])[name]
        return None if settings is None else int(settings["max.message.bytes"])

    def record_limits(self, names: Collection[str]) -> dict[str, int]:
        """Return ``max_message_bytes`` of topics, except those whose settings are not readable.

        Raises TopicNotFound.
        """
        settings = self.settings(names)
        return {name: int(each["max.message.bytes"]) for name, each in settings.items() if each is not None}

    def settings(self, names: Collection[str]) -> dict[str, dict[str, str] | None]:
        """Return the settings of topics, including defaults; None where this client is not permitted to read them.

        Raises TopicNotFound.
        """
        resources = {name: ConfigResource(ConfigResource.Type.TOPIC, name) for name in names}
        if not resources:
            return {}

        def ask(_: Codes, limit: float) -> dict[str, dict[str, str] | None]:
            asked = list(resources.values())
            answers = self._admin.client.describe_configs(asked, request_timeout=limit)
            return {name: self._settings(name, answers[resource], limit) for name, resource in resources.items()}

        return self._admin.settled(ask, (), "", learns=True)

    def _settings(self, name: str, answer: Future[Any], limit: float) -> dict[str, str] | None:
        hidden = KafkaFailed(f"this client is not permitted to read the settings of topic {name}")
        codes = {**self._codes(name), KafkaError.TOPIC_AUTHORIZATION_FAILED: hidden}
        try:
            return {key: each.value for key, each in self._admin.result(answer, codes, limit=limit).items()}
        except KafkaFailed as error:
            if error is not hidden:
                raise
            return None

    def brokers(self) -> int:
        """Return the number of brokers that are up."""
        return len(self._admin.brokers())

    def beginning_offsets(self, name: str) -> dict[int, int]:
        """Return the beginning offsets, by partition. Raises TopicNotFound."""
        return self._offsets(name, OffsetSpec.earliest())  # type: ignore[no-untyped-call]

    def end_offsets(self, name: str) -> dict[int, int]:
        """Return the end offsets for a read_committed reader, by partition. Raises TopicNotFound."""
        return self._offsets(name, OffsetSpec.latest())  # type: ignore[no-untyped-call]

    def bounds(self, names: Collection[str]) -> dict[str, dict[int, tuple[int, int]]]:
        """Return the beginning and end offset of each partition of those of these topics that exist.

        In three requests, however many there are; the end is that for a read_committed reader.
        """
        found, gone = self.describe_existing(names) if names else {}, self._codes(", ".join(names))
        if not found:
            return {}
        partitions = [TopicPartition(name, number) for name, each in found.items() for number in range(each.partitions)]
        begins, ends = (
            list_topic_offsets(
                self._admin,
                dict.fromkeys(partitions, spec),
                IsolationLevel.READ_COMMITTED,
                gone,
                skipped=(TopicNotFound,),
            )
            for spec in (OffsetSpec.earliest(), OffsetSpec.latest())  # type: ignore[no-untyped-call]
        )
        bounds: dict[str, dict[int, tuple[int, int]]] = {name: {} for name in found}
        for (name, partition), begin in begins.items():
            bounds[name][partition] = (begin, ends.get((name, partition), begin))
        return bounds

    def written_offsets(self, name: str) -> dict[int, int]:
        """Return the offset after the last record that was written, committed or not, by partition."""
        return self._offsets(name, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED)  # type: ignore[no-untyped-call]

    def offsets_for_time(self, name: str, ms: int) -> dict[int, int]:
        """Return the first offset of Unix time ``ms`` or later, by partition; the end offset if there is none yet."""
        ends = self.end_offsets(name)  # first: a record that is written meanwhile is not before the result
        found = self._offsets(name, OffsetSpec.for_timestamp(max(0, ms)))  # the protocol's special times are negative
        return {each: offset if (offset := found.get(each, -1)) >= 0 else end for each, end in ends.items()}

    def _offsets(
        self, name: str, spec: OffsetSpec, isolation: IsolationLevel = IsolationLevel.READ_COMMITTED
    ) -> dict[int, int]:
        wanted = {TopicPartition(name, partition): spec for partition in range(self.describe(name).partitions)}
        return list_offsets(self._admin, wanted, isolation, self._codes(name))

    def _is_gone(self, name: str) -> bool:
        return not self.exists(name)

    def _codes(self, name: str) -> dict[int, WasmlineError]:
        """Return the errors of requests about a topic that is missing, or that this client is denied."""
        missing = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_EXCEPTION}
        return {**dict.fromkeys(missing, self._not_found(name)), **denied_errors(self._servers, topic=name)}

    def _not_found(self, name: str) -> TopicNotFound:
        return TopicNotFound(f"there is no topic {name} on {self._servers}: create it, or name another", topic=name)

    def _until(self, condition: Callable[[], bool], otherwise: str) -> None:
        """Wait for the brokers to receive the controller's decision: they do a moment later."""
        deadline = time.monotonic() + self._timeout
        while not condition():
            if time.monotonic() > deadline:
                raise BrokerUnavailable(f"{otherwise}, {self._timeout:.0f} s later", bootstrap_servers=self._servers)
            time.sleep(RETRY_INTERVAL_S)


def _topic_info(name: str, topic: TopicDescription) -> TopicInfo:
    replication = min(len(partition.replicas) for partition in topic.partitions)
    identity = str(topic.topic_id).translate(URL_SAFE)
    return TopicInfo(name=name, id=identity, partitions=len(topic.partitions), replication=replication)
