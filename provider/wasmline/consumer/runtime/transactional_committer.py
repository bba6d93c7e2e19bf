"""Commits exactly once: outputs, offset and offset map of a partition in one transaction."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from wasmline.consumer.backends.base import Transactions
from wasmline.consumer.health import Counters
from wasmline.consumer.records import ConsumedRecord, Output
from wasmline.consumer.runtime.committer import Committer, Failures, Origin, committed_offset, no_answer_error
from wasmline.consumer.runtime.dead_letter_builder import DeadLetterBuilder
from wasmline.consumer.state.column_queue import ColumnBatch
from wasmline.consumer.state.offsets import Commit
from wasmline.consumer.state.partition_work import PartitionWork
from wasmline.consumer.state.work_manager import WorkManager
from wasmline.errors import CommitFailed, NotAuthorized, OutputRefused, RecordGivenUp, TopicNotFound, WasmlineError
from wasmline.topic_partitions import TopicPartition

if TYPE_CHECKING:
    from wasmline.consumer.columns import OutputColumns

logger = logging.getLogger(__name__)

WARNED_ABORTS = 8
"""Transactions of a partition in a row that are aborted before a warning says so."""


class TransactionalCommitter(Committer):
    """Keeps outputs until they are committed, in one transaction for each partition with its offset and its map.

    A transaction writes the outputs of the moment whose offset and map it commits. They are kept until the cluster has
    confirmed them; while their state is unknown, nothing more of the work is committed.
    """

    def __init__(
        self,
        work: WorkManager,
        transactions: Transactions,
        dead_letters: DeadLetterBuilder,
        counters: Counters,
        max_outputs: int,
        max_bytes: int,
    ) -> None:
        super().__init__(work, dead_letters, counters)
        self._transactions = transactions
        self._max_outputs = max_outputs
        self._max_bytes = max_bytes
        self._outputs: dict[PartitionWork, _Outputs] = defaultdict(_Outputs)
        self._blocked_shards: dict[PartitionWork, set[Hashable]] = defaultdict(set)
        """Shards of which nothing more is done, because an output of theirs was rejected."""
        self._sent: dict[PartitionWork, list[_Waiting | _WaitingColumns]] = {}
        """The contents of the last commit, but for what was committed."""

    @property
    def is_full(self) -> bool:
        outputs = self._outputs.values()
        return (
            sum(each.count for each in outputs) >= self._max_outputs
            or sum(each.bytes for each in outputs) >= self._max_bytes
        )

    def open(self, partitions: Collection[TopicPartition]) -> None:
        self._transactions.open(partitions)

    def _take_results(
        self, work: PartitionWork, records: Sequence[ConsumedRecord], outputs: Sequence[tuple[Output, Origin]]
    ) -> None:
        if work.closed or work.uncertain:
            return
        blocked = self._blocked_shards.get(work)
        if blocked and any(self.work.shard_of(each) in blocked for each in records):
            return
        work.uncertain = True  # an exception in here would separate the records from their outputs
        self.work.complete(work, records)
        if outputs:
            self._outputs[work].add(outputs, work.offsets.revision)
        work.uncertain = False

    def _take_columns(
        self, batch: ColumnBatch, outputs: OutputColumns, dead_letters: Sequence[tuple[Output, Origin]]
    ) -> None:
        work = batch.work
        if work.closed or work.uncertain or work in self._blocked_shards:
            return
        work.uncertain = True  # an exception in here would separate the records from their outputs
        self.work.complete_columns(batch)
        if len(outputs):
            self._outputs[work].add_columns(outputs, batch, work.offsets.revision)
        if dead_letters:
            self._outputs[work].add(dead_letters, work.offsets.revision)
        work.uncertain = False

    def _handle_failures(self, failures: Failures) -> Failures:
        again: dict[PartitionWork, WasmlineError] = {}
        fatal: WasmlineError | None = None
        for work, error in failures.items():
            if work.closed or isinstance(error, CommitFailed):
                self._log_retry(work, error)
                continue
            try:
                if isinstance(error, OutputRefused) and self._put_substitute(work, error):
                    continue
            except RecordGivenUp as failure:
                fatal = failure
                continue
            except OutputRefused as failure:
                fatal = failure
            work.uncertain = True
            if isinstance(error, TopicNotFound | NotAuthorized):
                fatal = error
            again[work] = error
        if fatal is not None:
            raise fatal
        return again

    def _log_retry(self, work: PartitionWork, error: WasmlineError) -> None:
        """Log a transaction that is retried; from the WARNED_ABORTS-th in a row on, as a warning, ever more rarely."""
        counts = self.counts[work.partition]
        counts.aborts += not work.closed
        if counts.aborts >= WARNED_ABORTS and counts.aborts.bit_count() == 1:
            text = "%s: nothing was committed in %d transactions in a row, which are retried: %s"
            logger.warning(text, work.partition, counts.aborts, error)
        else:
            logger.info("outputs are retried with the next commit: %s", error)

    def _put_substitute(self, work: PartitionWork, error: OutputRefused) -> bool:
        """Replace a rejected output; False: its partition has to be reopened.

        Without a dead-letter topic its record becomes incomplete again, as ``_undo`` says, and RecordGivenUp is raised:
        the transaction was aborted, and so was every one that had the record as done.
        """
        rejected = self._sent[work][error.place]
        if isinstance(rejected, _WaitingColumns):
            self._outputs[work].divide(rejected)  # the next transaction tells which of them it is
            return True
        try:
            substitute = self._substitute(work, rejected.origin, error)
        except RecordGivenUp:
            self._undo(work, rejected)
            raise
        if substitute is not None:
            self._outputs[work].replace(rejected, _Waiting(*substitute, rejected.revision))
        return substitute is not None

    def _undo(self, work: PartitionWork, rejected: _Waiting) -> None:
        """Make a record incomplete again, and those done after it whose outputs would be written before its own.

        Outputs of several records tie these together: none of them is done without the others.
        """
        outputs = self._outputs[work]
        # The records of columns are not told apart: nothing more of the partition is committed.
        is_uncertain = work.uncertain or any(isinstance(each, _WaitingColumns) for each in outputs.waiting)
        work.uncertain = True  # an exception in here would separate the records from their outputs
        waiting = {id(each.origin): each.origin for each in outputs.waiting if isinstance(each, _Waiting)}
        waiting.pop(id(rejected.origin), None)
        firsts: dict[Hashable, int] = {}  # the first incomplete offset of each shard
        undone: dict[int, Origin] = {}
        found = {id(rejected.origin): rejected.origin}
        while found:
            undone.update(found)
            for origin in found.values():
                for record in origin.records:
                    shard = self.work.shard_of(record)
                    firsts[shard] = min(record.offset, firsts.get(shard, record.offset))
            found = {number: origin for number, origin in waiting.items() if self._follows(origin, firsts)}
            for number in found:
                del waiting[number]
        self._blocked_shards[work].update(firsts)
        outputs.drop_of(undone)
        work.offsets.undo(*{record.offset for origin in undone.values() for record in origin.records})
        work.uncertain = is_uncertain

    def _follows(self, origin: Origin, firsts: Mapping[Hashable, int]) -> bool:
        """Return whether one of its records is the first incomplete one of its shard, or a later one."""
        shards = ((firsts.get(self.work.shard_of(record)), record.offset) for record in origin.records)
        return any(first is not None and offset >= first for first, offset in shards)

    def _handle_timeout(self, commits: Mapping[PartitionWork, Commit]) -> Failures:
        return self._handle_error(commits, no_answer_error())

    def _handle_error(self, commits: Mapping[PartitionWork, Commit], error: BaseException) -> Failures:
        for work in commits:
            work.uncertain = True  # another commit might write its outputs once more, or not at all
        if not isinstance(error, WasmlineError) or not error.retryable:
            raise error
        return dict.fromkeys(commits, error)

    def _mark_committed(self, work: PartitionWork, commit: Commit) -> None:
        super()._mark_committed(work, commit)
        self.counts[work.partition].aborts = 0
        self._sent.pop(work, None)
        if work in self._outputs:
            self._outputs[work].drop(commit.revision)

    def close(self, partitions: Collection[TopicPartition]) -> None:
        for work in [work for work in self._outputs if work.partition in partitions]:
            del self._outputs[work]
        for work in [work for work in self._blocked_shards if work.partition in partitions]:
            del self._blocked_shards[work]
        self._transactions.close(partitions)

    def _commit_call(
        self, commits: Mapping[PartitionWork, Commit]
    ) -> Callable[[], Mapping[TopicPartition, WasmlineError]]:
        self._sent = {work: list(self._outputs[work].until(commit.revision)) for work, commit in commits.items()}
        transactions = {
            work.partition: ([waiting.output for waiting in self._sent[work]], committed_offset(commit))
            for work, commit in commits.items()
        }
        return self._transactions.begin(transactions)


class _Waiting(NamedTuple):
    """An output that waits for a commit of its revision or a later one."""

    output: Output
    origin: Origin
    revision: int


class _WaitingColumns(NamedTuple):
    """The outputs of a batch that wait for a commit of its revision or a later one."""

    output: OutputColumns
    batch: ColumnBatch
    revision: int

    def divided(self) -> list[_Waiting]:
        """Return the outputs one by one; those of one record share an Origin."""
        origins: dict[int, Origin] = {}
        found = []
        for output, row in zip(self.output.outputs(), self.output.rows, strict=True):
            if row not in origins:
                origins[row] = Origin((self.batch.columns.record(row),))
            found.append(_Waiting(output, origins[row], self.revision))
        return found


class _Outputs:
    """The outputs of one partition that are not known to be committed, by their revisions."""

    __slots__ = ("bytes", "waiting")

    def __init__(self) -> None:
        self.waiting: list[_Waiting | _WaitingColumns] = []
        self.bytes = 0

    @property
    def count(self) -> int:
        """The number of outputs."""
        return sum(len(each.output) if isinstance(each, _WaitingColumns) else 1 for each in self.waiting)

    def add(self, outputs: Sequence[tuple[Output, Origin]], revision: int) -> None:
        """Keep the outputs of records done at ``revision``, the latest."""
        for output, origin in outputs:
            self.waiting.append(_Waiting(output, origin, revision))
            self.bytes += output.size

    def add_columns(self, outputs: OutputColumns, batch: ColumnBatch, revision: int) -> None:
        """Keep the outputs of a batch done at ``revision``, the latest."""
        self.waiting.append(_WaitingColumns(outputs, batch, revision))
        self.bytes += outputs.size

    def divide(self, columns: _WaitingColumns) -> None:
        """Keep the outputs of a batch one by one."""
        kept: list[_Waiting | _WaitingColumns] = []
        for each in self.waiting:
            kept.extend(columns.divided() if each is columns else [each])
        self._keep(kept)

    def until(self, revision: int) -> Iterator[_Waiting | _WaitingColumns]:
        """Return the outputs of a commit of ``revision``."""
        return (each for each in self.waiting if each.revision <= revision)

    def drop(self, revision: int) -> None:
        """Drop the outputs committed with ``revision``; idempotent."""
        self._keep([each for each in self.waiting if each.revision > revision])

    def replace(self, rejected: _Waiting, substitute: _Waiting) -> None:
        """Write ``substitute`` in place of an output, and no other output of its record."""
        self._keep(
            [
                substitute if each is rejected else each
                for each in self.waiting
                if each is rejected or isinstance(each, _WaitingColumns) or each.origin is not rejected.origin
            ]
        )

    def drop_of(self, origins: Mapping[int, Origin]) -> None:
        """Drop the outputs with these origins, given by id."""
        self._keep(
            [each for each in self.waiting if isinstance(each, _WaitingColumns) or id(each.origin) not in origins]
        )

    def _keep(self, waiting: list[_Waiting | _WaitingColumns]) -> None:
        self.waiting = waiting
        self.bytes = sum(each.output.size for each in waiting)
