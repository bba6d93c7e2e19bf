"""The state of one partition of a consumer, in one assignment. Pure."""

from __future__ import annotations

from wasmline.consumer.state.calls import Call
from wasmline.consumer.state.column_queue import ColumnCall, ColumnQueue
from wasmline.consumer.state.offsets import PartitionOffsets
from wasmline.consumer.state.partition_totals import PartitionCounts
from wasmline.consumer.state.shards import Shards
from wasmline.topic_partitions import TopicPartition


class PartitionWork:
    """One partition in one assignment."""

    __slots__ = (
        "bytes",
        "closed",
        "columns",
        "counted",
        "following",
        "held",
        "in_flight",
        "offsets",
        "partition",
        "paused",
        "shards",
        "uncertain",
        "waiting",
    )

    def __init__(
        self, partition: TopicPartition, shards: Shards, columns: ColumnQueue, offsets: PartitionOffsets
    ) -> None:
        self.partition = partition
        self.offsets = offsets
        self.shards = shards
        self.columns = columns
        """Records that were read as columns. None of them runs while there are shards."""
        self.in_flight = 0
        """Records in flight."""
        self.following = 0
        """Records that follow those."""
        self.waiting = 0
        """Records without outputs that wait for the outputs of earlier ones."""
        self.bytes = 0
        """Bytes of the records that are not done."""
        self.held = False
        """Nothing is dispatched any more, because the partition is about to be released."""
        self.closed = False
        """This assignment is over."""
        self.paused = False
        self.uncertain = False
        """The committed or the completed offsets are unknown: nothing more is committed."""
        self.counted = PartitionCounts()
        """What PartitionTotals have of it."""

    @property
    def queued(self) -> int:
        """Records that wait, in a queue or to follow a record in flight."""
        return self.shards.size + self.following + self.columns.size

    @property
    def has_ready_columns(self) -> bool:
        """Whether the next columns may run."""
        columns = self.columns
        return bool(columns.size) and columns.batch is None and not len(self.shards) and not self.offsets.blocked

    @property
    def calls(self) -> set[Call]:
        """The calls in flight: of batches in a sequence, the first."""
        calls: set[Call] = {shard.batch for shard in self.shards if shard.batch is not None}
        return calls.union(self.column_calls)

    @property
    def column_calls(self) -> set[ColumnCall]:
        """The calls with columns in flight."""
        return self.columns.batch.outstanding if self.columns.batch is not None else set()

    @property
    def buffered(self) -> int:
        """Records that are queued, in flight or waiting."""
        return self.queued + self.in_flight + self.waiting
