"""How finished work becomes progress: outputs first and offsets after them, or both in one transaction."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from wasmline.consumer.backend import Sink, Source, Transactions
from wasmline.consumer.counts import PartitionCounts
from wasmline.consumer.errand import Errand
from wasmline.consumer.offsets import Commit
from wasmline.consumer.records import ConsumedRecord, Outcome, Output
from wasmline.consumer.work import PartitionWork, Work
from wasmline.errors import BrokerUnavailable, CommitFailed, NotAuthorized, OutputRefused, TopicNotFound, WasmlineError
from wasmline.records import CommittedOffset, TopicPartition

logger = logging.getLogger(__name__)

GIVE_UP = 20.0
"""Seconds after which a round counts as lost: clients were seen to hang on a broker that was restarted."""

Letter = Callable[[ConsumedRecord, Exception], Output]
"""Makes a dead letter of a record that is given up, or raises where there is no topic for it."""


class Progress(ABC):
    """Takes finished records and their outputs, and commits: a round at a time, beside the owner's other work."""

    def __init__(self, work: Work, letter: Letter, dead_letter_topic: str | None) -> None:
        self.work = work
        self.counts: dict[TopicPartition, PartitionCounts] = defaultdict(PartitionCounts)
        self._make_letter = letter
        self._dead_letter_topic = dead_letter_topic
        self._round: Errand[Mapping[TopicPartition, WasmlineError]] | None = None
        self._commits: dict[PartitionWork, Commit] = {}

    def commit(self, partitions: Collection[TopicPartition] | None = None) -> bool:
        """Begin to commit what is done of these partitions, or of all; say whether there is nothing left to begin."""
        if self._round is not None:
            return False
        self._commits = self.work.commits(partitions)
        if self._commits:
            self._round = Errand(self._begin(self._commits))
        return True

    @property
    def is_busy(self) -> bool:
        """Whether a round runs."""
        return self._round is not None

    def settle(self, timeout: float = 0.0) -> Mapping[PartitionWork, WasmlineError]:
        """Take the answers of the cluster, and wait up to ``timeout`` seconds for those that are missing.

        Return the work that has to begin anew, because it is unknown what became of its commit, and why.
        """
        if self._round is None:
            return {}
        is_done = self._round.wait(timeout)
        if not is_done and self._round.age < GIVE_UP:
            return {}
        answer, commits, self._round = self._round, self._commits, None
        if not is_done:
            return dict.fromkeys(commits, BrokerUnavailable(f"a commit was not answered for {GIVE_UP:.0f} s"))
        try:
            failures = answer.result()
        except WasmlineError as error:
            if not error.retryable:
                raise
            return self._interrupted(commits, error)
        for work, commit in commits.items():
            if work.partition not in failures:
                work.offsets.committed(commit)
        return {work: failures[work.partition] for work in commits if work.partition in failures}

    @property
    def is_full(self) -> bool:
        """Whether so many outputs wait for a commit that no more should be made."""
        return False

    @abstractmethod
    def begin(self, partitions: Collection[TopicPartition]) -> None:
        """Prepare to write the progress of these partitions, before it is read."""

    def finish(self, work: PartitionWork, records: Sequence[ConsumedRecord], outcome: Outcome) -> None:
        """Take records that are released and will not be tried again; they are done once their outputs are safe."""
        counts = self.counts[work.partition]
        counts.records += len(records)
        counts.outputs += len(outcome.outputs)
        for output in outcome.outputs:
            if output.topic == self._dead_letter_topic:
                counts.letter(output)
        self._finish(work, records, outcome)

    def letter(self, work: PartitionWork, record: ConsumedRecord, error: Exception) -> Output:
        """Return and count the dead letter of a record of which an output was refused."""
        letter = self._make_letter(record, error)
        self.counts[work.partition].letter(letter)
        return letter

    @abstractmethod
    def _finish(self, work: PartitionWork, records: Sequence[ConsumedRecord], outcome: Outcome) -> None: ...

    @abstractmethod
    def _interrupted(
        self, commits: Mapping[PartitionWork, Commit], error: WasmlineError
    ) -> Mapping[PartitionWork, WasmlineError]:
        """Return what of a round that ended with ``error`` has to begin anew."""

    @abstractmethod
    def end(self, partitions: Collection[TopicPartition]) -> None:
        """Let go of these partitions; what is not committed is somebody else's to do."""

    @abstractmethod
    def _begin(self, commits: Mapping[PartitionWork, Commit]) -> Callable[[], Mapping[TopicPartition, WasmlineError]]:
        """Return what carries these commits out, for another thread to call."""


