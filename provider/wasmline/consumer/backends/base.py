"""Interfaces of a cluster that the consumer reads and writes: ``confluent`` is Kafka, ``memory`` a twin in the process.

All calls come from the consumer's owner thread, and so do the listener's, from inside ``poll``; but for commits, and
for ``committed`` and ``Transactions.open``, which other threads call meanwhile, never twice at a
time for partitions that share a transactional id. Every method raises errors of our tree; BrokerUnavailable is
retryable and leaves the consumer as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

from wasmline.consumer.records import ConsumedRecord, Output
from wasmline.errors import WasmlineError
from wasmline.records import CommittedOffset, TopicPartition


class RebalanceListener(Protocol):
    """Follows the assignment of a source."""

    def assigned(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int | None]:
        """Take these partitions over and return where to begin; None: where ``auto.offset.reset`` says.

        Those that are left out are paused, until the listener seeks and resumes them.
        """

    def revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Finish with these partitions: they go when this returns, and may still be committed until then."""

    def lost(self, partitions: Collection[TopicPartition]) -> None:
        """Forget these partitions: somebody else has them already."""

    def out_of_range(self, partition: TopicPartition, offset: int | None, end: int | None) -> None:
        """See to a partition whose log does not have the next ``offset``; no record of it comes until it is sought.

        ``end`` is where the log was cut, where that is known; ``offset`` may be None where it was.
        """


class Source(Protocol):
    """Reads a share of some topics, and keeps the progress of a group."""

    def open(self, listener: RebalanceListener) -> None:
        """Begin to take part. The assignment arrives in ``poll``."""

    def poll(self, limit: int, timeout: float) -> Sequence[ConsumedRecord]:
        """Return up to ``limit`` records, those of a partition by offset; wait ``timeout`` seconds for the first."""

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        """Return no records of these partitions until ``resume``."""

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        """Go on after the last record that was returned."""

    def seek(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Go on at these offsets."""

    def committed(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, CommittedOffset]:
        """Return what was committed, once no transaction is open that could change it; absent: nothing ever was."""

    def beginning_offsets(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Ask for the offsets at which the logs of these partitions begin."""

    def end_offsets(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Ask for the offsets that the next records of these partitions will have."""

    def cached_end_offsets(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the ends that the last fetches told of; absent: none did."""

    def commit(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Commit, and return when the broker has it. Raises CommitFailed, MetadataTooLarge."""

    def close(self) -> None:
        """Leave. ``revoked`` is called for what is still assigned."""


class Sink(Protocol):
    """Writes outputs, at least once."""

    def write(self, output: Output, done: Callable[[Exception | None], None], *, alone: bool = False) -> None:
        """Take a record to write, without waiting for room. ``poll`` or ``flush`` calls ``done`` when every in-sync
        replica has it, or with the reason.

        OutputRefused is the reason where trying again would not help. Where it says ``with_others``, trying again in a
        batch of its own, ``alone``, tells whether that is so.
        """

    @property
    def is_full(self) -> bool:
        """Whether outputs wait that the client has no room for yet."""

    def poll(self) -> None:
        """Call what is due of the ``done``."""

    def flush(self, timeout: float) -> int:
        """Wait for all answers, and return how many are missing after ``timeout`` seconds."""

    def close(self) -> None:
        """Give up what is not written."""


class Transactions(Protocol):
    """Writes outputs, offsets and maps, all or none, one transaction for each input partition or virtual shard."""

    def open(self, partitions: Collection[TopicPartition]) -> None:
        """Become the one who may write these partitions' progress: whoever was, fails from now on."""

    def begin(
        self, work: Mapping[TopicPartition, tuple[Sequence[Output], CommittedOffset]]
    ) -> Callable[[], Mapping[TopicPartition, WasmlineError]]:
        """Return what carries out a transaction for each partition, and returns why those that failed did.

        CommitFailed, where the group has moved on, MetadataTooLarge and OutputRefused: it is not committed, and the
        partition stays open; one that is still open is aborted by the next. After any other error it is unknown what
        became of it: ``open`` settles that, and then ``committed`` tells.
        Another thread than the owner's may carry it out; partitions that are opened anew meanwhile are safe from it.
        """

    def close(self, partitions: Collection[TopicPartition] | None = None) -> None:
        """Let go of these partitions, or of all; what is open is aborted."""


class Backend(Protocol):
    """One member of one group, and what it writes."""

    @property
    def source(self) -> Source: ...

    @property
    def sink(self) -> Sink: ...

    @property
    def transactions(self) -> Transactions: ...
