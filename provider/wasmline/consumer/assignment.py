"""Tracks the partitions of a consumer and opens each at its committed offset."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping
from typing import NamedTuple

from wasmline.consumer import offset_codec
from wasmline.consumer.backend import Source
from wasmline.consumer.health import Counters
from wasmline.consumer.offsets import Start
from wasmline.consumer.progress import Progress
from wasmline.consumer.work import PartitionWork, Work
from wasmline.errors import (
    InexactMetadata,
    InvalidKafkaConfig,
    InvalidOffsetMetadata,
    NotAuthorized,
    ProgressLost,
    UnsafeBroker,
    WasmlineError,
)
from wasmline.records import CommittedOffset, TopicPartition

logger = logging.getLogger(__name__)

LASTING = (InexactMetadata, InvalidKafkaConfig, NotAuthorized, ProgressLost, UnsafeBroker)
"""Why a partition cannot be opened, now or later."""

BACK_OFF = 1.0
"""Seconds until a partition whose progress could not be read or written is tried again."""


class Assignment:
    """Opens the partitions that are assigned. One that cannot be opened, or fails, waits and begins anew."""

    def __init__(self, work: Work, source: Source, progress: Progress, counters: Counters) -> None:
        self._work = work
        self._source = source
        self._progress = progress
        self._counters = counters
        self._waiting: dict[TopicPartition, _Waiting] = {}

    def open(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int | None]:
        """Take these partitions over where they were left, and return where that is; absent: they have to wait.

        What another try does not mend is raised: permissions, settings, UnsafeBroker, ProgressLost.
        """
        try:
            return self._begin(partitions)
        except WasmlineError as error:
            _raise_lasting(error)
            for partition in partitions:
                self._postpone(partition, error)
            return {}

    def close(self, partitions: Collection[TopicPartition]) -> None:
        """Let these partitions go."""
        self._work.revoke(partitions)
        self._progress.end(partitions)
        for partition in partitions:
            self._waiting.pop(partition, None)

    def restart(self, work: PartitionWork, error: Exception) -> None:
        """Throw a partition's work away, to begin again where its progress is."""
        partition, first = work.partition, work.offsets.first
        self.close([partition])
        self._source.pause([partition])
        self._postpone(partition, error, None if first is None else Start(first, first - 1))

    def reread(self, offsets: Mapping[TopicPartition, int]) -> None:
        """See to records from these offsets on, which are below what was read.

        A log that ends below what was read was cut, and is read anew. Otherwise the client returned records twice, as
        librdkafka does now and then (its issue 4637): what is done or under way is not done again.
        """
        try:
            ends = self._source.ends(offsets)
            begins = {}
            for work in self._work.of(offsets):
                partition, offset, end = work.partition, offsets[work.partition], ends[work.partition]
                if work.offsets.next is not None and end < work.offsets.next:
                    logger.warning("%s-%d ends at %d: it was cut, and is read anew from %d", *partition, end, offset)
                    begins[partition] = self._work.cut(partition, offset)
                else:
                    logger.warning("%s-%d@%d was read before, and is left out", *partition, offset)
            self._source.seek(begins)
        except WasmlineError as error:
            for work in self._work.of(offsets):
                self.restart(work, error)

    def retry(self, now: float) -> None:
        """Open what has waited long enough."""
        due = [partition for partition, waiting in self._waiting.items() if waiting.until <= now]
        if not due:
            return
        try:
            starts = self._begin(due)
            self._source.seek({partition: offset for partition, offset in starts.items() if offset is not None})
        except WasmlineError as error:
            self._work.revoke(due)
            _raise_lasting(error)
            for partition in due:
                self._postpone(partition, error, self._waiting[partition].first)
            return
        for partition in due:
            del self._waiting[partition]
        self._source.resume(due)

    def _begin(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int | None]:
        self._progress.begin(partitions)
        starts = self._starts(partitions)
        self._work.assign(starts)
        return {partition: start.offset if start else None for partition, start in starts.items()}

    def _starts(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Start | None]:
        """Read where the partitions were left. A map that speaks of records the log does not have is not believed."""
        committed = self._source.committed(partitions)
        starts: dict[TopicPartition, Start | None] = {}
        for partition in partitions:
            if left := committed.get(partition):
                starts[partition] = self._start(partition, left)
            else:
                starts[partition] = self._waiting[partition].first if partition in self._waiting else None
        mapped = [partition for partition, start in starts.items() if start and start.highest_succeeded >= start.offset]
        for partition, end in self._source.ends(mapped).items() if mapped else ():
            start = starts[partition]
            if start and start.highest_succeeded >= end:
                text = "%s-%d ends at %d, but its map says that %d is done: the map is of another log, and ignored"
                logger.warning(text, *partition, end, start.highest_succeeded)
                starts[partition] = Start(start.offset, start.offset - 1)
        return starts

    def _start(self, partition: TopicPartition, left: CommittedOffset) -> Start:
        """Return where a partition was left. A map that cannot be read is dropped: what it held is done once more."""
        try:
            return Start(left.offset, *offset_codec.parse(left.metadata, left.offset))
        except InvalidOffsetMetadata as error:
            self._counters.unreadable_maps += 1
            logger.warning("%s-%d begins at %d, without the map that stands there: %s", *partition, left.offset, error)
            return Start(left.offset, left.offset - 1)

    def _postpone(self, partition: TopicPartition, error: Exception, first: Start | None = None) -> None:
        if isinstance(error, ProgressLost):
            raise error
        logger.warning("%s-%d is tried again in %.0f s: %s", *partition, BACK_OFF, error)
        self._waiting[partition] = _Waiting(time.monotonic() + BACK_OFF, first)


def _raise_lasting(error: WasmlineError) -> None:
    """Raise an error that another try does not mend. Others may pass: a group that moves on answers with many codes."""
    if isinstance(error, LASTING):
        raise error


class _Waiting(NamedTuple):
    """A partition that is assigned and not worked on, because its progress could not be read or written."""

    until: float
    first: Start | None
    """Where to begin if nothing is committed."""
