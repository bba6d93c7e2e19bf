"""Interfaces of a cluster that the consumer reads and writes: ``kafka`` is Kafka, ``memory`` a fake in the process.

All calls come from the consumer's control loop, and so do the listener's, from inside ``poll``; except for commits, and
for ``committed`` and ``Transactions.open``, which other threads call meanwhile, never two at a time for partitions that
share a transactional id. Every method raises errors of ``wasmline.errors``; BrokerUnavailable is retryable and leaves
the consumer unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from wasmline.consumer.records import ConsumedRecord, Output
from wasmline.errors import WasmlineError
from wasmline.topic_partitions import CommittedOffset, TopicPartition

if TYPE_CHECKING:
    from wasmline.consumer.columns import OutputColumns, RecordColumns


class RebalanceListener(Protocol):
    """Receives the changes of a source's assignment."""

    def assigned(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int | None]:
        """Open these partitions and return the offsets to begin at; None: ``auto.offset.reset`` decides.

        Absent partitions are paused, until the listener seeks and resumes them.
        """

    def revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Finish with these partitions: they are revoked when this returns, and may be committed until then."""

    def lost(self, partitions: Collection[TopicPartition]) -> None:
        """Release these partitions: another member has them already."""

    def out_of_range(self, partition: TopicPartition, offset: int | None, end: int | None) -> None:
        """Handle a partition whose log does not have the next ``offset``; it returns no record until a ``seek``.

        ``end`` is where the log was truncated, if known; ``offset`` may be None if it was.
        """


class Source(Protocol):
    """Reads the assigned partitions of some topics, and stores the progress of a group."""

    @property
    def begins_at_end(self) -> bool:
        """Whether a partition without a commit begins at its end: ``auto.offset.reset`` is ``latest``."""

    @property
    def connected_brokers(self) -> int | None:
        """The number of brokers that the client was last connected to; None: unknown."""

    def open(self, listener: RebalanceListener) -> None:
        """Join. The assignment arrives in ``poll``."""

    def poll(self, limit: int, timeout: float) -> Sequence[ConsumedRecord]:
        """Return up to ``limit`` records, those of a partition by offset; wait ``timeout`` seconds for the first."""

    def poll_columns(self, limit: int, timeout: float) -> Sequence[RecordColumns]:
        """Do as ``poll`` does, but return the records of each partition as columns, in one or more pieces."""

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        """Return no records of these partitions until ``resume``."""

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        """Continue after the last record that was returned."""

    def seek(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Continue at these offsets."""

    def committed(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, CommittedOffset]:
        """Return the committed progress, once no open transaction can change it; absent: no commit.

        Raises BrokerUnavailable, and HangingTransaction or HangingTransactionEnded where markers were lost.
        """

    def beginning_offsets(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the beginning offsets of these partitions, from the cluster."""

    def end_offsets(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the end offsets of these partitions, from the cluster."""

    def cached_end_offsets(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the end offsets that the last fetches reported; absent: unknown."""

    def commit(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Commit, and return when the broker has it. Raises CommitFailed, MetadataTooLarge."""

    def close(self) -> None:
        """Leave. ``revoked`` is called for the partitions that are still assigned."""


class Sink(Protocol):
    """Writes outputs, at least once."""

    def write(self, output: Output, done: Callable[[Exception | None], None], *, alone: bool = False) -> None:
        """Queue a record, without waiting for capacity. ``poll`` or ``flush`` calls ``done`` when every in-sync replica
        has it, or with the error.

        OutputRefused: a retry would not help. If it is ``with_others``, a retry in a batch of its own, ``alone``, tells
        whether this output is the cause.
        """

    def write_columns(self, outputs: OutputColumns, answer: Callable[[int, int, Exception | None], None]) -> None:
        """Queue the outputs of a call in their order, as ``write`` does.

        ``answer`` is called with a number of outputs that every in-sync replica has, 0 and None; or with 1, the place
        of an output, and its error.
        """

    @property
    def is_full(self) -> bool:
        """Whether outputs wait because the client's queue is full."""

    def poll(self) -> None:
        """Call each ``done`` that is due."""

    def flush(self, timeout: float) -> int:
        """Wait for all answers, and return the number that is missing after ``timeout`` seconds."""

    def close(self) -> None:
        """Drop the outputs that are not written."""


class Transactions(Protocol):
    """Writes outputs, offsets and maps, all or none, one transaction for each input partition or virtual shard."""

    def open(self, partitions: Collection[TopicPartition]) -> None:
        """Become the owner of these partitions: every earlier owner is fenced.

        Raises ProducerFenced if there is another owner meanwhile, UnsafeBroker, and the errors of ``Source.committed``.
        """

    def begin(
        self, work: Mapping[TopicPartition, tuple[Sequence[Output | OutputColumns], CommittedOffset]]
    ) -> Callable[[], Mapping[TopicPartition, WasmlineError]]:
        """Return a function that runs a transaction for each partition, and returns the errors of those that failed.

        Of outputs in columns, ``place`` of an OutputRefused is that of the columns.
        CommitFailed (after a rebalance), MetadataTooLarge and OutputRefused: nothing is committed, and the partition
        stays open; a transaction still open is aborted by the next. After any other error the result is unknown:
        ``open`` decides it, and then ``committed`` returns it.
        Another thread may call the function; it cannot affect partitions that are reopened meanwhile.
        """

    def close(self, partitions: Collection[TopicPartition] | None = None) -> None:
        """Release these partitions, or all; open transactions are aborted."""


class Backend(Protocol):
    """One member of one group, and its outputs."""

    @property
    def source(self) -> Source: ...

    @property
    def sink(self) -> Sink: ...

    @property
    def transactions(self) -> Transactions: ...

    def use_columns(self) -> None:
        """Prepare for ``poll_columns``, in place of ``poll``, and ``write_columns``; called before anything else."""
