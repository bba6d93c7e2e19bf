"""Tracks the partitions of a consumer and opens each at its committed offset."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping
from functools import partial
from typing import NamedTuple

from wasmline import offset_errors
from wasmline.background_call import BackgroundCall
from wasmline.consumer.backends.base import Source
from wasmline.consumer.health import Counters
from wasmline.consumer.runtime.committer import Committer
from wasmline.consumer.state.offsets import InitialProgress
from wasmline.consumer.state.partition_work import PartitionWork
from wasmline.consumer.state.work_manager import WorkManager
from wasmline.consumer.timings import DEFAULT_TIMINGS, Timings
from wasmline.errors import (
    HangingTransaction,
    HangingTransactionEnded,
    InexactMetadata,
    InvalidConsumerOption,
    InvalidKafkaConfig,
    InvalidOffsetMetadata,
    KafkaError,
    NotAuthorized,
    OffsetOutOfRange,
    ProgressLost,
    UnsafeBroker,
    WasmlineError,
)
from wasmline.offset_maps import codec
from wasmline.topic_partitions import CommittedOffset, TopicPartition
from wasmline.transactional_ids import virtual_shard

logger = logging.getLogger(__name__)

PERMANENT_ERRORS = (
    HangingTransaction,
    InexactMetadata,
    InvalidConsumerOption,
    InvalidKafkaConfig,
    InvalidOffsetMetadata,
    NotAuthorized,
    OffsetOutOfRange,
    ProgressLost,
    UnsafeBroker,
)
"""Errors for which a partition cannot be opened, now or later."""


class PartitionLifecycle:
    """Opens the assigned partitions. One that cannot be opened, or fails, waits and is reopened."""

    def __init__(
        self,
        work: WorkManager,
        source: Source,
        committer: Committer,
        counters: Counters,
        timings: Timings = DEFAULT_TIMINGS,
        *,
        fails_on_loss: bool,
        is_exact: bool = False,
    ) -> None:
        """``fails_on_loss``: records that retention removed before they were read end the consumer.

        ``is_exact``: so does an unusable offset map, because the records that it marks as done would be repeated.
        """
        self._fails_on_loss = fails_on_loss
        self._is_exact = is_exact
        self._work = work
        self._source = source
        self._committer = committer
        self._counters = counters
        self._timings = timings
        self._waiting: dict[TopicPartition, _Waiting] = {}
        self._openings: dict[tuple[str, int], _Opening] = {}
        """Running openings, by topic and virtual shard: partitions that may share a transactional id open together."""
        self._failing: dict[TopicPartition, tuple[float, float]] = {}
        """Time of a partition's first, and last, failure among those that may never pass."""

    def open(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int | None]:
        """Open these partitions at their committed offsets, and return those offsets; absent: they have to wait.

        Raises errors that are not transient: permissions, settings, UnsafeBroker, ProgressLost, OffsetOutOfRange.
        """
        try:
            return self._assign(partitions, self._read(partitions))
        except WasmlineError as error:
            _raise_permanent(error)
            for partition in partitions:
                self._schedule_retry(partition, error)
            return {}

    @property
    def is_opening(self) -> bool:
        """Whether a partition that had to wait is being opened."""
        return bool(self._openings)

    def close(self, partitions: Collection[TopicPartition]) -> None:
        """Release these partitions.

        A running opening ends first: afterwards it would fence the next owner of its partition, and use closed
        clients.
        """
        for key in [key for key, opening in self._openings.items() if set(partitions).intersection(opening.partitions)]:
            self._openings.pop(key).reading.wait(self._timings.opening_timeout_s)
        self._work.revoke(partitions)
        self._committer.close(partitions)
        for partition in partitions:
            self._waiting.pop(partition, None)

    def reopen(self, work: PartitionWork, error: WasmlineError, truncated_at: int | None = None) -> None:
        """Discard a partition's work and reopen it at its progress, below ``truncated_at`` if its log was truncated."""
        partition, first = work.partition, work.offsets.first
        if work.offsets.has_committed:
            self._failing.pop(partition, None)
        self.close([partition])
        self._source.pause([partition])
        self._schedule_retry(
            partition, error, None if first is None else InitialProgress(first, first - 1), truncated_at
        )

    def reread(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Handle records from these offsets on, which are below those read before.

        A log that ends below the last record read was truncated. Otherwise the client returned records twice, as
        librdkafka does at times (its issue 4637): records done or in flight are not processed again.
        """
        try:
            ends = self._source.end_offsets(offsets)
        except WasmlineError as error:
            for work in self._work.of(offsets):
                self.reopen(work, error)
            return
        for work in self._work.of(offsets):
            partition, offset, end = work.partition, offsets[work.partition], ends[work.partition]
            if work.offsets.next is not None and end < work.offsets.next:
                self._reread_truncated(work, work.offsets.next, offset)
            else:
                logger.warning("%s@%d was read before, and is skipped", partition, offset)

    def out_of_range(self, partition: TopicPartition, offset: int | None, end: int | None) -> None:
        """Continue in a log that does not have the next ``offset``, or raise OffsetOutOfRange.

        ``end`` is where the log was truncated, if known. Offsets that retention removed are skipped and counted.
        """
        for work in self._work.of([partition]):
            try:
                begin = self._source.beginning_offsets([partition])[partition]
                if end is not None or offset is None or offset >= begin:
                    self._reread_truncated(work, offset or work.offsets.next or begin, begin if end is None else end)
                    continue
                if work.offsets.next is not None:
                    self._skip_removed(work, begin, offset)
                self._source.seek({partition: begin})
            except WasmlineError as error:
                _raise_permanent(error)
                self.reopen(work, error)

    def retry(self, now: float) -> None:
        """Open partitions whose wait is over, beside the control loop: one that hangs blocks no other."""
        for key, opening in list(self._openings.items()):
            if opening.reading.wait(0):
                del self._openings[key]
                self._finish_opening(opening)
        due: dict[tuple[str, int], list[TopicPartition]] = {}
        for partition, waiting in self._waiting.items():
            key = partition.topic, virtual_shard(partition.partition)
            if waiting.until <= now and key not in self._openings:
                due.setdefault(key, []).append(partition)
        for key, partitions in due.items():
            self._openings[key] = _Opening(partitions, BackgroundCall(partial(self._read, partitions)))

    def _finish_opening(self, opening: _Opening) -> None:
        """Start partitions that had to wait, or let them wait again."""
        partitions = opening.partitions
        try:
            starts = self._assign(partitions, opening.reading.result())
            self._source.seek({partition: offset for partition, offset in starts.items() if offset is not None})
        except WasmlineError as error:
            self._work.revoke(partitions)
            _raise_permanent(error)
            for partition in partitions:
                waiting = self._waiting[partition]
                self._schedule_retry(partition, error, waiting.first, waiting.truncated_at)
            return
        for partition in partitions:
            del self._waiting[partition]
        self._source.resume(partitions)

    def _read(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, CommittedOffset]:
        """Become the owner of these partitions' progress, and read it. Any thread may call this."""
        self._committer.open(partitions)
        return self._source.committed(partitions)

    def _read_log_offsets(
        self, partitions: Collection[TopicPartition], committed: Mapping[TopicPartition, CommittedOffset]
    ) -> _ClusterOffsets:
        """Query the offsets needed to open partitions. For the control loop, whose polls would block other threads."""
        waiting = {partition: self._waiting.get(partition) for partition in partitions}
        known = [each for each, retry in waiting.items() if each in committed or (retry is not None and retry.first)]
        ended = [partition for partition, progress in committed.items() if progress.metadata]
        if self._source.begins_at_end:
            ended += [partition for partition in partitions if partition not in {*known, *committed}]
        ends = self._source.end_offsets(ended)
        return _ClusterOffsets(committed, self._source.beginning_offsets(known), ends)

    def _assign(
        self, partitions: Collection[TopicPartition], committed: Mapping[TopicPartition, CommittedOffset]
    ) -> dict[TopicPartition, int | None]:
        found = self._read_log_offsets(partitions, committed)
        self._work.assign(self._starts(partitions, found))
        if self._source.begins_at_end:  # later, the end is another one
            for work in self._work.of(partitions):
                if work.partition not in committed:
                    work.offsets.begin_commit()
        for work in self._work.of(found.begins):
            offset, begin = work.offsets.next, found.begins[work.partition]
            if offset is not None and offset < begin:
                self._skip_removed(work, begin, offset)
        return {work.partition: work.offsets.next for work in self._work.of(partitions)}

    def _skip_removed(self, work: PartitionWork, begin: int, offset: int) -> None:
        """Continue at ``begin``, the current beginning of the log; the offsets from ``offset`` on are lost."""
        if self._fails_on_loss:
            raise offset_errors.removed_by_retention_error(work.partition, offset, begin)
        lost = self._work.skip_to(work, begin, offset)
        self._committer.counts[work.partition].lost_offsets += lost
        logger.warning("%s begins at %d, and is read from there: %d offsets are lost", work.partition, begin, lost)

    def _reread_truncated(self, work: PartitionWork, offset: int, end: int) -> None:
        """Reread a log that was truncated at ``end``, and lacks the next ``offset``, from the committed progress.

        In an exactly-once delivery, records done since then have no outputs yet.
        """
        text = offset_errors.truncation(work.partition, offset)
        if self._fails_on_loss:
            raise offset_errors.out_of_range_error(work.partition, offset, end, text)
        self.reopen(work, KafkaError(f"{text}; it is reread from {end} on"), end)

    def _starts(
        self, partitions: Collection[TopicPartition], found: _ClusterOffsets
    ) -> dict[TopicPartition, InitialProgress | None]:
        """Return where each partition begins. A map with offsets that the log does not have is not used."""
        starts: dict[TopicPartition, InitialProgress | None] = {}
        for partition in partitions:
            waiting = self._waiting.get(partition)
            committed = found.committed.get(partition)
            start = self._start(partition, committed) if committed else waiting and waiting.first
            if start and waiting and waiting.truncated_at is not None:
                start = start.below(waiting.truncated_at)
            end = found.ends.get(partition)
            if start is None and end is not None:
                start = InitialProgress(end, end - 1)
            if start and end is not None and start.highest_succeeded >= max(end, start.offset):
                start = self._without_map(partition, start, end)
            starts[partition] = start
        return starts

    def _without_map(self, partition: TopicPartition, start: InitialProgress, end: int) -> InitialProgress:
        where, highest = f"{partition} ends at {end}", start.highest_succeeded
        if self._is_exact and self._fails_on_loss:
            text = (
                f"{where}, but its map says that {highest} is done: the log was truncated, or the map is another log's"
            )
            raise offset_errors.out_of_range_error(partition, highest, end, text)
        logger.warning("%s, but its map says that %d is done: the map is of another log, and ignored", where, highest)
        return InitialProgress(start.offset, start.offset - 1)

    def _start(self, partition: TopicPartition, committed: CommittedOffset) -> InitialProgress:
        """Return the decoded progress. An unreadable map is dropped: the records that it marks are processed again."""
        try:
            return InitialProgress(committed.offset, *codec.parse(committed.metadata, committed.offset))
        except InvalidOffsetMetadata as error:
            if self._is_exact:
                raise
            self._counters.unreadable_maps += 1
            logger.warning("%s begins at %d, without its offset map: %s", partition, committed.offset, error)
            return InitialProgress(committed.offset, committed.offset - 1)

    def _schedule_retry(
        self,
        partition: TopicPartition,
        error: WasmlineError,
        first: InitialProgress | None = None,
        truncated_at: int | None = None,
    ) -> None:
        if isinstance(error, ProgressLost):
            raise error
        if not error.retryable:
            now = time.monotonic()
            begun, last = self._failing.get(partition, (now, now))
            longest = self._timings.max_error_duration_s
            begun = begun if now - last <= longest else now
            if now - begun > longest:
                raise error
            self._failing[partition] = begun, now
        if isinstance(error, HangingTransactionEnded):
            self._committer.counts[partition].hangs += 1
        backoff = self._timings.retry_backoff_s
        logger.warning("%s cannot be opened, retrying in %.0f s: %s", partition, backoff, error)
        self._waiting[partition] = _Waiting(time.monotonic() + backoff, first, truncated_at)


def _raise_permanent(error: WasmlineError) -> None:
    """Raise an error that a retry does not resolve. Others may pass: during a rebalance a group sends many codes."""
    if isinstance(error, PERMANENT_ERRORS):
        raise error


class _Waiting(NamedTuple):
    """An assigned partition that is not open, because its progress could not be read or written."""

    until: float
    first: InitialProgress | None
    """Where to begin if nothing is committed."""

    truncated_at: int | None
    """Offset from which its log has other records than those committed, if it was truncated."""


class _ClusterOffsets(NamedTuple):
    """Offsets from the cluster of partitions that are opened."""

    committed: Mapping[TopicPartition, CommittedOffset]
    begins: Mapping[TopicPartition, int]
    """Of partitions whose first offset is known."""

    ends: Mapping[TopicPartition, int]
    """Of partitions that have a map, or begin at their end."""


class _Opening(NamedTuple):
    """Partitions that are being opened, in a thread of its own."""

    partitions: Collection[TopicPartition]
    reading: BackgroundCall[Mapping[TopicPartition, CommittedOffset]]
