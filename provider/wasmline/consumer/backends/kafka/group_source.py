"""Reads as a member of a group, with librdkafka."""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import confluent_kafka
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
)

from wasmline.consumer.backends.base import RebalanceListener
from wasmline.consumer.backends.kafka.lazy_offset_store import LazyOffsetStore
from wasmline.consumer.backends.kafka.stable_fetch_recovery import stable_read
from wasmline.consumer.options import ConsumerOptions
from wasmline.consumer.records import ConsumedRecord
from wasmline.consumer.timings import DEFAULT_TIMINGS, Timings
from wasmline.errors import CommitFailed, CorruptRecord, MetadataTooLarge, WasmlineError
from wasmline.kafka import librdkafka_ctypes
from wasmline.kafka.config import KafkaConfig
from wasmline.kafka.detached_consumer import is_group_denial
from wasmline.kafka.error_mapping import ReportedError, denied_errors, message_error, translate_errors
from wasmline.kafka.message_headers import headers_of
from wasmline.kafka.reconnecting_clients import ReconnectingConsumer
from wasmline.kafka.topics import Topics
from wasmline.topic_partitions import CommittedOffset, TopicPartition
from wasmline.transactional_ids import transactional_id

if TYPE_CHECKING:
    from wasmline.consumer.columns import RecordColumns
    from wasmline.kafka.compiled_columns import ColumnReader, CompiledColumns

logger = logging.getLogger(__name__)

STRATEGY = "partition.assignment.strategy"
COOPERATIVE = "cooperative-sticky"

RESET = "auto.offset.reset"
RESETS = {
    **dict.fromkeys(("earliest", "smallest", "beginning"), OFFSET_BEGINNING),
    **dict.fromkeys(("latest", "largest", "end"), OFFSET_END),
}
"""First offset of a partition without a commit, by librdkafka's names."""

DEFAULTS = {
    RESET: "earliest",
    STRATEGY: COOPERATIVE,
    # A pause drops records that were fetched and not read, so little is fetched ahead, and fetching resumes soon.
    "queued.min.messages": "10000",
    "queued.max.messages.kbytes": "16384",
    "fetch.queue.backoff.ms": "20",
    # A partition that is resumed waits until the broker has answered the pending fetch of partitions without news.
    "fetch.wait.max.ms": "100",
}
FIXED = {"enable.auto.commit": "false", "enable.auto.offset.store": "false"}

ASSIGNMENT_TIMEOUT_S = 5.0
"""Seconds until a new assignment accepts a position."""

LEAVE_TIMEOUT_S = 5.0
"""Seconds that a closing member has to leave its group."""

RETRY_INTERVAL_S = 0.01
"""Seconds between two attempts."""

EVENT_INTERVAL_S = 0.02
"""Seconds between two looks for events of the group, while records are awaited elsewhere."""

READER_CAPACITY = 10_000
"""Records that one poll returns as columns, at most: the control loop asks for no more."""

TRUNCATED = re.compile(r"truncation detected.* end offset is (\d+)")
"""librdkafka's report of a log that ends, on a new leader, below the last record read (KIP-320)."""

ASSIGNMENT_PENDING_CODES = (KafkaError._STATE, KafkaError._OUTDATED)
"""Error codes of ``seek`` while a new assignment is not active yet, and for a partition that librdkafka has dropped."""

PLACEHOLDER_OFFSET = 0
"""Offset at which a partition that has to wait is assigned. For OFFSET_BEGINNING and OFFSET_END librdkafka asks the
broker, and begins at the answer, even after a seek."""

REBALANCED_CODES = (
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError.FENCED_INSTANCE_ID,
    KafkaError.STALE_MEMBER_EPOCH,
)
"""Error codes of a commit when the group has another generation than this member."""

PARTITION_GONE_CODES = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_PARTITION, KafkaError._UNKNOWN_TOPIC)
"""Error codes of a commit when a topic of a regular expression was deleted, until the group is notified."""

