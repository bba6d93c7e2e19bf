"""A partition's part of a batch, exactly once: what is left of it to do is run, and written in one transaction.

Progress is compared and set in the transaction that holds the outputs, so it does not matter how many attempts there
are, or whether the batch was done before: ``reference/spark.md`` §6.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wasmline.consumer.confluent.batch_transactions import BatchTransactions
from wasmline.consumer.offset_codec import encode, parse
from wasmline.errors import JobError
from wasmline.kafka.producer import Record
from wasmline.records import CommittedOffset, TopicPartition, header_pairs


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The offsets of a batch in one partition; ``end`` is excluded."""

    source: TopicPartition
    begin: int
    end: int

    def run(
        self,
        batches: Iterable[pa.RecordBatch],
        transactions: BatchTransactions,
        transform: Callable[[pa.RecordBatch], pa.RecordBatch],
    ) -> Outcome:
        """Do what is left of this part and commit that it is done, outputs and progress together.

        ``batches`` have a ``partition`` and an ``offset`` column and are this part's whole; ``transform`` makes records
        of PLACED_SCHEMA of them. Where the group's progress is gone, or was moved to before this part, nothing is done.
        Raises JobError for records of another partition, InvalidOffsetMetadata for progress that cannot be read, and
        what ``transform`` and the transaction raise; then nothing was committed, or what was is found by the next run.
        """
        with transactions.open(self.source) as transaction:
            found = transaction.progress
            if found is None or found.offset < self.begin:
                return Outcome(found=None if found is None else found.offset, done=False)
            left = Remaining(found)
            for batch in batches:
                self._refuse_others(batch)
                todo = left.of(batch)
                if todo.num_rows:
                    transaction.write(_records(transform(todo)))
            after = left.after(self.end)
            if after != found:
                transaction.commit(after)
            return Outcome(found=found.offset, done=True)

    def _refuse_others(self, batch: pa.RecordBatch) -> None:
        seen = pc.unique(batch.column("partition")).to_pylist()
        if seen not in ([], [self.source.partition]):
            raise JobError(
                f"a task for partition {self.source.partition} of {self.source.topic} was given records of {seen}: "
                "exactly-once needs each partition's range in one task, as the Kafka source plans it"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What the group had committed before (None: nothing), and whether the part is done now."""

    found: int | None
    done: bool


class Remaining:
    """What is not done of a partition, by the offset and the map that its group has committed.

    The map is there when a key-parallel consumer worked on the partition before. Raises InvalidOffsetMetadata.
    """

    def __init__(self, progress: CommittedOffset) -> None:
        self._highest, self._incompletes = parse(progress.metadata, progress.offset)

    def of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows that are not done."""
        offsets = batch.column("offset").to_numpy()
        todo = offsets > self._highest
        if todo.all():
            return batch
        return batch.filter(pa.array(todo | np.isin(offsets, np.array(self._incompletes, np.int64))))

    def after(self, end: int) -> CommittedOffset:
        """Return the progress once everything below ``end`` is done; what was done above it stays done."""
        if self._highest < end:
            return CommittedOffset(end)
        left = [offset for offset in self._incompletes if offset >= end]
        base = left[0] if left else self._highest + 1
        return CommittedOffset(base, encode(base, self._highest, left))


def _records(rows: pa.RecordBatch) -> Iterator[tuple[str, Record]]:
    names = ("topic", "key", "value", "timestamp")
    topics, keys, values, timestamps = (rows.column(name).to_pylist() for name in names)
    headers = header_pairs(rows.column("headers"))
    for topic, key, value, pairs, timestamp in zip(topics, keys, values, headers, timestamps, strict=True):
        yield topic, (key, value, pairs, timestamp)
