"""Reports the state of a consumer at one moment."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from operator import attrgetter

from wasmline.consumer.partition_counters import PartitionCounters
from wasmline.consumer.state.partition_work import PartitionWork
from wasmline.consumer.state.shards import Shard
from wasmline.consumer.state.work_manager import WorkManager
from wasmline.dead_letters import reason_of
from wasmline.topic_partitions import TopicPartition


class State(StrEnum):
    """The lifecycle state of a consumer."""

    NEW = "new"
    RUNNING = "running"
    PAUSED = "paused"
    DRAINING = "draining"
    CLOSED = "closed"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionHealth:
    """One assigned partition.

    ``lag`` is the lag after a commit now: the end offset less the lowest incomplete offset; None while the end is
    unknown. ``oldest`` is the offset and the timestamp, in Unix milliseconds, of the first record that is queued or in
    flight. ``blocked``: the offset map is nearly too large for a broker, and only records that shrink it are started.
    ``failing_keys`` wait for a retry of their first record; ``stuck_keys`` do, or have had it in a handler for STUCK_S
    seconds. ``oldest_in_flight`` is the longest time in a handler, in seconds. ``timed_out_calls`` have exceeded
    ``handler_timeout_ms`` and not returned. ``settled`` is the committed offset; None while something is done that the
    broker may not have yet. ``stalled_seconds``: time since one of its records was last done, while its buffer is
    full.
    """

    partition: TopicPartition
    next_commit: int | None
    lag: int | None
    oldest: tuple[int, int] | None
    queued: int
    in_flight: int
    buffered_bytes: int
    incompletes: int
    paused: bool
    blocked: bool
    failing_keys: int = 0
    stuck_keys: int = 0
    oldest_in_flight: float = 0.0
    timed_out_calls: int = 0
    settled: int | None = None
    stalled_seconds: float = 0.0
    counts: PartitionCounters = field(default_factory=PartitionCounters)


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingKey:
    """Why a key is blocked: its first record is in a handler for ``seconds``, or failed with ``error``."""

    partition: TopicPartition
    key: bytes | None
    offset: int
    attempt: int
    seconds: float | None
    error: str | None


@dataclass(slots=True)
class Counters:
    """Counts of a consumer since its start."""

    records: int = 0
    """Records that a handler finished, without those that were dead-lettered; PartitionCounters have these, too."""
    failures: int = 0
    """Attempts that failed; a list that failed as a whole is one."""
    given_up: int = 0
    """Records that were dead-lettered."""
    batches: int = 0
    """Calls of the handler that returned or raised."""
    handler_seconds: float = 0.0
    """Time within the handler, summed over all calls."""
    unreadable_maps: int = 0
    """Offset maps that could not be read, so that records were processed again."""
    failed_commits: int = 0
    """Commits of a partition that failed or were not answered in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerHealth:
    """A consumer at one moment.

    ``waiting``: the keys blocked for the longest time, at most MAX_WAITING_KEYS. ``connected_brokers``: brokers that
    its client is connected to; None while unknown.
    """

    state: State
    counters: Counters
    partitions: tuple[PartitionHealth, ...] = ()
    waiting: tuple[WaitingKey, ...] = ()
    failure: BaseException | None = None
    connected_brokers: int | None = None


MAX_WAITING_KEYS = 20

STUCK_S = 10.0
"""Seconds in its handler after which a record blocks its key."""


def partition_health(
    work: PartitionWork, end: int | None, counts: PartitionCounters, now: float, limit: float | None = None
) -> PartitionHealth:
    """Describe one partition with the end offset ``end``; ``limit`` is the seconds that a call may take."""
    base = work.offsets.base
    calls = work.calls
    # An exception such as that of Ctrl-C may leave a shard without records.
    buffered = [shard.head if shard.in_flight else next(iter(shard.records), None) for shard in work.shards]
    first = min(filter(None, buffered), key=attrgetter("offset"), default=None)
    if first is None and work.columns.first is not None:
        first = work.columns.first.record(0)
    return PartitionHealth(
        partition=work.partition,
        next_commit=base,
        lag=None if end is None or base is None else max(0, end - base),
        oldest=(first.offset, first.timestamp) if first else None,
        queued=work.queued,
        in_flight=work.in_flight,
        buffered_bytes=work.bytes,
        incompletes=work.offsets.incompletes,
        paused=work.paused,
        blocked=work.offsets.blocked,
        failing_keys=sum(shard.error is not None for shard in work.shards),
        oldest_in_flight=max((batch.lasts(now) for batch in calls), default=0.0),
        stuck_keys=sum(shard.error is not None or _seconds(shard, now) >= STUCK_S for shard in work.shards)
        + sum(call.lasts(now) >= STUCK_S for call in work.column_calls),
        timed_out_calls=0 if limit is None else sum(batch.lasts(now) >= limit for batch in calls),
        settled=work.offsets.settled,
        counts=replace(counts, dead_letters=counts.dead_letters.copy()),
    )


def _seconds(shard: Shard, now: float) -> float:
    return 0.0 if shard.batch is None else shard.batch.lasts(now)


def waiting_keys(work: WorkManager, now: float) -> tuple[WaitingKey, ...]:
    """Return the keys blocked for the longest time: those with the most failures first, then by the time in flight.

    Of a call with columns, the first one.
    """
    found = [
        WaitingKey(
            partition=each.partition,
            key=record.key,
            offset=record.offset,
            attempt=record.attempt,
            seconds=_seconds(shard, now) if shard.in_flight else None,
            error=None if shard.error is None else f"{type(shard.error).__name__}: {reason_of(shard.error)}",
        )
        for each in work
        for shard in each.shards
        if (record := shard.head) is not None and (shard.in_flight or shard.error is not None)
    ]
    for each in work:
        for call in each.column_calls:
            record = call.columns.record(0)
            found.append(
                WaitingKey(
                    partition=each.partition,
                    key=record.key,
                    offset=record.offset,
                    attempt=record.attempt,
                    seconds=call.lasts(now),
                    error=None,
                )
            )
    found.sort(key=lambda key: (-key.attempt, -(key.seconds or 0.0)))
    return tuple(found[:MAX_WAITING_KEYS])