class AtLeastOnce(Progress):
    """Writes outputs as they come. Their records are done when every in-sync replica has all of them."""

    def __init__(self, work: Work, source: Source, sink: Sink, letter: Letter, dead_letter_topic: str | None) -> None:
        super().__init__(work, letter, dead_letter_topic)
        self.failure: Exception | None = None
        """Why an output was not written, if one was not."""
        self._source = source
        self._sink = sink

    def begin(self, partitions: Collection[TopicPartition]) -> None:
        pass

    def _finish(self, work: PartitionWork, records: Sequence[ConsumedRecord], outcome: Outcome) -> None:
        if not outcome.outputs:
            self.work.complete(work, records)
            return
        delivery = _Delivery(self, work, records, len(outcome.outputs))
        for number, output in enumerate(outcome.outputs):
            self.write(output, partial(delivery.answer, outcome.row(number, len(records))))

    def write(self, output: Output, done: Callable[[Exception | None], None]) -> None:
        """Write one output."""
        self._sink.write(output, done)

    def settle(self, timeout: float = 0.0) -> Mapping[PartitionWork, WasmlineError]:
        if timeout > 0:
            self._sink.flush(timeout)
        else:
            self._sink.poll()
        failure, self.failure = self.failure, None
        if failure is not None:
            raise failure
        return super().settle(timeout)

    def _interrupted(
        self, commits: Mapping[PartitionWork, Commit], error: WasmlineError
    ) -> Mapping[PartitionWork, WasmlineError]:
        logger.warning("not committed yet: %s", error)  # the next round commits the same
        return {}

    def end(self, partitions: Collection[TopicPartition]) -> None:
        pass

    def _begin(self, commits: Mapping[PartitionWork, Commit]) -> Callable[[], Mapping[TopicPartition, WasmlineError]]:
        offsets = {work.partition: _committed(commit) for work, commit in commits.items()}

        def carry_out() -> Mapping[TopicPartition, WasmlineError]:
            self._source.commit(offsets)
            return {}

        return carry_out


class _Delivery:
    """Waits for the answers to the outputs of one batch. A record with an output that is refused is a dead letter."""

    __slots__ = ("_lettered", "_progress", "_records", "_waiting", "_work")

    def __init__(
        self, progress: AtLeastOnce, work: PartitionWork, records: Sequence[ConsumedRecord], outputs: int
    ) -> None:
        self._progress = progress
        self._work = work
        self._records = records
        self._lettered: set[int] = set()
        self._waiting = outputs

    def answer(self, row: int | None, error: Exception | None) -> None:
        if error is not None and (row is None or not isinstance(error, OutputRefused)):
            self._progress.failure = error
            return
        if error is not None and row is not None and row not in self._lettered:
            self._lettered.add(row)
            self._waiting += 1
            letter = self._progress.letter(self._work, self._records[row], error)
            self._progress.write(letter, partial(self.answer, None))
        self._waiting -= 1
        if not self._waiting:
            self._progress.work.complete(self._work, self._records)


class ExactlyOnce(Progress):
    """Keeps outputs until the commit, which writes them, the offsets and the maps in a transaction per partition."""

    def __init__(
        self, work: Work, transactions: Transactions, letter: Letter, dead_letter_topic: str | None, most: int
    ) -> None:
        super().__init__(work, letter, dead_letter_topic)
        self._transactions = transactions
        self._most = most
        self._outputs: dict[PartitionWork, list[_Waiting]] = defaultdict(list)
        """Outputs that wait for a commit."""
        self._sending: dict[PartitionWork, list[_Waiting]] = {}
        """Those of the round that runs."""

    @property
    def is_full(self) -> bool:
        return sum(map(len, self._outputs.values())) >= self._most

    def begin(self, partitions: Collection[TopicPartition]) -> None:
        self._transactions.open(partitions)

    def _finish(self, work: PartitionWork, records: Sequence[ConsumedRecord], outcome: Outcome) -> None:
        for number, output in enumerate(outcome.outputs):
            row = outcome.row(number, len(records))
            self._outputs[work].append(_Waiting(output, None if row is None else records[row]))
        self.work.complete(work, records)

    def settle(self, timeout: float = 0.0) -> Mapping[PartitionWork, WasmlineError]:
        failures = super().settle(timeout)
        for work, error in failures.items():
            if work.closed:
                continue
            if isinstance(error, OutputRefused):
                self._outputs[work] = [*self._without(work, error), *self._outputs[work]]
            elif isinstance(error, CommitFailed):
                logger.info("tried again with the next commit: %s", error)
                self._outputs[work] = [*self._sending[work], *self._outputs[work]]
            elif isinstance(error, TopicNotFound | NotAuthorized):
                raise error
        return {work: error for work, error in failures.items() if not isinstance(error, CommitFailed | OutputRefused)}

    def _interrupted(
        self, commits: Mapping[PartitionWork, Commit], error: WasmlineError
    ) -> Mapping[PartitionWork, WasmlineError]:
        return dict.fromkeys(commits, error)  # another round would commit progress without these outputs

    def end(self, partitions: Collection[TopicPartition]) -> None:
        for work in [work for work in self._outputs if work.partition in partitions]:
            del self._outputs[work]
        self._transactions.close(partitions)

    def _begin(self, commits: Mapping[PartitionWork, Commit]) -> Callable[[], Mapping[TopicPartition, WasmlineError]]:
        for work in [work for work in self._outputs if work.closed]:
            del self._outputs[work]
        self._sending = {work: self._outputs.pop(work, []) for work in commits}
        transactions = {
            work.partition: ([waiting.output for waiting in self._sending[work]], _committed(commit))
            for work, commit in commits.items()
        }
        return self._transactions.begin(transactions)

    def _without(self, work: PartitionWork, error: OutputRefused) -> list[_Waiting]:
        """Return what was sent with a dead letter for the outputs of the record of which one was refused."""
        refused = self._sending[work][error.place].record
        if refused is None:
            raise error
        others = [waiting for waiting in self._sending[work] if waiting.record is not refused]
        return [*others, _Waiting(self.letter(work, refused, error), None)]


class _Waiting(NamedTuple):
    """An output that waits for a commit, and the record it comes from, where that is known."""

    output: Output
    record: ConsumedRecord | None


def _committed(commit: Commit) -> CommittedOffset:
    return CommittedOffset(commit.offset, commit.metadata)