METADATA_TOO_LARGE_CODES = (KafkaError.OFFSET_METADATA_TOO_LARGE, KafkaError.INVALID_COMMIT_OFFSET_SIZE)
"""Error codes of a commit whose metadata exceeds the broker's limit."""

BOOTSTRAP_NODE = -1
"""Node id of a connection to a bootstrap server, which is one of the other brokers."""

TRANSIENT_CODES = (
    KafkaError._MAX_POLL_EXCEEDED,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TRANSPORT,
    KafkaError._TIMED_OUT,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_PARTITION,
)
"""Errors after which the client recovers by itself, and a topic that existed may come back."""


class GroupSource:
    """One member of the group. See Source for its contract."""

    def __init__(
        self,
        options: ConsumerOptions,
        config: KafkaConfig,
        offset_store: LazyOffsetStore,
        settings: Mapping[str, str] | None = None,
        timings: Timings = DEFAULT_TIMINGS,
    ) -> None:
        self._timings = timings
        self.group = options.group_id
        self._prefix = options.transactional_id or options.group_id
        self._topics = options.topics
        self._config = config
        self._offset_store = offset_store
        self._denied = denied_errors(config.bootstrap_servers, group=self.group)
        self._settings = {**_settings(options, config), **(settings or {})}
        self._begin = RESETS.get(self._settings[RESET], OFFSET_INVALID)
        if self._begin != OFFSET_INVALID:
            self._settings[RESET] = "error"  # an offset that the log no longer has is handled by the listener
        self._is_classic = self._settings.get("group.protocol") != "consumer"
        self._incremental = not self._is_classic or self._settings.get(STRATEGY) == COOPERATIVE
        self._settings["statistics.interval.ms"] = f"{timings.statistics_interval_s * 1_000:.0f}"
        self._connected_brokers: int | None = None
        self._opened: Consumer | None = None
        self.compiled: CompiledColumns | None = None
        """Reads the records as columns; None: they come as messages."""
        self._reader: ColumnReader | None = None
        self._joins = self._has_joined = False
        self._listener: RebalanceListener | None = None
        self._corrupt: CorruptRecord | None = None
        """A corrupt batch behind the records that the last poll returned: the next one raises it."""
        self._stranded: set[TopicPartition] = set()
        """Partitions that the client no longer fetches, because their logs do not have the next offset."""

    @property
    def consumer(self) -> Consumer:
        """The client, created at the first use."""
        if self._opened is None:
            with self._translated():
                self._opened = ReconnectingConsumer({**self._settings, "stats_cb": self._note_statistics})
            if self.compiled is not None:
                from wasmline.kafka.compiled_columns import ColumnReader

                self._reader = ColumnReader(self.compiled, self._opened, READER_CAPACITY)
        return self._opened

    @property
    def connected_brokers(self) -> int | None:
        return self._connected_brokers

    def _note_statistics(self, text: str) -> None:
        """Take a report of the client, which it makes in a call of ``poll``."""
        brokers = json.loads(text)["brokers"].values()
        connected = {each["nodeid"] for each in brokers if each["state"] == "UP"}
        self._connected_brokers = len(connected - {BOOTSTRAP_NODE}) or len(connected)

    @property
    def begins_at_end(self) -> bool:
        return self._begin == OFFSET_END

    def open(self, listener: RebalanceListener) -> None:
        topics = Topics(self._config)
        for topic in self._topics:
            if not topic.startswith("^"):
                topics.describe(topic)

        def on_assign(_: Consumer, assigned: list[confluent_kafka.TopicPartition]) -> None:
            self._has_joined = True
            self._assign(listener, [TopicPartition(each.topic, each.partition) for each in assigned])

        def on_revoke(_: Consumer, revoked: list[confluent_kafka.TopicPartition]) -> None:
            self._release(revoked)
            listener.revoked([TopicPartition(each.topic, each.partition) for each in revoked])

        def on_lost(_: Consumer, lost: list[confluent_kafka.TopicPartition]) -> None:
            self._release(lost)
            listener.lost([TopicPartition(each.topic, each.partition) for each in lost])

        self._joins, self._listener = True, listener
        with self._translated():
            self.consumer.subscribe(list(self._topics), on_assign=on_assign, on_revoke=on_revoke, on_lost=on_lost)

    def poll(self, limit: int, timeout: float) -> Sequence[ConsumedRecord]:
        return [_record(message) for message in self._poll(limit, timeout)]

    def poll_columns(self, limit: int, timeout: float) -> Sequence[RecordColumns]:
        from wasmline.consumer.columns import RecordColumns
        from wasmline.kafka.message_columns import columns_by_partition

        if self._reader is None:
            return [RecordColumns(*each) for each in columns_by_partition(self._poll(limit, timeout))]
        deadline = time.monotonic() + timeout
        while True:
            # The client serves the events of its group, and may report an error, but has none of the records.
            if messages := self._poll(1, 0):
                return [RecordColumns(*each) for each in columns_by_partition(messages)]
            with self._translated():
                left = max(0.0, deadline - time.monotonic())
                found, errors = self._reader.read(limit, min(left, EVENT_INTERVAL_S))
                self._take_errors(errors, has_records=bool(found))
            if found or not left:
                return [RecordColumns(*each) for each in found]

    def _poll(self, limit: int, timeout: float) -> list[Message]:
        corrupt, self._corrupt = self._corrupt, None
        if corrupt is not None:
            raise corrupt
        with self._translated():
            # ``consume`` with a time-out would wait until it has the maximum.
            first = self.consumer.poll(timeout) if timeout > 0 else None
            messages = self.consumer.consume(limit - (first is not None), 0)
            # A message without a value is falsy.
            polled = messages if first is None else [first, *messages]
            return self._readable(polled)

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        with self._translated():
            self.consumer.pause(topic_partitions(partitions))

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        with self._translated():
            self.consumer.resume(topic_partitions(partitions))

    def seek(self, offsets: Mapping[TopicPartition, int]) -> None:
        with self._translated():
            for partition, offset in offsets.items():
                place = confluent_kafka.TopicPartition(*partition, offset)
                if partition in self._stranded or not self._try_seek(place):
                    self._reassign(place)
                self._stranded.discard(partition)

    def committed(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, CommittedOffset]:
        if not partitions:
            return {}
        ids = {self.transactional_id(partition) for partition in partitions}
        with self._translated():
            read = partial(self._offset_store.on(next(iter(partitions))).committed, self.consumer, partitions)
            return stable_read(self._config, self.group, ids, read, time.monotonic() + self._timings.request_timeout_s)

    def beginning_offsets(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        if not partitions:
            return {}
        asked = self._places(dict.fromkeys(partitions, OFFSET_BEGINNING))
        with self._translated():
            # ListOffsets accepts the constant for a log's beginning in place of a timestamp.
            found = self.consumer.offsets_for_times(asked, timeout=self._timings.request_timeout_s)
            for each in found:
                if each.error is not None:
                    raise KafkaException(each.error)
        return {TopicPartition(each.topic, each.partition): each.offset for each in found}

    def end_offsets(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        ends = {}
        with self._translated():
            for partition in partitions:
                _, ends[partition] = self.consumer.get_watermark_offsets(
                    confluent_kafka.TopicPartition(*partition), timeout=self._timings.request_timeout_s
                )
        return ends

    def cached_end_offsets(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        ends = {}
        for partition in partitions:
            known = self.consumer.get_watermark_offsets(confluent_kafka.TopicPartition(*partition), cached=True)
            if known and known[1] >= 0:
                ends[partition] = known[1]
        return ends

    def commit(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        moved_on = CommitFailed("the group was rebalanced; records not committed belong to the next assignment")
        gone = CommitFailed("a topic was deleted; all other offsets were committed")
        codes = {**dict.fromkeys(REBALANCED_CODES, moved_on), **dict.fromkeys(PARTITION_GONE_CODES, gone)}
        codes |= dict.fromkeys(METADATA_TOO_LARGE_CODES, metadata_too_large_error(offsets))
        with self._translated(codes):
            self._offset_store.on(next(iter(offsets))).commit(self.consumer, offsets, self._timings.request_timeout_s)

    def transactional_id(self, partition: TopicPartition) -> str:
        """Return the transactional id of a partition's progress in exactly-once delivery."""
        return transactional_id(self._prefix, partition)

    def close(self) -> None:
        if self._opened is None:
            return
        try:
            if self._joins:
                self._leave(self._opened)
        finally:
            if self._reader is not None:
                self._reader.close()
                self._reader = None
        librdkafka_ctypes.close(self._opened)

    def _leave(self, consumer: Consumer) -> None:
        """Leave the group, and wait until the broker knows.

        A client that is closed during a rebalance is gone before it has left. The group then waits for its session
        time-out, and meanwhile does not even answer the commits of other members. While the client waits for the
        others to join, it postpones ``unsubscribe``; once it leaves, it has no member id, unless the broker assigns.
        """
        deadline = time.monotonic() + LEAVE_TIMEOUT_S
        while not self._has_joined and time.monotonic() < deadline:
            consumer.poll(RETRY_INTERVAL_S)
        consumer.unsubscribe()
        while (consumer.assignment() or (self._is_classic and consumer.memberid())) and time.monotonic() < deadline:
            consumer.poll(RETRY_INTERVAL_S)
        with suppress(KafkaException):  # an answer shows that the coordinator has read the earlier requests
            consumer.committed(
                [confluent_kafka.TopicPartition(self._topics[0], 0)], max(0.0, deadline - time.monotonic())
            )

    def _translated(self, codes: Mapping[int, WasmlineError] | None = None) -> AbstractContextManager[None]:
        return translate_errors(self._config.bootstrap_servers, {**self._denied, **codes} if codes else self._denied)

    def _readable(self, messages: Sequence[Message]) -> list[Message]:
        """Return the messages that are records; raise a reported error if it is a reason to end."""
        errors = [message for message in messages if message.error() is not None]
        records = [message for message in messages if message.error() is None] if errors else list(messages)
        self._take_errors(errors, has_records=bool(records))
        return records

    def _take_errors(self, errors: Sequence[Message | ReportedError], *, has_records: bool) -> None:
        """Take errors that were reported with records or alone; raise the first that is a reason to end."""
        try:
            for each in errors:
                self._take_error(each)
        except CorruptRecord as corrupt:
            if not has_records:
                raise
            self._corrupt = corrupt

    def _take_error(self, message: Message | ReportedError) -> None:
        """Take an error that the client reports as a message; raise it if it is a reason to end."""
        error = cast(KafkaError, message.error())
        if error.code() == KafkaError._PARTITION_EOF:
            return
        if error.code() == KafkaError._AUTO_OFFSET_RESET and self._begin != OFFSET_INVALID and self._listener:
            self._out_of_range(self._listener, message, TRUNCATED.search(error.str()))
            return
        if is_group_denial(message):
            self._joins = False  # there is no group to leave
        if error.fatal() or error.code() not in TRANSIENT_CODES:
            raise message_error(self._config.bootstrap_servers, message, error)
        logger.warning("%s", error.str())

    def _out_of_range(
        self, listener: RebalanceListener, message: Message | ReportedError, truncated: re.Match[str] | None
    ) -> None:
        partition = TopicPartition(message.topic() or "", message.partition() or 0)
        offset = message.offset()
        self._stranded.add(partition)
        known = None if offset is None or offset < 0 else offset
        listener.out_of_range(partition, known, int(truncated[1]) if truncated else None)

    def _reassign(self, place: confluent_kafka.TopicPartition) -> None:
        """Continue at a position in a partition that the client has dropped: it rejects a seek there."""
        if self._incremental:
            self.consumer.incremental_unassign([place])
            self._read_compiled([TopicPartition(place.topic, place.partition)])
            self.consumer.incremental_assign([place])
            return
        assigned = self.consumer.assignment()
        places = {
            TopicPartition(each.topic, each.partition): at.offset if at.offset >= 0 else each.offset
            for each, at in zip(assigned, self.consumer.position(assigned), strict=True)
        }
        places[TopicPartition(place.topic, place.partition)] = place.offset
        self._read_compiled(places.keys())
        self.consumer.assign([confluent_kafka.TopicPartition(*each, offset) for each, offset in places.items()])

    def _read_compiled(self, partitions: Collection[TopicPartition]) -> None:
        """Prepare to read partitions that are about to be assigned as columns, if they are."""
        if self._reader is not None:
            self._reader.add(partitions)

    def _release(self, partitions: Collection[confluent_kafka.TopicPartition]) -> None:
        if self._reader is not None:
            self._reader.remove(TopicPartition(each.topic, each.partition) for each in partitions)

    def _try_seek(self, place: confluent_kafka.TopicPartition) -> bool:
        deadline = time.monotonic() + ASSIGNMENT_TIMEOUT_S
        while time.monotonic() < deadline:
            try:
                self.consumer.seek(place)
            except KafkaException as error:
                if error.args[0].code() not in ASSIGNMENT_PENDING_CODES:
                    raise
                time.sleep(RETRY_INTERVAL_S)
            else:
                return True
        return False

    def _places(self, begins: Mapping[TopicPartition, int | None]) -> list[confluent_kafka.TopicPartition]:
        """Return positions in the client's form; None is the reset policy's."""
        return [
            confluent_kafka.TopicPartition(*partition, self._begin if begin is None else begin)
            for partition, begin in begins.items()
        ]

    def _assign(self, listener: RebalanceListener, partitions: Collection[TopicPartition]) -> None:
        starts = listener.assigned(partitions)
        self._stranded.difference_update(partitions)
        wanted = self._places({partition: starts.get(partition, PLACEHOLDER_OFFSET) for partition in partitions})
        self._read_compiled(partitions)
        if self._incremental:
            self.consumer.incremental_assign(wanted)
        else:
            self.consumer.assign(wanted)
        self.consumer.resume(topic_partitions(starts))  # a pause outlives an assignment
        if waiting := [partition for partition in partitions if partition not in starts]:
            self.consumer.pause(topic_partitions(waiting))


def _settings(options: ConsumerOptions, config: KafkaConfig) -> dict[str, str]:
    settings = {**DEFAULTS, **config.client(), **FIXED, "group.id": options.group_id}
    if settings.get("group.protocol") == "consumer":
        settings.pop(STRATEGY)  # the broker assigns, and the client rejects the setting
    return settings


def metadata_too_large_error(offsets: Mapping[TopicPartition, CommittedOffset]) -> MetadataTooLarge:
    """Return the error for a code of METADATA_TOO_LARGE_CODES."""
    longest = max(len(each.metadata) for each in offsets.values())
    return MetadataTooLarge(f"the broker accepts fewer than {longest} characters of metadata for an offset")


def topic_partitions(partitions: Collection[TopicPartition]) -> list[confluent_kafka.TopicPartition]:
    """Return partitions in the client's type."""
    return [confluent_kafka.TopicPartition(*partition) for partition in partitions]


def _record(message: Any) -> ConsumedRecord:
    # As ConsumedRecord() does, without the function that a NamedTuple has for it, once a record.
    return tuple.__new__(
        ConsumedRecord,
        (
            message.topic(),
            message.partition(),
            message.offset(),
            message.key(),
            message.value(),
            headers_of(message),
            message.timestamp()[1],
            1,
        ),
    )
