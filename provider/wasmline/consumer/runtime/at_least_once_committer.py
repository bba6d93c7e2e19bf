"""Commits at least once: outputs are written as they come, and offsets are committed after them."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from wasmline.consumer.backends.base import Sink, Source
from wasmline.consumer.health import Counters
from wasmline.consumer.records import ConsumedRecord, Output
from wasmline.consumer.runtime.committer import Committer, Failures, Origin, committed_offset, no_answer_error
from wasmline.consumer.runtime.dead_letter_builder import DeadLetterBuilder
from wasmline.consumer.runtime.failure_log import forget_frames
from wasmline.consumer.state.column_queue import ColumnBatch
from wasmline.consumer.state.offsets import Commit
from wasmline.consumer.state.partition_work import PartitionWork
from wasmline.consumer.state.work_manager import WorkManager
from wasmline.errors import BrokerUnavailable, OutputRefused, RecordGivenUp, WasmlineError
from wasmline.topic_partitions import TopicPartition

if TYPE_CHECKING:
    from wasmline.consumer.columns import OutputColumns

logger = logging.getLogger(__name__)

ALL = object()
"""Stands for all shards of a partition, in place of one: a batch of columns has records of any."""

ALL_SHARDS = [ALL]


class AtLeastOnceCommitter(Committer):
    """Writes outputs as they come. Their records are done when every in-sync replica has all of the outputs.

    No record is done before an earlier one of its key, whose outputs may be acknowledged later: a consumer that began
    there would handle the earlier one after the later one.
    """

    def __init__(
        self, work: WorkManager, source: Source, sink: Sink, dead_letters: DeadLetterBuilder, counters: Counters
    ) -> None:
        super().__init__(work, dead_letters, counters)
        self._source = source
        self._sink = sink
        self._unwritten: dict[PartitionWork, WasmlineError] = {}
        """Work whose outputs were not written, with the error."""
        self._last: dict[PartitionWork, dict[Hashable, _OutputAcks]] = defaultdict(dict)
        """The last delivery of each shard that is not complete."""
        self._substitutes: list[tuple[Output, Callable[[Exception | None], None]]] = []
        """Dead letters of records with a rejected output."""
        self._fatal: Exception | None = None
        """Why nothing can be written in place of a rejected output."""

    @property
    def is_full(self) -> bool:
        return self._sink.is_full

    def open(self, partitions: Collection[TopicPartition]) -> None:
        pass

    def _take_results(
        self, work: PartitionWork, records: Sequence[ConsumedRecord], outputs: Sequence[tuple[Output, Origin]]
    ) -> None:
        if not outputs and not self._last.get(work):
            self.work.complete(work, records)
            return
        shards = [self.work.shard_of(record) for record in records]
        if not outputs:
            self.work.keep_waiting(work, records)
            self._delivery(work, partial(self.work.complete_waiting, work, records), 0, shards).delivered(0)
            return
        delivery = self._delivery(work, partial(self.work.complete, work, records), len(outputs), shards)
        alone = self.work.is_alone(work)
        for output, origin in outputs:
            self._sink.write(output, partial(delivery.answer, origin), alone=alone)

    def _take_columns(
        self, batch: ColumnBatch, outputs: OutputColumns, dead_letters: Sequence[tuple[Output, Origin]]
    ) -> None:
        complete = partial(self.work.complete_columns, batch)
        delivery = self._delivery(batch.work, complete, len(outputs) + len(dead_letters), ALL_SHARDS)
        rows = outputs.batch.column("row")
        origins: dict[int, Origin] = {}

        def answer(count: int, number: int, error: Exception | None) -> None:
            if error is None:
                delivery.delivered(count)
                return
            row = rows[number].as_py()
            if row not in origins:
                origins[row] = Origin((batch.columns.record(row),))
            delivery.answer(origins[row], error)

        if not len(outputs) and not dead_letters:
            delivery.delivered(0)
        elif len(outputs):
            self._sink.write_columns(outputs, answer)
        for dead_letter, origin in dead_letters:
            self._sink.write(dead_letter, partial(delivery.answer, origin))

    def _delivery(
        self, work: PartitionWork, complete: Callable[[], None], outputs: int, shards: Collection[Hashable]
    ) -> _OutputAcks:
        """Return a delivery that is complete only after those before it of its shards."""
        last = self._last[work]
        delivery = _OutputAcks(self, work, complete, outputs, shards, last)
        if shards is ALL_SHARDS:
            for each in last.values():
                delivery.follow(each)
            last.clear()
        elif ALL in last:
            delivery.follow(last[ALL])
        for shard in shards:
            if shard in last:
                delivery.follow(last[shard])
            last[shard] = delivery
        return delivery

    def unwritten(
        self,
        work: PartitionWork,
        origin: Origin,
        error: Exception,
        answer: Callable[[Origin, Exception | None], None],
    ) -> bool:
        """Write a substitute for an output that was not written; return whether that is possible.

        Otherwise its partition is reopened, or the consumer ends. Runs in a callback of the client, so it only queues.
        """
        forget_frames(error)
        if work.closed:  # the new owner's to process
            return False
        try:
            if isinstance(error, OutputRefused) and (substitute := self._substitute_or_run_alone(work, origin, error)):
                output, of = substitute
                self._substitutes.append((output, partial(answer, of)))
                return True
        except (RecordGivenUp, OutputRefused) as failure:
            self._fatal = failure
            return False
        if isinstance(error, BrokerUnavailable | OutputRefused):
            self._unwritten[work] = error
        else:
            self._fatal = error
        return False

    def _substitute_or_run_alone(
        self, work: PartitionWork, origin: Origin, refusal: OutputRefused
    ) -> tuple[Output, Origin] | None:
        """Do as ``_substitute`` does; if another output may be the rejected one, the record runs again, alone."""
        if refusal.with_others and origin.records:
            self.work.run_alone(work, max(record.offset for record in origin.records))
            return None
        return self._substitute(work, origin, refusal)

    def collect(self, timeout: float = 0.0) -> Failures:
        self._poll_answers(timeout)
        while self._substitutes:
            written, self._substitutes = self._substitutes, []
            for output, done in written:
                self._sink.write(output, done, alone=True)
            self._poll_answers(timeout)
        failed = super().collect(timeout)
        fatal, self._fatal = self._fatal, None
        if fatal is not None:
            raise fatal
        unwritten, self._unwritten = self._unwritten, {}
        return {**failed, **unwritten}

    def _poll_answers(self, timeout: float) -> None:
        if timeout > 0:
            self._sink.flush(timeout)
        else:
            self._sink.poll()

    def _handle_failures(self, failures: Failures) -> Failures:
        return failures

    def _handle_timeout(self, commits: Mapping[PartitionWork, Commit]) -> Failures:
        return dict.fromkeys(commits, no_answer_error())

    def _handle_error(self, commits: Mapping[PartitionWork, Commit], error: BaseException) -> Failures:
        if not isinstance(error, WasmlineError) or not error.retryable:
            raise error
        logger.warning("not committed yet: %s", error)  # the next commit includes it
        return {}

    def close(self, partitions: Collection[TopicPartition]) -> None:
        for work in [work for work in self._last if work.partition in partitions]:
            self._last.pop(work).clear()  # each of the deliveries refers to it

    def _commit_call(
        self, commits: Mapping[PartitionWork, Commit]
    ) -> Callable[[], Mapping[TopicPartition, WasmlineError]]:
        offsets = {work.partition: committed_offset(commit) for work, commit in commits.items()}

        def commit_call() -> Mapping[TopicPartition, WasmlineError]:
            self._source.commit(offsets)
            return {}

        return commit_call


class _OutputAcks:
    """Waits for the answers to the outputs of one call. A record with a rejected output is dead-lettered."""

    __slots__ = (
        "_before",
        "_committer",
        "_complete",
        "_dead_lettered",
        "_following",
        "_last",
        "_shards",
        "_waiting",
        "_work",
    )

    def __init__(
        self,
        committer: AtLeastOnceCommitter,
        work: PartitionWork,
        complete: Callable[[], None],
        outputs: int,
        shards: Collection[Hashable],
        last: dict[Hashable, _OutputAcks],
    ) -> None:
        """``last``: the last delivery of each shard; this one leaves it once it is complete."""
        self._committer = committer
        self._work = work
        self._complete = complete
        self._dead_lettered: dict[int, Origin] = {}
        """The records with a rejected output, by id."""
        self._waiting = outputs
        self._shards = shards
        self._last = last
        self._before = 0
        """Deliveries that are to be complete before it."""
        self._following: list[_OutputAcks] | None = None

    def follow(self, before: _OutputAcks) -> None:
        """Be complete only after another."""
        if before is not self:
            self._before += 1
            if before._following is None:
                before._following = []
            before._following.append(self)

    def answer(self, origin: Origin, error: Exception | None) -> None:
        if error is not None and id(origin) not in self._dead_lettered:
            if not self._committer.unwritten(self._work, origin, error, self.answer):
                return  # its records are never done, either
            self._dead_lettered[id(origin)] = origin
            self._waiting += 1
        self.delivered(1)

    def delivered(self, count: int) -> None:
        """Take the answers to so many outputs, which every in-sync replica has."""
        self._waiting -= count
        complete = [] if self._waiting or self._before else [self]
        while complete:
            each = complete.pop()
            each._complete()
            for shard in each._shards:
                if each._last.get(shard) is each:
                    del each._last[shard]
            for following in each._following or ():
                following._before -= 1
                if not following._waiting and not following._before:
                    complete.append(following)
            each._following = None
