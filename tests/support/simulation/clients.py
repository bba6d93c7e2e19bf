"""The client library on a cluster in memory: what our code uses of confluent_kafka, with the errors of a broker.

Every request is a step of the history: others may act before it takes effect, and the process may end there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import confluent_kafka
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    ConsumerGroupType,
    IsolationLevel,
    KafkaError,
    KafkaException,
)
from confluent_kafka.admin import ConfigResource, OffsetSpec  # type: ignore[attr-defined]

from support.simulation.virtual import OUTSIDE, Process, Runtime
from wasmline.consumer.backends.memory import MemoryCluster, MemoryTransactionalProducer
from wasmline.consumer.backends.memory.group import Member
from wasmline.consumer.backends.memory.partition_log import Log
from wasmline.consumer.records import Output
from wasmline.errors import (
    BrokerUnavailable,
    CommitFailed,
    MetadataTooLarge,
    OutputRefused,
    ProducerFenced,
    TopicNotFound,
    WasmlineError,
)
from wasmline.errors import KafkaError as KafkaFailed
from wasmline.topic_partitions import CommittedOffset, TopicPartition

CODES: Sequence[tuple[type[WasmlineError], int]] = (
    (TopicNotFound, KafkaError.UNKNOWN_TOPIC_OR_PART),
    (OutputRefused, KafkaError.MSG_SIZE_TOO_LARGE),
    (MetadataTooLarge, KafkaError.OFFSET_METADATA_TOO_LARGE),
    (CommitFailed, KafkaError.UNKNOWN_MEMBER_ID),
    (BrokerUnavailable, KafkaError._TRANSPORT),
    (KafkaFailed, KafkaError.OFFSET_METADATA_TOO_LARGE),
)

EARLIEST = type(OffsetSpec.earliest())  # type: ignore[no-untyped-call]

EVERYTHING = 1 << 62

MOMENTS = ("fence", "claim", "report", "read", "write", "send", "commit", "plan", "done")
"""What a run is about to do when it is held: take a transactional id, end the transaction of a claim, open its own
records or end a transaction of them, read progress, write outputs, send progress, commit progress, record a batch in
the checkpoint, record that it is done."""

REQUEST_S = 10.0
"""Seconds that a request waits for a broker, where nothing else is said."""


class Environment:
    """What the clients of a history share."""

    def __init__(self, runtime: Runtime, cluster: MemoryCluster) -> None:
        self.runtime = runtime
        self.cluster = cluster
        self.written: dict[tuple[TopicPartition, int], Process] = {}
        """The process that wrote each record."""
        self.on_commit: Callable[[str, Mapping[TopicPartition, CommittedOffset], int], None] = lambda *_: None
        """Called before offsets are committed, with the wakes of the process when it asked; -1 in a transaction."""
        self.reached: Counter[tuple[str, str]] = Counter()
        """How often each run has come to each of MOMENTS."""
        self.away_until = 0.0
        """When the brokers answer again, in seconds of the history."""
        self.lost_commits: list[bool] = []
        """What becomes of each of the commits to come, whose answers are lost: whether it is carried out."""
        self.retention_s = 7 * 24 * 3_600.0
        """How long the cluster keeps offsets of a group without members."""
        self.names: dict[Member, str] = {}
        """The client ids of members."""

    @property
    def is_away(self) -> bool:
        """Whether no broker answers those whose requests are part of the history."""
        return self.runtime.seconds < self.away_until and self.runtime.process is not OUTSIDE

    def reach(self, what: str) -> None:
        """Let something of MOMENTS be a step, before which its run may be held."""
        self.reached[self.runtime.process.run, what] += 1
        self.runtime.step()

    def request(self, timeout: float = REQUEST_S, what: str = "") -> MemoryCluster:
        """Let a request be a step, which waits while no broker answers; raise what the client does after that."""
        if what:
            self.reach(what)
        else:
            self.runtime.step()
        if self.is_away:
            self.runtime.sleep(min(timeout, self.away_until - self.runtime.seconds))
            if self.is_away:
                raise KafkaException(KafkaError(KafkaError._TRANSPORT, "no broker answers", retriable=True))
        return self.cluster

    @contextmanager
    def committing(self) -> Iterator[None]:
        """Let the answer of a commit within the block be lost if that was asked for."""
        is_lost = bool(self.lost_commits) and self.runtime.process is not OUTSIDE
        is_carried_out = self.lost_commits.pop(0) if is_lost else True
        if is_carried_out:
            yield
        if is_lost:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "a commit was not answered", retriable=True))


class Client:
    environment: Environment

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.settings = settings
        self.is_closed = False

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
        self.environment.request(REQUEST_S if timeout < 0 else timeout)
        return SimpleNamespace(topics={}, brokers={1: None})

    def list_topics_once(self, topic: str | None, timeout: float) -> Any:
        return self.list_topics(topic, timeout)


def _raised(error: WasmlineError) -> KafkaException:
    """Return what the client raises for a refusal of the cluster."""
    if isinstance(error, ProducerFenced):
        return KafkaException(KafkaError(KafkaError._FENCED, str(error), fatal=True))
    code = next(code for kind, code in CODES if isinstance(error, kind))
    return KafkaException(KafkaError(code, str(error)))


# -- writing -----------------------------------------------------------------------------------------------------------


class Message:
    """A record, or what a client reports instead of one."""

    def __init__(self, topic: str, partition: int, offset: int, record: Any = None, error: Any = None) -> None:
        self._place = topic, partition, offset
        self._record = record
        self._error = error

    def topic(self) -> str:
        return self._place[0]

    def partition(self) -> int:
        return self._place[1]

    def offset(self) -> int:
        return self._place[2]

    def key(self) -> bytes | None:
        return None if self._record is None else self._record.key

    def value(self) -> bytes | None:
        return None if self._record is None else self._record.value

    def headers(self) -> Any:
        return list(self._record.headers) or None

    def timestamp(self) -> tuple[int, int]:
        return 1, self._record.timestamp

    def error(self) -> Any:
        return self._error


class MemoryProducer(Client):
    """A producer. What it is given is written at its next request."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        super().__init__(settings)
        self._id = settings.get("transactional.id")
        self._writer: MemoryTransactionalProducer | None = None
        self._unsent: list[tuple[Output, Callable[[Any, Any], None] | None]] = []
        self._answers: list[tuple[Callable[[Any, Any], None], Any, Message]] = []
        self._lingers = False
        """Whether records wait since before the last ``poll``: one that does not wait sends no others."""
        self._failure: KafkaException | None = None
        self._is_begun = self._is_filled = False
        """A transaction has begun; the cluster knows of it."""
        self._progress: tuple[str, Mapping[TopicPartition, CommittedOffset]] = ("", {})
        """What it holds."""
        self._epoch = self.environment.cluster.leader_epoch
        """The leader epoch of its connections: it tells of a broker that was restarted."""
        self._is_ending = self._is_ended = False
        """It was asked to be committed; it is committed, and this client does not know it yet."""

    def fatal_error(self) -> KafkaError | None:
        error = None if self._failure is None else self._failure.args[0]
        return error if error is not None and error.fatal() else None

    def init_transactions(self, timeout: float = -1) -> None:
        cluster = self.environment.request(timeout, "report" if self._writes_reports else "fence")
        timeout_s = float(self.settings.get("transaction.timeout.ms", 60_000)) / 1_000
        self._writer = MemoryTransactionalProducer(cluster, str(self._id), timeout_s=timeout_s)

    def begin_transaction(self) -> None:
        self._refuse_ended()
        if self._writer is None or self._is_begun:
            raise KafkaException(KafkaError(KafkaError._STATE, "no transaction can begin now"))
        self._is_begun, self._is_filled, self._is_ending, self._is_ended = True, False, False, False
        self._progress = "", {}

    def produce(
        self,
        topic: str,
        value: bytes | None = None,
        key: bytes | None = None,
        headers: Any = (),
        timestamp: int = 0,
        partition: int = -1,
        on_delivery: Callable[[Any, Any], None] | None = None,
    ) -> None:
        if self._id is not None and not self._is_begun:
            raise KafkaException(KafkaError(KafkaError._STATE, "no transaction has begun"))
        if self._failure is not None:
            raise self._failure
        output = Output(topic, value, key, list(headers or ()), timestamp or None, None if partition < 0 else partition)
        self._unsent.append((output, on_delivery))

    def poll(self, timeout: float = -1) -> int:
        if self._epoch < self.environment.cluster.leader_epoch and "error_cb" in self.settings:
            self._epoch = self.environment.cluster.leader_epoch
            self.settings["error_cb"](KafkaError(KafkaError._TRANSPORT, "a broker has closed the connection"))
        if self._unsent and not self.environment.is_away and (timeout or self._lingers):
            self._send()
        elif timeout > 0:
            self.environment.runtime.sleep(timeout)
        self._lingers = bool(self._unsent)
        return self._tell()

    def flush(self, timeout: float = -1) -> int:
        environment, runtime = self.environment, self.environment.runtime
        deadline = runtime.seconds + timeout if timeout >= 0 else float("inf")
        while self._unsent and environment.is_away and runtime.seconds < deadline:
            runtime.sleep(min(environment.away_until, deadline) - runtime.seconds)
        if self._unsent and not environment.is_away:
            self._send()
        self._tell()
        return len(self._unsent)

    def __bool__(self) -> bool:
        return True  # as confluent-kafka's, which is true when it is empty

    def __len__(self) -> int:
        return len(self._unsent) + len(self._answers)

    def purge(self, *_: Any, **__: Any) -> None:
        if self._unsent and self._id is not None:
            text = f"{len(self._unsent)} message(s) failed delivery"
            self._failure = KafkaException(KafkaError(KafkaError._INCONSISTENT, text, txn_requires_abort=True))
        self._unsent.clear()

    def discard(self) -> None:
        self.purge()

    def close(self) -> None:
        self.purge()

    def send_offsets(self, group: str, offsets: Mapping[TopicPartition, CommittedOffset], timeout: float) -> None:
        self.environment.request(timeout, "send")
        self._refuse_failed()
        assert self._writer is not None
        self._is_filled, self._progress = True, (group, offsets)
        try:
            self._writer.send_offsets(group, offsets)
        except WasmlineError as error:
            raise self._failed(error) from error

    def commit_transaction(self, timeout: float = -1) -> None:
        self.flush(timeout)
        writes_claims = str(self._id).startswith("wasmline.job.")
        what = "report" if self._writes_reports else "claim" if writes_claims else "commit"
        self.environment.request(timeout, what)
        self._refuse_failed()
        assert self._writer is not None
        self._is_ending = True
        if self._is_filled and not self._is_ended:  # one that holds nothing asks nobody
            try:
                with self.environment.committing():
                    self.environment.on_commit(*self._progress, -1)
                    self._writer.commit()
                    self._is_ended = True
            except WasmlineError as error:
                raise self._failed(error) from error
        self._is_begun = False

    def abort_transaction(self, timeout: float = -1) -> None:
        self._unsent.clear()
        self.environment.request(timeout)
        self._refuse_ended()
        if self._is_ending and self._failure is None:
            raise KafkaException(KafkaError(KafkaError._STATE, "a commit is under way"))
        self._failure = None
        if self._writer is not None and self._is_filled:
            try:
                self._writer.abort()
            except WasmlineError as error:
                raise self._failed(error) from error
        self._is_begun = False

    @property
    def _writes_reports(self) -> bool:
        return str(self._id).endswith(("/records", "/leases"))

    def _send(self) -> None:
        environment, cluster = self.environment, self.environment.cluster
        environment.reach("write")
        unsent, self._unsent = self._unsent, []
        self._is_filled = True
        for output, told in unsent:
            error = None
            partition, offset = TopicPartition(output.topic, -1), -1
            try:
                if self._failure is not None:
                    raise self._failure
                if self._writer is None:
                    partition, offset = cluster.write(output)
                else:
                    partition, offset = self._writer.write(output)
                environment.written[partition, offset] = environment.runtime.process
            except WasmlineError as refusal:
                error = (self._failed(refusal) if self._writer is not None else _raised(refusal)).args[0]
            except KafkaException:
                error = KafkaError(KafkaError._PURGE_QUEUE)
            if told is not None:
                self._answers.append((told, error, Message(*partition, offset)))

    def _tell(self) -> int:
        answers, self._answers = self._answers, []
        for told, error, message in answers:
            told(error, message)
        return len(answers)

    def _refuse_ended(self) -> None:
        fatal = self.fatal_error()
        if fatal is not None:
            raise KafkaException(fatal)

    def _refuse_failed(self) -> None:
        if self._failure is not None:
            raise self._failure
        if not self._is_begun:
            raise KafkaException(KafkaError(KafkaError._STATE, "no transaction has begun"))

    def _failed(self, error: WasmlineError) -> KafkaException:
        """Return why this transaction has to be aborted, or this producer can't be used any more."""
        if str(self._id) not in self.environment.cluster.writers:
            code = KafkaError.INVALID_PRODUCER_ID_MAPPING
            self._failure = KafkaException(KafkaError(code, str(error), txn_requires_abort=True))
        elif isinstance(error, ProducerFenced):
            self._failure = _raised(error)
        else:
            code = _raised(error).args[0].code()
            self._failure = KafkaException(KafkaError(code, str(error), txn_requires_abort=True))
        return self._failure


