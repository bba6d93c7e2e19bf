"""Turns finished work into progress: takes results, starts commits, and handles their outcome."""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from wasmline.background_call import BackgroundCall
from wasmline.consumer.health import Counters
from wasmline.consumer.partition_counters import PartitionCounters
from wasmline.consumer.records import BatchResult, ConsumedRecord, Output
from wasmline.consumer.runtime.dead_letter_builder import DeadLetterBuilder
from wasmline.consumer.runtime.failure_log import forget_frames
from wasmline.consumer.state.column_queue import ColumnBatch
from wasmline.consumer.state.offsets import Commit
from wasmline.consumer.state.partition_work import PartitionWork
from wasmline.consumer.state.work_manager import WorkManager
from wasmline.errors import BrokerUnavailable, MetadataTooLarge, OutputRefused, WasmlineError
from wasmline.topic_partitions import CommittedOffset, TopicPartition

if TYPE_CHECKING:
    from wasmline.consumer.columns import OutputColumns

logger = logging.getLogger(__name__)

COMMIT_TIMEOUT_S = 20.0
"""Seconds after which a commit counts as lost: clients were seen to hang on a broker that was restarted."""

Failures = Mapping[PartitionWork, WasmlineError]
"""Work whose partition has to be reopened, and why."""


class Origin(NamedTuple):
    """The records that an output may come from; for a dead letter, the record and its failure."""

    records: Sequence[ConsumedRecord]
    error: Exception | None = None
    is_truncated: bool = False
    """The dead letter was truncated because its topic did not accept it whole."""


