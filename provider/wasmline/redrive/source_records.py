"""Makes records again of dead letters: for the topics that they come from, or for another one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal, NamedTuple

from wasmline import dead_letters
from wasmline.clock import now_ms
from wasmline.dead_letters import MAX_REASON_BYTES, Header, record_headers
from wasmline.errors import RecordNotFound, TopicNotFound
from wasmline.kafka import ANY_PARTITION, KafkaConfig, TopicRecord, Topics, read_record
from wasmline.pipeline.record_sizes import batch_bytes
from wasmline.redrive.conversion import Conversion
from wasmline.redrive.dead_letter_reader import StoredDeadLetter
from wasmline.redrive.dead_letter_topics import find_source_topics

Timestamps = Literal["keep", "now"]

NO_SOURCE = "their headers name no source record: redrive them to a topic"
NOT_UTF8 = "the name of a header is not UTF-8: no client of ours can write it"
STRANGE_SOURCE = (
    "they lack the value of their record, and name a source that no deployment or job with this dead-letter topic "
    "reads: select it as the source topic"
)
RECORD_GONE = "they lack the value of their record, which is not in its topic any more"
INTERNAL_TOPIC = "their source is an internal topic, which the header of any writer can name"
NO_TOPIC = "their source topic does not exist: create it, or redrive them to another topic"
TOO_LARGE = "their record exceeds max.message.bytes of the topic: raise it"
EXPIRED = (
    "their record is older than retention.ms of the topic, which would remove it: redrive it with the current time"
)

INTERNAL_PREFIXES = ("_wasmline.", "__")

MAX_KNOWN_TOPICS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterRecord:
    """The record of a dead letter, as it was before it failed. ``timestamp``: Unix milliseconds, None without one."""

    dead_letter: StoredDeadLetter
    key: bytes | None
    value: bytes | None
    headers: list[Header]
    timestamp: int | None


class DeadLetterRecords:
    """Finds the records of dead letters. That of a truncated one is read from the source topic."""

    def __init__(self, config: KafkaConfig) -> None:
        self._config = config

    def find(self, letter: StoredDeadLetter) -> DeadLetterRecord | str:
        """Return the record of a dead letter, or why there is none. Raises BrokerUnavailable."""
        if letter.headers is None:
            return NOT_UTF8
        if letter.failure.truncated_bytes is not None:
            return self._original(letter) or RECORD_GONE
        return DeadLetterRecord(
            dead_letter=letter,
            key=letter.key,
            value=letter.value,
            headers=record_headers(letter.headers),
            timestamp=_known(letter.timestamp),
        )

    def _original(self, letter: StoredDeadLetter) -> DeadLetterRecord | None:
        """Return the record that a truncated dead letter names.

        None unless it has the size and the key, and is not newer than the dead letter, as one of a topic that was
        created again since.
        """
        failure = letter.failure
        if failure.source is None or is_internal(failure.source.topic):
            return None
        try:
            message = read_record(self._config, *failure.source, failure.offset)
            headers: list[Header] = list(message.headers() or ())  # type: ignore[arg-type]
        except (RecordNotFound, TopicNotFound, UnicodeDecodeError, SystemError):
            return None
        key, value, timestamp = message.key(), message.value(), message.timestamp()[1]
        body = len(key or b"") + len(value or b"")
        whole = body + sum(len(name) + len(text or b"") for name, text in headers)
        kept_key = key if len(key or b"") <= MAX_REASON_BYTES else None
        if failure.truncated_bytes not in (body, whole) or letter.key != kept_key or timestamp > letter.timestamp:
            return None
        return DeadLetterRecord(dead_letter=letter, key=key, value=value, headers=headers, timestamp=_known(timestamp))


class _Target(NamedTuple):
    """A topic to write to. None: its settings are not readable, or it keeps records for ever."""

    name: str
    partitions: int
    max_message_bytes: int | None
    retention_ms: int | None


class SourceRecords:
    """Makes the records of dead letters for the partitions that they come from, or for ``to_topic``, by their keys.

    A record is as it was before it failed, with a header that names the dead letter, unless that would make it too
    large. timestamps: those of the dead letters, or the current time. For ``to_topic``, a truncated one is completed
    only from ``source_topic``, or from an input of the deployments and jobs that write dead letters to ``topic``: any
    writer can name another one.
    """

    compression = "none"

    def __init__(
        self,
        config: KafkaConfig,
        to_topic: str | None,
        timestamps: Timestamps,
        topic: str,
        *,
        source_topic: str | None = None,
    ) -> None:
        """``topic``: that of the dead letters, which gets none of its own again."""
        self._config = config
        self._topics = Topics(config)
        self._source_topic = source_topic
        self._to_topic = to_topic
        self._timestamps = timestamps
        self._dead_letter_topic = topic
        self._records = DeadLetterRecords(config)
        self._target = lru_cache(MAX_KNOWN_TOPICS)(self._describe)

    def convert(self, letters: Sequence[StoredDeadLetter]) -> Conversion:
        """Return the records of dead letters, in their order. Raises BrokerUnavailable, NotAuthorized."""
        done = Conversion()
        for letter in letters:
            record = self._record(letter)
            if isinstance(record, str):
                done.skipped[record] += 1
            else:
                done.records.append(record)
                done.dead_letters.append(letter)
        return done

    def require_current(self) -> None:
        """Records of topics are as current as ever."""

    def close(self) -> None:
        """Free nothing."""

    def _describe(self, name: str) -> _Target | None:
        found = self._topics.describe_existing([name]).get(name)
        if found is None:
            return None
        settings = self._topics.settings([name])[name]
        if settings is None:
            return _Target(name, found.partitions, None, None)
        expires = "delete" in settings["cleanup.policy"] and settings["message.timestamp.type"] == "CreateTime"
        retention = int(settings["retention.ms"]) if expires else -1
        return _Target(
            name, found.partitions, int(settings["max.message.bytes"]), retention if retention >= 0 else None
        )

    def _record(self, letter: StoredDeadLetter) -> TopicRecord | str:
        source = letter.failure.source
        if source is None and self._to_topic is None:
            return NO_SOURCE
        name = self._to_topic or (source.topic if source else "")
        if name == self._dead_letter_topic or is_internal(name):
            return INTERNAL_TOPIC
        if (target := self._target(name)) is None:
            return NO_TOPIC
        is_truncated = letter.failure.truncated_bytes is not None
        if is_truncated and self._to_topic is not None and source is not None and not self._is_known(source.topic):
            return STRANGE_SOURCE
        record = self._records.find(letter)
        if isinstance(record, str):
            return record
        partition = ANY_PARTITION
        if source is not None and self._to_topic is None and source.partition < target.partitions:
            partition = source.partition
        timestamp = record.timestamp if self._timestamps == "keep" else None
        if timestamp is not None and target.retention_ms is not None and now_ms() - timestamp > target.retention_ms:
            return EXPIRED
        named = [*record.headers, (dead_letters.REDRIVEN, letter.position.encode())]
        for headers in (named, record.headers):
            limit = target.max_message_bytes
            if limit is None or batch_bytes(record.key, record.value, headers) <= limit:
                return TopicRecord(name, record.key, record.value, headers, timestamp, partition)
        return TOO_LARGE

    def _is_known(self, source: str) -> bool:
        return source == self._source_topic or source in self._sources

    @cached_property
    def _sources(self) -> frozenset[str]:
        return find_source_topics(self._config, self._dead_letter_topic)


def is_internal(topic: str) -> bool:
    """Return whether a topic is one of the cluster's or of Wasmline's own, which no dead letter may be written to."""
    return topic.startswith(INTERNAL_PREFIXES)


def _known(timestamp: int) -> int | None:
    return timestamp if timestamp >= 0 else None