# -- reading -----------------------------------------------------------------------------------------------------------


class MemoryConsumer(Client):
    """A consumer of partitions that it is assigned; it is no member of its group."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        super().__init__(settings)
        self.group = settings["group.id"]
        self.committed_only = settings.get("isolation.level", "read_committed") == "read_committed"
        self._reset = settings.get("auto.offset.reset", "latest")
        self._tells_ends = str(settings.get("enable.partition.eof", "false")) == "true"
        self._positions: dict[TopicPartition, int] = {}
        self._told: dict[TopicPartition, int] = {}
        """The end that was told last."""
        self._paused: set[TopicPartition] = set()
        self._ends: dict[TopicPartition, int] = {}
        self._seen = -1
        self._member: Member | None = None
        self._on_assign: Callable[[Any, Any], None] | None = None

    def subscribe(self, topics: Sequence[str], on_assign: Callable[[Any, Any], None] | None = None) -> None:
        """Become a member of the group; it is heard of in ``poll``."""
        cluster = self.environment.request()
        self._member = Member(topics)
        self._on_assign = on_assign
        self.environment.names[self._member] = str(self.settings.get("client.id", "rdkafka"))
        cluster.group(str(self.group)).join(self._member, cluster.partitions)

    def _follow(self) -> None:
        member = self._member
        if member is not None and member.owned != member.target:
            member.owned = set(member.target)
            given = [confluent_kafka.TopicPartition(*each, OFFSET_INVALID) for each in sorted(member.owned)]
            if self._on_assign is not None:
                self._on_assign(self, given)
            else:
                self.assign(given)

    def assign(self, partitions: Iterable[Any]) -> None:
        self._positions = {TopicPartition(each.topic, each.partition): each.offset for each in partitions}
        self._told, self._seen = {}, -1

    def assignment(self) -> list[Any]:
        return [confluent_kafka.TopicPartition(*each) for each in self._positions]

    def unassign(self) -> None:
        self._positions = {}

    unsubscribe = unassign

    def pause(self, partitions: Iterable[Any]) -> None:
        self._paused.update(TopicPartition(each.topic, each.partition) for each in partitions)

    def resume(self, partitions: Iterable[Any]) -> None:
        self._paused.difference_update(TopicPartition(each.topic, each.partition) for each in partitions)
        self._seen = -1

    def seek(self, place: Any) -> None:
        self._positions[TopicPartition(place.topic, place.partition)] = place.offset
        self._seen = -1

    def poll(self, timeout: float = -1) -> Message | None:
        found = self.consume(1, timeout)
        return found[0] if found else None

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        runtime, cluster = self.environment.runtime, self.environment.cluster
        if self.is_closed:
            raise RuntimeError("Consumer closed")
        self._follow()
        deadline = None if timeout < 0 else runtime.seconds + timeout
        while True:
            if self._seen != cluster.version and not self.environment.is_away:
                runtime.step()
                version = cluster.version
                if found := self._fetch(num_messages):
                    return found
                self._seen = version
            left = None if deadline is None else deadline - runtime.seconds
            if self.environment.is_away:
                back = self.environment.away_until - runtime.seconds
                runtime.sleep(back if left is None else min(back, left))
                if left is not None and left <= back:
                    return []
            elif not runtime.block(lambda: self._seen != cluster.version, left):
                return []

    def get_watermark_offsets(self, place: Any, timeout: float = -1, cached: bool = False) -> Any:
        partition = TopicPartition(place.topic, place.partition)
        if cached:
            return (0, self._ends[partition]) if partition in self._ends else (OFFSET_INVALID, OFFSET_INVALID)
        cluster = self.environment.request(timeout)
        try:
            log = cluster.log(partition)
        except WasmlineError as error:
            raise _raised(error) from error
        return log.start, self._end(log)

    def offsets_for_times(self, asked: Sequence[Any], timeout: float = -1) -> list[Any]:
        """Return the first offset of a time or later, and the end where there is none; times are Unix milliseconds."""
        cluster = self.environment.request(timeout)
        found = []
        for each in asked:
            partition = TopicPartition(each.topic, each.partition)
            log = cluster.log(partition)
            if each.offset == OFFSET_BEGINNING:
                offset = log.start
            else:
                known, _ = cluster.fetch(partition, log.start, EVERYTHING, committed=self.committed_only)
                offset = next((record.offset for record in known if record.timestamp >= each.offset), OFFSET_END)
            found.append(confluent_kafka.TopicPartition(*partition, offset))
        return found

    def consumer_group_metadata(self) -> str:
        return str(self.group)

    def committed(self, partitions: Sequence[Any], timeout: float = REQUEST_S) -> Sequence[Any]:
        asked = [TopicPartition(each.topic, each.partition) for each in partitions]
        found = MemoryOffsetStore().committed(self, asked, timeout)
        offsets = {each: found[each].offset if each in found else OFFSET_INVALID for each in asked}
        return [confluent_kafka.TopicPartition(*each, offset) for each, offset in offsets.items()]

    def close(self) -> None:
        self.is_closed = True
        if self._member is not None:
            self.environment.runtime.step()
            cluster = self.environment.cluster
            cluster.group(str(self.group)).leave(self._member, cluster.partitions)
            self._member = None

    def _fetch(self, limit: int) -> list[Message]:
        found: list[Message] = []
        for partition in [each for each in self._positions if each not in self._paused]:
            if len(found) < limit:
                found += self._fetch_of(partition, limit - len(found))
        return found

    def _fetch_of(self, partition: TopicPartition, limit: int) -> list[Message]:
        cluster = self.environment.cluster
        try:
            log = cluster.log(partition)
        except TopicNotFound:
            return []
        position = self._positions.pop(partition)
        if position < 0 or not log.start <= position <= log.end:
            begin = self._begin(partition, log, position)
            if isinstance(begin, Message):
                self._positions[partition] = log.end
                return [begin]
            position = begin
        records, position = cluster.fetch(partition, position, limit, committed=self.committed_only)
        self._positions[partition] = position
        end = self._ends[partition] = self._end(log)
        found = [Message(*partition, each.offset, each) for each in records]
        if self._tells_ends and position >= end and len(found) < limit and self._told.get(partition) != end:
            self._told[partition] = end
            found.append(Message(*partition, end, error=KafkaError(KafkaError._PARTITION_EOF)))
        return found

    def _begin(self, partition: TopicPartition, log: Log, position: int) -> int | Message:
        """Return where to begin where the log does not have a position, or what is reported instead."""
        if position == OFFSET_INVALID and (left := self.environment.cluster.group(self.group).committed.get(partition)):
            return left.offset
        if position == OFFSET_BEGINNING:
            return log.start
        if position == OFFSET_END or (position < 0 and self._reset == "latest"):
            return self._end(log)
        if self._reset == "error":
            return Message(
                *partition, -1, error=KafkaError(KafkaError._AUTO_OFFSET_RESET, "the offset is out of range")
            )
        return log.start if self._reset == "earliest" else self._end(log)

    def _end(self, log: Log) -> int:
        return log.stable if self.committed_only else log.end


class MemoryOffsetStore:
    """Committed offsets with their maps: see CommittedOffsetStore."""

    keeps_metadata = True

    def committed(
        self, consumer: MemoryConsumer, partitions: Iterable[TopicPartition], timeout: float = 15.0
    ) -> dict[TopicPartition, CommittedOffset]:
        environment = consumer.environment
        asked = list(partitions)
        if not asked:
            return {}
        group = environment.request(timeout, "read").group(consumer.group)
        if consumer.committed_only and not environment.runtime.block(
            lambda: not any(map(group.is_held, asked)), timeout
        ):
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "a transaction holds the offsets"))
        return {each: group.committed[each] for each in asked if each in group.committed}

    def commit(
        self, consumer: MemoryConsumer, offsets: Mapping[TopicPartition, CommittedOffset], timeout: float = 15.0
    ) -> None:
        wakes = consumer.environment.runtime.process.wakes
        cluster = consumer.environment.request(timeout, "commit")
        try:
            with consumer.environment.committing():
                consumer.environment.on_commit(consumer.group, offsets, wakes)
                cluster.commit(consumer.group, offsets)
        except WasmlineError as error:
            raise _raised(error) from error

    def send_offsets(
        self,
        producer: MemoryProducer,
        group_metadata: str,
        offsets: Mapping[TopicPartition, CommittedOffset],
        timeout: float = 15.0,
    ) -> None:
        if offsets:
            producer.send_offsets(group_metadata, offsets, timeout)


# -- administration ----------------------------------------------------------------------------------------------------


class Unanswered(dict[Any, Any]):
    """The answers to requests that nobody took."""

    def __init__(self, error: KafkaException, asked: Any) -> None:
        super().__init__(dict.fromkeys(asked, self) if isinstance(asked, Mapping) else {})
        self.error = error

    def __missing__(self, key: Any) -> Unanswered:
        return self

    def result(self, timeout: float | None = None) -> Any:
        raise self.error


def _answered(method: Callable[..., Any]) -> Callable[..., Any]:
    """Send a request of the admin client; what it fails with is told by its answers."""

    def send(self: MemoryAdmin, *given: Any, request_timeout: float = REQUEST_S, **named: Any) -> Any:
        try:
            self.environment.request(min(request_timeout, REQUEST_S))
        except KafkaException as error:
            return Unanswered(error, given[0] if given else None)
        return method(self, *given, **named)

    return send


class MemoryAdmin(Client):
    """An admin client, whose answers are there at once, or once a request has waited in vain."""

    has_answer = True

    def poll(self, timeout: float = -1) -> int:
        return 0

    @_answered
    def create_topics(self, topics: Iterable[Any], **_: Any) -> dict[str, Answer]:
        cluster = self.environment.cluster
        answers = {}
        for each in topics:
            exists = any(partition.topic == each.topic for partition in cluster.partitions)
            if not exists:
                settings = dict(each.config or {})
                most = int(settings.get("max.message.bytes", 1_048_588))
                cluster.create(each.topic, each.num_partitions, max_message_bytes=most, settings=settings)
            answers[each.topic] = _answer(error=KafkaError.TOPIC_ALREADY_EXISTS) if exists else _answer()
        return answers

    @_answered
    def describe_topics(self, topics: Any, **_: Any) -> dict[str, Answer]:
        cluster = self.environment.cluster
        answers = {}
        for name in topics.topic_names if hasattr(topics, "topic_names") else topics:
            try:
                topic = cluster.topic(name)
            except TopicNotFound:
                answers[name] = _answer(error=KafkaError.UNKNOWN_TOPIC_OR_PART)
            else:
                partitions = [SimpleNamespace(replicas=[1], id=number) for number in range(len(topic.logs))]
                answers[name] = _answer(SimpleNamespace(name=name, topic_id=topic.id, partitions=partitions))
        return answers

    @_answered
    def describe_configs(self, resources: Iterable[Any], **_: Any) -> dict[Any, Answer]:
        cluster = self.environment.cluster
        answers: dict[Any, Answer] = {}
        for each in resources:
            if each.restype is ConfigResource.Type.BROKER:
                minutes = str(self.environment.retention_s / 60)
                answers[each] = _answer({"offsets.retention.minutes": SimpleNamespace(value=minutes)})
                continue
            try:
                topic = cluster.topic(each.name)
            except TopicNotFound:
                answers[each] = _answer(error=KafkaError.UNKNOWN_TOPIC_OR_PART)
                continue
            settings = {"max.message.bytes": str(topic.max_message_bytes), "cleanup.policy": "delete", **topic.settings}
            answers[each] = _answer({name: SimpleNamespace(value=value) for name, value in settings.items()})
        return answers

    @_answered
    def list_offsets(
        self, wanted: Mapping[Any, Any], isolation_level: Any = IsolationLevel.READ_UNCOMMITTED, **_: Any
    ) -> dict[Any, Answer]:
        cluster = self.environment.cluster
        answers = {}
        for place, spec in wanted.items():
            try:
                log = cluster.log(TopicPartition(place.topic, place.partition))
            except TopicNotFound:
                answers[place] = _answer(error=KafkaError.UNKNOWN_TOPIC_OR_PART)
                continue
            end = log.stable if isolation_level is IsolationLevel.READ_COMMITTED else log.end
            offset = log.start if isinstance(spec, EARLIEST) else end
            answers[place] = _answer(SimpleNamespace(offset=offset))
        return answers

    @_answered
    def alter_consumer_group_offsets(self, request: Iterable[Any], **_: Any) -> dict[str, Answer]:
        cluster = self.environment.cluster
        answers = {}
        for each in request:
            if not each.topic_partitions:
                raise ValueError("'topic_partitions' cannot be empty")
            offsets = {
                TopicPartition(place.topic, place.partition): CommittedOffset(place.offset)
                for place in each.topic_partitions
            }
            try:
                with self.environment.committing():
                    self.environment.on_commit(each.group_id, offsets, -1)
                    cluster.commit(each.group_id, offsets)
            except WasmlineError as error:
                answers[each.group_id] = _answer(error=_raised(error).args[0].code())
                continue
            except KafkaException as error:
                answers[each.group_id] = _answer(error=error.args[0].code())
                continue
            answers[each.group_id] = _answer(SimpleNamespace(topic_partitions=[]))
        return answers

    @_answered
    def describe_consumer_groups(self, groups: Iterable[str], **_: Any) -> dict[str, Answer]:
        cluster = self.environment.cluster
        answers = {}
        for name in groups:
            group = cluster.group(name)
            members = [
                SimpleNamespace(client_id=self.environment.names.get(each, "stranger"), host="/memory")
                for each in group.members
            ]
            is_simple = not members and group.emptied_at is None
            described = SimpleNamespace(
                group_id=name, members=members, type=ConsumerGroupType.CLASSIC, is_simple_consumer_group=is_simple
            )
            answers[name] = _answer(described)
        return answers

    @_answered
    def delete_consumer_groups(self, groups: Iterable[str], **_: Any) -> dict[str, Answer]:
        cluster = self.environment.cluster
        for name in groups:
            group = cluster.group(name)
            group.forget(list(group.committed))
        return {name: _answer() for name in groups}


class Answer:
    """A future that is decided."""

    def __init__(self, result: Any, error: KafkaException | None) -> None:
        self._result = result
        self._error = error

    def result(self, timeout: float | None = None) -> Any:
        if self._error is not None:
            raise self._error
        return self._result


def _answer(result: Any = None, error: int | None = None) -> Answer:
    return Answer(result, None if error is None else KafkaException(KafkaError(error)))