class Committer(ABC):
    """Takes finished records and their outputs, and commits: one commit at a time, beside the control loop."""

    def __init__(self, work: WorkManager, dead_letters: DeadLetterBuilder, counters: Counters) -> None:
        self.work = work
        self._counters = counters
        self.counts: dict[TopicPartition, PartitionCounters] = defaultdict(PartitionCounters)
        self._dead_letters = dead_letters
        self._commits: dict[PartitionWork, Commit] = {}
        """The partitions of the running commit. Set before it starts, and reset once its answer is handled, so that an
        exception between any two steps leaves a commit that is known to be in doubt."""
        self._held_back: set[TopicPartition] = set()
        self._running: BackgroundCall[Mapping[TopicPartition, WasmlineError]] | None = None

    def commit(self, partitions: Collection[TopicPartition] | None = None) -> bool:
        """Start a commit of what is done of these partitions, or of all; return whether nothing is left to start."""
        if self._commits:
            return False
        if commits := self.work.commits(partitions):
            commit_call = self._commit_call(commits)
            self._commits = commits
            self._running = BackgroundCall(commit_call)
        self._warn_of_large_maps()
        return True

    def _warn_of_large_maps(self) -> None:
        """Log each offset map that is too large, once until it fits again."""
        held_back = {work.partition for work in self.work if work.offsets.is_held_back}
        for partition in held_back - self._held_back:
            logger.warning(
                "%s: the offset map is larger than the broker's limit, so that a part of the records done is not "
                "committed yet; it is when records that are slow or fail are done",
                partition,
            )
        self._held_back = held_back

    @property
    def is_busy(self) -> bool:
        """Whether a commit runs."""
        return bool(self._commits)

    def collect(self, timeout: float = 0.0) -> Failures:
        """Take the answers of the cluster, and wait up to ``timeout`` seconds for those that are missing.

        Return the work that has to be reopened, because the result of its commit is unknown, and why.
        """
        commits, running = self._commits, self._running
        if not commits:
            return {}
        if running is not None and not running.wait(timeout):
            if running.age < COMMIT_TIMEOUT_S:
                return {}
            self._running, self._commits = None, {}
            self._counters.failed_commits += len(commits)
            return self._handle_timeout(commits)
        try:
            if running is None:
                raise BrokerUnavailable("a commit was interrupted as it began")
            answers = running.result()
        except BaseException as error:
            self._running, self._commits = None, {}
            self._counters.failed_commits += len(commits)
            self._limit_maps(dict.fromkeys(commits, error), commits)
            failed = self._handle_error(commits, error)
            forget_frames(error)
            return failed
        for work, commit in commits.items():
            if work.partition not in answers:
                self._mark_committed(work, commit)
        failures = {work: answers[work.partition] for work in commits if work.partition in answers}
        self._counters.failed_commits += len(failures)
        self._limit_maps(failures, commits)
        try:
            failed = self._handle_failures(failures)
        except WasmlineError:
            self._running, self._commits = None, {}
            raise
        self._running, self._commits = None, {}
        for failure in failures.values():
            forget_frames(failure)
        return failed

    def _limit_maps(
        self, failures: Mapping[PartitionWork, BaseException], commits: Mapping[PartitionWork, Commit]
    ) -> None:
        """Halve the size of offset maps where the broker rejected one."""
        rejected = [commits[work] for work, error in failures.items() if isinstance(error, MetadataTooLarge)]
        if rejected:
            longest = max(len(commit.metadata) for commit in rejected)
            self.work.limit_maps(longest // 2)
            logger.warning(
                "the broker rejected an offset map of %d characters, and gets shorter ones: more waits for records "
                "that are slow or fail; its offset.metadata.max.bytes should be %d",
                longest,
                self.work.map_limits.max_metadata_length,
            )

    @property
    def is_full(self) -> bool:
        """Whether so many outputs wait for a commit that no record should be dispatched."""
        return False

    @abstractmethod
    def open(self, partitions: Collection[TopicPartition]) -> None:
        """Prepare to write the progress of these partitions, before it is read."""

    def add_results(self, work: PartitionWork, records: Sequence[ConsumedRecord], result: BatchResult) -> None:
        """Take records that are not retried; they are done once their outputs are safe."""
        counts = self.counts[work.partition]
        counts.records += len(records)
        if not result.outputs:
            self._take_results(work, records, ())
            return
        counts.outputs += len(result.outputs)
        for output in result.outputs:
            if output.topic == self._dead_letters.topic:
                counts.count_dead_letter(output.headers)
        self._take_results(work, records, [*zip(result.outputs, _origins(records, result), strict=True)])

    def takes_dead_letters(self, work: PartitionWork) -> bool:
        """Return whether records of a partition can be dead-lettered."""
        return self._dead_letters.topic not in (None, work.partition.topic)

    def add_columns(
        self, batch: ColumnBatch, outputs: OutputColumns, failed: Sequence[tuple[ConsumedRecord, Exception]]
    ) -> None:
        """Take a released batch, which is done once its outputs are safe, and the dead letters of its failed records.

        Raises RecordGivenUp unless ``takes_dead_letters``.
        """
        dead_letters = [(self._dead_letters.build(record, error), Origin((record,), error)) for record, error in failed]
        counts = self.counts[batch.work.partition]
        counts.records += len(batch.columns)
        counts.outputs += len(outputs) + len(dead_letters)
        rejections = outputs.of_topic(self._dead_letters.topic)
        for headers in [*rejections.headers, *(dead_letter.headers for dead_letter, _ in dead_letters)]:
            counts.count_dead_letter(headers)
        self._take_columns(batch, outputs, dead_letters)

    def add_dead_letter(self, work: PartitionWork, record: ConsumedRecord, error: Exception) -> None:
        """Take a released record to dead-letter: it is done once its dead letter is safe. Raises RecordGivenUp."""
        dead_letter = self._dead_letters.build(record, error)
        counts = self.counts[work.partition]
        counts.records += 1
        counts.outputs += 1
        counts.count_dead_letter(dead_letter.headers)
        self._take_results(work, [record], [(dead_letter, Origin((record,), error))])

    @abstractmethod
    def _take_results(
        self, work: PartitionWork, records: Sequence[ConsumedRecord], outputs: Sequence[tuple[Output, Origin]]
    ) -> None: ...

    @abstractmethod
    def _take_columns(
        self, batch: ColumnBatch, outputs: OutputColumns, dead_letters: Sequence[tuple[Output, Origin]]
    ) -> None: ...

    def _substitute(self, work: PartitionWork, origin: Origin, refusal: OutputRefused) -> tuple[Output, Origin] | None:
        """Return the record to write in place of a rejected output and of all other outputs of its record.

        That is a dead letter, and a truncated one in place of a dead letter. None where the output may come from one of
        several records: they run again, one by one. Raises RecordGivenUp without a dead-letter topic, and ``refusal``
        where nothing smaller can be written.
        """
        if origin.is_truncated or not origin.records:
            raise refusal
        record = origin.records[0]
        if origin.error is not None:
            return self._dead_letters.truncated(record, origin.error), origin._replace(is_truncated=True)
        if len(origin.records) > 1:
            self.work.run_alone(work, max(record.offset for record in origin.records))
            return None
        dead_letter = self._dead_letters.build(record, refusal)
        self.counts[work.partition].count_dead_letter(dead_letter.headers)
        return dead_letter, Origin((record,), refusal)

    def _mark_committed(self, work: PartitionWork, commit: Commit) -> None:
        """Record that the cluster has ``commit``; idempotent."""
        work.offsets.committed(commit)
        self.counts[work.partition].committed_at = time.time()

    @abstractmethod
    def _handle_failures(self, failures: Failures) -> Failures:
        """Take the errors of some partitions of a commit; return the work that has to be reopened."""

    @abstractmethod
    def _handle_timeout(self, commits: Mapping[PartitionWork, Commit]) -> Failures:
        """Return the work of an unanswered commit that has to be reopened."""

    @abstractmethod
    def _handle_error(self, commits: Mapping[PartitionWork, Commit], error: BaseException) -> Failures:
        """Return the work of a commit that ended with ``error`` that has to be reopened, or raise ``error``."""

    @abstractmethod
    def close(self, partitions: Collection[TopicPartition]) -> None:
        """Release these partitions; what is not committed is the next owner's to process."""

    @abstractmethod
    def _commit_call(
        self, commits: Mapping[PartitionWork, Commit]
    ) -> Callable[[], Mapping[TopicPartition, WasmlineError]]:
        """Return the function that makes these commits, for another thread to call."""


def _origins(records: Sequence[ConsumedRecord], result: BatchResult) -> Sequence[Origin]:
    """Return the origin of each output of a call; the outputs of one record share an Origin."""
    if result.rows is None:
        return [Origin(records)] * len(result.outputs)
    known = {row: Origin(records if row is None else (records[row],)) for row in set(result.rows)}
    return [known[row] for row in result.rows]


def no_answer_error() -> BrokerUnavailable:
    """Return the error of a commit that counts as lost."""
    return BrokerUnavailable(f"a commit was not answered for {COMMIT_TIMEOUT_S:.0f} s")


def committed_offset(commit: Commit) -> CommittedOffset:
    """Return a commit in the form that a cluster stores."""
    return CommittedOffset(commit.offset, commit.metadata)
