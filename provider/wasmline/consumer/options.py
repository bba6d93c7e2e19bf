"""Options of a key-parallel consumer: plain values, validated on construction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from wasmline.consumer.records import Headers
from wasmline.errors import InvalidConsumerOption, TerminalFailure, TransformError

MAX_BUFFERED_RECORDS = 2**20
"""Maximum of incomplete records in an offset map: ``encodings.MAX_INCOMPLETES``, which is heavy to import."""


class Ordering(StrEnum):
    """Which records are processed in order. Records of different partitions are not, even with the same key."""

    KEY = "key"
    """Records of one key, one after the other."""

    PARTITION = "partition"
    """Records of one partition, one after the other."""

    UNORDERED = "unordered"
    """No order."""


class NullKeys(StrEnum):
    """How records without a key are ordered under ``Ordering.KEY``."""

    SERIAL = "serial"
    """As if all records of a partition without a key had the same key, as in the Java library."""

    UNORDERED = "unordered"
    """Each on its own."""


class Delivery(StrEnum):
    """What a crash may do to the outputs. Effects outside Kafka are at least once in either delivery."""

    AT_LEAST_ONCE = "at_least_once"
    """Outputs are acknowledged before their input counts as done; after a crash some are written again."""

    EXACTLY_ONCE = "exactly_once"
    """Outputs, offsets and offset map are in one transaction; a read_committed reader sees outputs once."""


class Retry(Protocol):
    """The retry policy: decides about a record whose handler failed."""

    def after(self, attempt: int, error: Exception) -> float | None:
        """Return the seconds until the next attempt, or None to dead-letter the record. ``attempt`` counts from 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Retries after ``delay_ms``, multiplied by ``factor`` after each attempt, up to ``max_delay_ms``.

    A record is dead-lettered after ``max_attempts`` (None: never), and at once when its handler raises TerminalFailure,
    one of ``terminal``, or the error of a Wasm guest, which is the same at every attempt.
    """

    delay_ms: int = 1_000
    factor: float = 1.0
    max_delay_ms: int = 60_000
    max_attempts: int | None = None
    terminal: tuple[type[Exception], ...] = ()

    def __post_init__(self) -> None:
        _at_least(0, delay_ms=self.delay_ms, max_delay_ms=self.max_delay_ms)
        _at_least(1, factor=self.factor)
        if self.max_attempts is not None:
            _at_least(1, max_attempts=self.max_attempts)

    def after(self, attempt: int, error: Exception) -> float | None:
        """Return the seconds until the next attempt, or None to dead-letter the record."""
        if isinstance(error, (TerminalFailure, TransformError, *self.terminal)):
            return None
        if self.max_attempts is not None and attempt >= self.max_attempts:
            return None
        try:
            delay = self.delay_ms * self.factor ** (attempt - 1)
        except OverflowError:
            delay = self.max_delay_ms
        return min(delay, self.max_delay_ms) / 1_000 if self.delay_ms else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOptions:
    """The options of a ParallelConsumer; ``docs/consumer.md`` compares them with those of Confluent's Java library.

    topics: names, or one regular expression that begins with ``^``.
    batch_size: None: the handler is called with one record; a number: with up to that many records of one partition,
        those of one key in order.
    dead_letter_topic: topic of the dead letters. None: the consumer ends instead, and loses nothing.
    dead_letter_headers: added to the headers of a dead letter that describe its failure, such as a program's version.
    transactional_id: the prefix of the transactional ids, one for each input partition; None is the group's name.
    commit_interval_ms: None is 5,000, and 100 in transactions.
    buffer_records, buffer_bytes: maximum in memory, over all partitions; a poll, and partitions that do not get on, may
        exceed it by an eighth, and the records of a poll that are larger than those before it by more. Once half of it
        is taken, a partition with its fair share is paused, until half of the share is free. With exactly_once, outputs
        that wait for their transaction may take as much again: beyond that no record is dispatched, and what is in
        flight adds its own, which are most where outputs grow at once.
    handler_timeout_ms: maximum time of a call of the handler; None: no limit. A coroutine is cancelled then, and has
        failed. A thread cannot be ended: its call is reported in the log, the health and the metrics, blocks its key
        and its worker until it returns, and its result then counts; neither the end nor a rebalance waits for it.
    fail_on_data_loss: end with OffsetOutOfRange where the log does not have the offset to continue at, because
        retention removed it or the log was truncated. False: removed offsets are skipped and counted, and a truncated
        log is reread. ``auto.offset.reset`` only sets where a partition without a commit begins.
    revoke_wait_ms: maximum time that a revoked partition waits for its records in flight. Its last commit is added,
        65 seconds at most: both have to fit in ``max.poll.interval.ms``, five minutes by default.
    drain_wait_ms: maximum time, in all, that a consumer that ends waits for handlers. Commits and leaving the group are
        added to it.
    kafka: librdkafka settings of all clients, not part of the repr: they may hold secrets. Without
        ``bootstrap.servers`` these are added to the settings from the environment (KafkaConfig).

    Raises InvalidConsumerOption.
    """

    topics: tuple[str, ...]
    group_id: str
    ordering: Ordering = Ordering.KEY
    null_keys: NullKeys = NullKeys.SERIAL
    max_concurrency: int = 16
    batch_size: int | None = None
    retry: Retry = field(default_factory=RetryPolicy)
    dead_letter_topic: str | None = None
    dead_letter_headers: Headers = ()
    delivery: Delivery = Delivery.AT_LEAST_ONCE
    transactional_id: str | None = None
    commit_interval_ms: int | None = None
    buffer_records: int = 10_000
    buffer_bytes: int = 64 * 1024 * 1024
    handler_timeout_ms: int | None = None
    fail_on_data_loss: bool = True
    revoke_wait_ms: int = 5_000
    drain_wait_ms: int = 30_000
    kafka: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if isinstance(self.topics, str) or not self.topics or not all(self.topics):
            raise InvalidConsumerOption("topics must be a sequence of at least one name", option="topics")
        if not self.group_id:
            raise InvalidConsumerOption("group_id is empty: a consumer keeps its progress under it", option="group_id")
        object.__setattr__(self, "topics", tuple(self.topics))
        for name, kind in (("ordering", Ordering), ("null_keys", NullKeys), ("delivery", Delivery)):
            object.__setattr__(self, name, _member(name, kind, getattr(self, name)))
        object.__setattr__(self, "kafka", {name: _setting(value) for name, value in self.kafka.items()})
        if not callable(getattr(self.retry, "after", None)):
            raise InvalidConsumerOption(f"retry must have after(attempt, error), got {self.retry!r}", option="retry")
        _at_least(1, max_concurrency=self.max_concurrency, buffer_records=self.buffer_records)
        if self.buffer_records > MAX_BUFFERED_RECORDS:
            text = f"buffer_records must be at most {MAX_BUFFERED_RECORDS}, got {self.buffer_records}"
            raise InvalidConsumerOption(text, option="buffer_records")
        _at_least(1, buffer_bytes=self.buffer_bytes)
        _at_least(0, revoke_wait_ms=self.revoke_wait_ms, drain_wait_ms=self.drain_wait_ms)
        for name in ("batch_size", "commit_interval_ms", "handler_timeout_ms"):
            if (value := getattr(self, name)) is not None:
                _at_least(1, **{name: value})
        if self.kafka.get("enable.auto.commit", "false").lower() != "false":
            text = "enable.auto.commit would commit records that no handler has seen: remove it"
            raise InvalidConsumerOption(text, option="kafka")

        if self.delivery is Delivery.EXACTLY_ONCE and self.kafka.get("isolation.level") == "read_uncommitted":
            text = "isolation.level=read_uncommitted reads aborted transactions: exactly_once needs read_committed"
            raise InvalidConsumerOption(text, option="kafka")

    @property
    def commit_interval(self) -> float:
        """Seconds between two commits."""
        if self.commit_interval_ms is not None:
            return self.commit_interval_ms / 1_000
        return 0.1 if self.delivery is Delivery.EXACTLY_ONCE else 5.0


def _setting(value: object) -> str:
    """Return a librdkafka setting as text, which takes ``true`` for Python's True."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _at_least(least: int, **values: float) -> None:
    for name, value in values.items():
        is_measure = name == "factor" or name.endswith("_ms")
        if isinstance(value, bool) or not isinstance(value, (int, float) if is_measure else int):
            text = f"{name} must be {'a' if is_measure else 'a whole'} number, got {value!r}"
            raise InvalidConsumerOption(text, option=name)
        if not value >= least:  # nor is NaN
            raise InvalidConsumerOption(f"{name} must be at least {least}, got {value}", option=name)


def _member(name: str, kind: type[StrEnum], value: str) -> StrEnum:
    try:
        return kind(value.lower())
    except ValueError:
        known = ", ".join(kind)
        raise InvalidConsumerOption(f"{name} must be one of {known}, got {value!r}", option=name) from None
