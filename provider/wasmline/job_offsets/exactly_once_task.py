"""Processes the parts of a batch exactly once: the remaining records run, and are written in one transaction.

Progress is compared and set in the transaction that holds the outputs, so repeated attempts, and batches done before,
are harmless. The protocol: docs/protocols/exactly_once.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from wasmline.errors import JobError
from wasmline.job_offsets.microbatch_transactions import BatchTransactions
from wasmline.offset_maps import encode, parse
from wasmline.record_batches import TIMED_OUTPUT_SCHEMA
from wasmline.topic_partitions import CommittedOffset, TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRange:
    """The offsets of a batch in one partition; ``end`` is excluded."""

    source: TopicPartition
    begin: int
    end: int


class CommittedRange(NamedTuple):
    """The group's committed offset of a partition before its part was processed, and after."""

    before: int | None
    after: int | None


def process_and_commit(
    parts: Sequence[OffsetRange],
    read: Callable[[Sequence[OffsetRange]], Iterable[pa.RecordBatch]],
    transactions: BatchTransactions,
    transform: Callable[[pa.RecordBatch], Iterable[pa.RecordBatch]],
) -> dict[int, CommittedRange]:
    """Process the remaining records of some parts and commit outputs and progress together.

    The parts are of one virtual shard. ``read`` returns the records of the ranges that are not done, or of the whole
    parts, as batches with a ``partition`` and an ``offset`` column; ``transform`` makes batches of PLACED_SCHEMA of
    each. Returns the group's committed offset of each partition before and after; where one is gone, or was moved to
    before its part, nothing was done.

    Raises JobError for records of other partitions, InvalidOffsetMetadata for progress that cannot be read, and the
    errors of ``transform`` and the transaction; then nothing was committed, or the next run finds the commit.
    """
    with transactions.open([part.source for part in parts]) as transaction:
        progress = transaction.progress
        found = {part.source.partition: each.offset if (each := progress.get(part.source)) else None for part in parts}
        if any((at := found[part.source.partition]) is None or at < part.begin for part in parts):
            return {partition: CommittedRange(at, at) for partition, at in found.items()}
        remaining = {part.source.partition: RemainingOffsets(progress[part.source]) for part in parts}
        for batch in read(tuple(_remaining(parts, found))):
            todo = filter_unprocessed(batch, remaining)
            if todo.num_rows:
                for rows in transform(todo):
                    transaction.write(*outputs_and_topics(rows))
        after = {part.source: remaining[part.source.partition].after(part.end) for part in parts}
        if after != progress:
            transaction.commit(after)
        return {
            part.source.partition: CommittedRange(found[part.source.partition], after[part.source].offset)
            for part in parts
        }


def _remaining(parts: Sequence[OffsetRange], committed: Mapping[int, int | None]) -> Iterator[OffsetRange]:
    """Yield the ranges of some parts from the committed offsets on: retention may have taken what is done."""
    for part in parts:
        begin = max(part.begin, committed[part.source.partition] or 0)
        if begin < part.end:
            yield replace(part, begin=begin)


class RemainingOffsets:
    """The remaining offsets of a partition, by its group's committed offset and map.

    There is a map if a key-parallel consumer worked on the partition before. Raises InvalidOffsetMetadata.
    """

    def __init__(self, progress: CommittedOffset) -> None:
        self._highest, self._incompletes = parse(progress.metadata, progress.offset)

    def among(self, offsets: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return a mask of the offsets that are not done."""
        todo = offsets > self._highest
        return todo if todo.all() else todo | np.isin(offsets, np.array(self._incompletes, np.int64))

    def after(self, end: int) -> CommittedOffset:
        """Return the progress once everything below ``end`` is done; offsets done above it stay done."""
        if self._highest < end:
            return CommittedOffset(end)
        left = [offset for offset in self._incompletes if offset >= end]
        base = left[0] if left else self._highest + 1
        return CommittedOffset(base, encode(base, self._highest, left))


def filter_unprocessed(batch: pa.RecordBatch, remaining: Mapping[int, RemainingOffsets]) -> pa.RecordBatch:
    """Return the rows that are not done, by the remaining offsets of each partition. Raises JobError for others."""
    partitions, offsets = (batch.column(name).to_numpy() for name in ("partition", "offset"))
    todo = np.zeros(batch.num_rows, np.bool_)
    for partition in np.unique(partitions).tolist():
        if partition not in remaining:
            raise JobError(
                f"a task for partitions {list(remaining)} was given records of {partition}: exactly-once needs each "
                "partition's range in one task, as the Kafka source plans it"
            )
        todo |= (partitions == partition) & remaining[partition].among(offsets)
    return batch if todo.all() else batch.filter(pa.array(todo))


def outputs_and_topics(rows: pa.RecordBatch) -> tuple[pa.RecordBatch, list[str]]:
    """Return a batch of PLACED_SCHEMA as one of TIMED_OUTPUT_SCHEMA, and the topics that its ``output`` counts."""
    topics = rows.column("topic").dictionary_encode()
    columns = {name: rows.column(name) for name in ("key", "value", "headers", "timestamp")}
    columns |= {"row": pa.array(np.arange(rows.num_rows, dtype=np.int32)), "output": topics.indices.cast(pa.int32())}
    batch = pa.RecordBatch.from_arrays(
        [columns[name] for name in TIMED_OUTPUT_SCHEMA.names], schema=TIMED_OUTPUT_SCHEMA
    )
    return batch, topics.dictionary.to_pylist()
