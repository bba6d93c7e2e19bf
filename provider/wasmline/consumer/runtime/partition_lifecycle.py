"""Tracks the partitions of a consumer and opens each at its committed offset."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping
from functools import partial
from typing import NamedTuple

from wasmline import data_loss
from wasmline.background_call import BackgroundCall
from wasmline.consumer.backends.base import Source
from wasmline.consumer.health import Counters
from wasmline.consumer.runtime.committer import Committer
from wasmline.consumer.state.offsets import Start
from wasmline.consumer.state.work_manager import PartitionWork, WorkManager
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
from wasmline.records import CommittedOffset, TopicPartition
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
"""Why a partition cannot be opened, now or later."""

RETRY_BACKOFF_S = 1.0
"""Seconds until a partition whose progress could not be read or written is tried again."""

MAX_ERROR_DURATION_S = 60.0
"""Seconds after which an error that no broker calls passing, and that no commit has come between, ends the consumer."""

OPEN_TIMEOUT_S = 60.0
"""Seconds that it is waited for the end of an opening whose partition goes: more than its requests may take."""


class PartitionLifecycle:
    """Opens the partitions that are assigned. One that cannot be opened, or fails, waits and begins anew."""

    def __init__(
        self,
        work: WorkManager,
        source: Source,
        progress: Committer,
        counters: Counters,
        *,
        fails_on_loss: bool,
        is_exact: bool = False,
    ) -> None:
        """``fails_on_loss``: records that retention removed before they were read end the consumer.

        ``is_exact``: so does an offset map that cannot be used, because what it held would be done twice.
        """
        self._fails_on_loss = fails_on_loss
        self._is_exact = is_exact
        self._work = work
        self._source = source
        self._committer = progress
        self._counters = counters
        self._waiting: dict[TopicPartition, _Waiting] = {}
        self._openings: dict[tuple[str, int], _Opening] = {}
        """Those under way, by topic and virtual shard: what may share a transactional id is opened together."""
        self._failing: dict[TopicPartition, tuple[float, float]] = {}
        """When a partition failed first, and last, of those failures that may never pass."""

    def open(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int | None]:
        """Take these partitions over where they were left, and return where that is; absent: they have to wait.

        What another try does not mend is raised: permissions, settings, UnsafeBroker, ProgressLost, OffsetOutOfRange.
        """
        try:
            return self._assign(partitions, self._read(partitions))
        except WasmlineError as error:
            _raise_lasting(error)
            for partition in partitions:
                self._postpone(partition, error)
            return {}

    @property
    def is_opening(self) -> bool:
        """Whether a partition that had to wait is being opened."""
        return bool(self._openings)

    def close(self, partitions: Collection[TopicPartition]) -> None:
        """Let these partitions go.

        An opening that is under way ends first: after this it would fence whoever has its partition next, and use
        clients that are closed.
        """
        for key in [key for key, opening in self._openings.items() if set(partitions).intersection(opening.partitions)]:
            self._openings.pop(key).reading.wait(OPEN_TIMEOUT_S)
        self._work.revoke(partitions)
        self._committer.close(partitions)
        for partition in partitions:
            self._waiting.pop(partition, None)

    def restart(self, work: PartitionWork, error: WasmlineError, cut: int | None = None) -> None:
        """Throw a partition's work away, to begin again where its progress is; below ``cut``, where its log was cut."""
        partition, first = work.partition, work.offsets.first
        if work.offsets.has_committed:
            self._failing.pop(partition, None)
        self.close([partition])
        self._source.pause([partition])
        self._postpone(partition, error, None if first is None else Start(first, first - 1), cut)

    def reread(self, offsets: Mapping[TopicPartition, int]) -> None:
        """See to records from these offsets on, which are below what was read.

        A log that ends below what was read was cut. Otherwise the client returned records twice, as librdkafka does now
        and then (its issue 4637): what is done or under way is not done again.
        """
        try:
            ends = self._source.end_offsets(offsets)
        except WasmlineError as error:
            for work in self._work.of(offsets):
                self.restart(work, error)
            return
        for work in self._work.of(offsets):
            partition, offset, end = work.partition, offsets[work.partition], ends[work.partition]
            if work.offsets.next is not None and end < work.offsets.next:
                self._cut(work, work.offsets.next, offset)
            else:
                logger.warning("%s-%d@%d was read before, and is left out", *partition, offset)

    def out_of_range(self, partition: TopicPartition, offset: int | None, end: int | None) -> None:
        """Go on in a log that does not have the next ``offset``, or raise OffsetOutOfRange.

        ``end`` is where the log was cut, where that is known. What retention removed is passed over and counted.
        """
        for work in self._work.of([partition]):
            try:
                begin = self._source.beginning_offsets([partition])[partition]
                if end is not None or offset is None or offset >= begin:
                    self._cut(work, offset or work.offsets.next or begin, begin if end is None else end)
                    continue
                if work.offsets.next is not None:
                    self._pass_over(work, begin, offset)
                self._source.seek({partition: begin})
            except WasmlineError as error:
                _raise_lasting(error)
                self.restart(work, error)

    def retry(self, now: float) -> None:
        """Open what has waited long enough, beside the owner's other work: one that hangs holds up no other."""
        for key, opening in list(self._openings.items()):
            if opening.reading.wait(0):
                del self._openings[key]
                self._take(opening)
        due: dict[tuple[str, int], list[TopicPartition]] = {}
        for partition, waiting in self._waiting.items():
            key = partition.topic, virtual_shard(partition.partition)
            if waiting.until <= now and key not in self._openings:
                due.setdefault(key, []).append(partition)
        for key, partitions in due.items():
            self._openings[key] = _Opening(partitions, BackgroundCall(partial(self._read, partitions)))

    def _take(self, opening: _Opening) -> None:
        """Begin with partitions that had to wait, or let them wait again."""
        partitions = opening.partitions
        try:
            starts = self._assign(partitions, opening.reading.result())
            self._source.seek({partition: offset for partition, offset in starts.items() if offset is not None})
        except WasmlineError as error:
            self._work.revoke(partitions)
            _raise_lasting(error)
            for partition in partitions:
                waiting = self._waiting[partition]
                self._postpone(partition, error, waiting.first, waiting.cut)
            return
        for partition in partitions:
            del self._waiting[partition]
        self._source.resume(partitions)

    def _read(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, CommittedOffset]:
        """Become the one who writes the progress of these partitions, and read it. Any thread may call this."""
        self._committer.open(partitions)
        return self._source.committed(partitions)

    def _read_log_offsets(
        self, partitions: Collection[TopicPartition], committed: Mapping[TopicPartition, CommittedOffset]
    ) -> _Left:
        """Ask for what else there is to know of partitions. For the owner, whose polls would keep others waiting."""
        waiting = {partition: self._waiting.get(partition) for partition in partitions}
        known = [each for each, left in waiting.items() if each in committed or (left is not None and left.first)]
        ends = self._source.end_offsets([partition for partition, left in committed.items() if left.metadata])
        return _Left(committed, self._source.beginning_offsets(known), ends)

    def _assign(
        self, partitions: Collection[TopicPartition], committed: Mapping[TopicPartition, CommittedOffset]
    ) -> dict[TopicPartition, int | None]:
        left = self._read_log_offsets(partitions, committed)
        self._work.assign(self._starts(partitions, left))
        for work in self._work.of(left.begins):
            offset, begin = work.offsets.next, left.begins[work.partition]
            if offset is not None and offset < begin:
                self._pass_over(work, begin, offset)
        return {work.partition: work.offsets.next for work in self._work.of(partitions)}

    def _pass_over(self, work: PartitionWork, begin: int, offset: int) -> None:
        """Go on at ``begin``, where the log begins by now; what was to be read from ``offset`` on is gone."""
        if self._fails_on_loss:
            raise data_loss.removed_by_retention(work.partition, offset, begin)
        lost = work.offsets.pass_over(begin, offset)
        self._committer.counts[work.partition].lost_offsets += lost
        logger.warning("%s-%d begins at %d, and goes on there: %d offsets are lost", *work.partition, begin, lost)

    def _cut(self, work: PartitionWork, offset: int, end: int) -> None:
        """Read a log anew that was cut at ``end``, and does not have the next ``offset``, from the committed progress.

        What was done since has no outputs yet in an exactly-once delivery.
        """
        where = f"{work.partition.topic}-{work.partition.partition}"
        text = f"{where} was cut: it does not have offset {offset}, which the group got to, because its leader lost "
        text += "records, it was made anew, or the group's offset was moved"
        if self._fails_on_loss:
            raise data_loss.out_of_range(work.partition, offset, end, text)
        self.restart(work, KafkaError(f"{text}; from {end} on it is read anew"), end)

    def _starts(self, partitions: Collection[TopicPartition], left: _Left) -> dict[TopicPartition, Start | None]:
        """Return where the partitions were left. A map that speaks of records the log does not have is not believed."""
        starts: dict[TopicPartition, Start | None] = {}
        for partition in partitions:
            waiting = self._waiting.get(partition)
            committed = left.committed.get(partition)
            start = self._start(partition, committed) if committed else waiting and waiting.first
            if start and waiting and waiting.cut is not None:
                start = start.below(waiting.cut)
            end = left.ends.get(partition)
            if start and end is not None and start.highest_succeeded >= max(end, start.offset):
                start = self._without_map(partition, start, end)
            starts[partition] = start
        return starts

    def _without_map(self, partition: TopicPartition, start: Start, end: int) -> Start:
        where, highest = f"{partition.topic}-{partition.partition} ends at {end}", start.highest_succeeded
        if self._is_exact and self._fails_on_loss:
            text = f"{where}, but its map says that {highest} is done: the log was cut, or the map is of another one"
            raise data_loss.out_of_range(partition, highest, end, text)
        logger.warning("%s, but its map says that %d is done: the map is of another log, and ignored", where, highest)
        return Start(start.offset, start.offset - 1)

    def _start(self, partition: TopicPartition, left: CommittedOffset) -> Start:
        """Return where a partition was left. A map that cannot be read is dropped: what it held is done once more."""
        try:
            return Start(left.offset, *codec.parse(left.metadata, left.offset))
        except InvalidOffsetMetadata as error:
            if self._is_exact:
                raise
            self._counters.unreadable_maps += 1
            logger.warning("%s-%d begins at %d, without the map that stands there: %s", *partition, left.offset, error)
            return Start(left.offset, left.offset - 1)

    def _postpone(
        self, partition: TopicPartition, error: WasmlineError, first: Start | None = None, cut: int | None = None
    ) -> None:
        if isinstance(error, ProgressLost):
            raise error
        if not error.retryable:
            now = time.monotonic()
            begun, last = self._failing.get(partition, (now, now))
            begun = begun if now - last <= MAX_ERROR_DURATION_S else now
            if now - begun > MAX_ERROR_DURATION_S:
                raise error
            self._failing[partition] = begun, now
        if isinstance(error, HangingTransactionEnded):
            self._committer.counts[partition].hangs += 1
        logger.warning("%s-%d is tried again in %.0f s: %s", *partition, RETRY_BACKOFF_S, error)
        self._waiting[partition] = _Waiting(time.monotonic() + RETRY_BACKOFF_S, first, cut)


def _raise_lasting(error: WasmlineError) -> None:
    """Raise an error that another try does not mend. Others may pass: a group that moves on answers with many codes."""
    if isinstance(error, PERMANENT_ERRORS):
        raise error


class _Waiting(NamedTuple):
    """A partition that is assigned and not worked on, because its progress could not be read or written."""

    until: float
    first: Start | None
    """Where to begin if nothing is committed."""

    cut: int | None
    """From where on its log has other records than those that were committed, if it was cut."""


class _Left(NamedTuple):
    """What the cluster says of partitions that are opened."""

    committed: Mapping[TopicPartition, CommittedOffset]
    begins: Mapping[TopicPartition, int]
    """Of those whose offset to begin at is known."""

    ends: Mapping[TopicPartition, int]
    """Of those that have a map."""


class _Opening(NamedTuple):
    """Partitions that are being opened, in a thread of its own."""

    partitions: Collection[TopicPartition]
    reading: BackgroundCall[Mapping[TopicPartition, CommittedOffset]]
