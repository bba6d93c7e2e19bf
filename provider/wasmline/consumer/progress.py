"""How finished work becomes progress: outputs first and offsets after them, or both in one transaction."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial

from wasmline.consumer.backend import Committed, Sink, Source, Transactions
from wasmline.consumer.engines import Outcome
from wasmline.consumer.offsets import Commit
from wasmline.consumer.records import ConsumedRecord, Output
from wasmline.consumer.work import GivenUp, PartitionWork, Work
from wasmline.errors import OutputRefused, WasmlineError
from wasmline.records import TopicPartition

logger = logging.getLogger(__name__)

GiveUp = Callable[[PartitionWork, GivenUp], None]
"""Takes a record whose output can never be written; it is not done before it comes back through ``finish``."""


class Progress(ABC):
    """Takes finished records and their outputs, and commits: a round at a time, beside the owner's other work."""

    def __init__(self, work: Work, give_up: GiveUp) -> None:
        self.work = work
        self.give_up = give_up
        self._pool = ThreadPoolExecutor(1, "wasmline-commit")
        self._round: Future[Mapping[TopicPartition, WasmlineError]] | None = None
        self._commits: dict[PartitionWork, Commit] = {}

    def commit(self, partitions: Collection[TopicPartition] | None = None) -> bool:
        """Begin to commit what is done of these partitions, or of all; say whether there is nothing left to begin."""
        if self._round is not None:
            return False
        self._commits = self.work.commits(partitions)
        if self._commits:
            self._round = self._pool.submit(self._begin(self._commits))
        return True

    @property
    def is_busy(self) -> bool:
        """Whether a round runs."""
        return self._round is not None

    def settle(self, timeout: float = 0.0) -> Mapping[PartitionWork, WasmlineError]:
        """Take the answers of the cluster, and wait up to ``timeout`` seconds for those that are missing.

        Return the work that has to begin anew, because it is unknown what became of its commit, and why. Errors that
        trying again may mend are logged: the next round commits the same.
        """
        if self._round is None:
            return {}
        if timeout > 0:
            wait([self._round], timeout)
        if not self._round.done():
            return {}
        answer, commits, self._round = self._round, self._commits, None
        try:
            failures = answer.result()
        except WasmlineError as error:
            if not error.retryable:
                raise
            logger.warning("not committed yet: %s", error)
            return {}
        for work, commit in commits.items():
            if work.partition not in failures:
                work.offsets.committed(commit)
        return {work: failures[work.partition] for work in commits if work.partition in failures}

    def close(self) -> None:
        """End the thread that commits."""
        self._pool.shutdown(wait=False)

    @property
    def is_full(self) -> bool:
        """Whether so many outputs wait for a commit that no more should be made."""
        return False

    @abstractmethod
    def begin(self, partitions: Collection[TopicPartition]) -> None:
        """Prepare to write the progress of these partitions, before it is read."""

    @abstractmethod
    def finish(self, work: PartitionWork, records: Sequence[ConsumedRecord], outcome: Outcome) -> None:
        """Take records that are released, all of which succeeded; they count as done once their outputs are safe."""

    @abstractmethod
    def end(self, partitions: Collection[TopicPartition]) -> None:
        """Let go of these partitions; what is not committed is somebody else's to do."""

    @abstractmethod
    def _begin(self, commits: Mapping[PartitionWork, Commit]) -> Callable[[], Mapping[TopicPartition, WasmlineError]]:
        """Return what carries these commits out, for another thread to call."""


class AtLeastOnce(Progress):
    """Writes outputs as they come. Their records are done when every in-sync replica has all of them."""

    def __init__(self, work: Work, source: Source, sink: Sink, give_up: GiveUp) -> None:
        super().__init__(work, give_up)
        self.failure: Exception | None = None
        """Why an output was not written, if one was not."""
        self._source = source
        self._sink = sink

    def begin(self, partitions: Collection[TopicPartition]) -> None:
        pass

    def finish(self, work: PartitionWork, records: Sequence[ConsumedRecord], outcome: Outcome) -> None:
        if not outcome.outputs:
            self.work.complete(work, records)
            return
        delivery = _Delivery(self, work, records, len(outcome.outputs))
        for number, output in enumerate(outcome.outputs):
            self._sink.write(output, partial(delivery.answer, outcome.row(number, len(records))))

    def settle(self, timeout: float = 0.0) -> Mapping[PartitionWork, WasmlineError]:
        if timeout > 0:
            self._sink.flush(timeout)
        else:
            self._sink.poll()
        if self.failure is not None:
            raise self.failure
        return super().settle(timeout)

    def end(self, partitions: Collection[TopicPartition]) -> None:
        pass

    def _begin(self, commits: Mapping[PartitionWork, Commit]) -> Callable[[], Mapping[TopicPartition, WasmlineError]]:
        offsets = {work.partition: _committed(commit) for work, commit in commits.items()}

        def carry_out() -> Mapping[TopicPartition, WasmlineError]:
            self._source.commit(offsets)
            return {}

        return carry_out


class _Delivery:
    """Waits for the answers to the outputs of one batch."""

    __slots__ = ("_progress", "_records", "_refused", "_waiting", "_work")

    def __init__(
        self, progress: AtLeastOnce, work: PartitionWork, records: Sequence[ConsumedRecord], outputs: int
    ) -> None:
        self._progress = progress
        self._work = work
        self._records = records
        self._refused: set[int] = set()
        self._waiting = outputs

    def answer(self, row: int | None, error: Exception | None) -> None:
        if error is not None and (row is None or not isinstance(error, OutputRefused)):
            self._progress.failure = error
            return
        if error is not None and row is not None and row not in self._refused:
            self._refused.add(row)
            self._progress.give_up(self._work, GivenUp(self._records[row], error))
        self._waiting -= 1
        if not self._waiting:
            done = [record for row, record in enumerate(self._records) if row not in self._refused]
            self._progress.work.complete(self._work, done)


class ExactlyOnce(Progress):
    """Keeps outputs until the commit, which writes them, the offsets and the maps in a transaction per partition."""

    def __init__(self, work: Work, transactions: Transactions, give_up: GiveUp, most: int) -> None:
        super().__init__(work, give_up)
        self._transactions = transactions
        self._most = most
        self._outputs: dict[PartitionWork, list[tuple[Output, int | None]]] = defaultdict(list)
        """Outputs that wait for a commit, and the offsets of their records, where these are known."""
        self._sending: dict[PartitionWork, list[tuple[Output, int | None]]] = {}
        """Those of the round that runs."""
        self._refused: dict[tuple[TopicPartition, int], OutputRefused] = {}
        """Records whose outputs made a transaction fail: the next time they are given up."""

    @property
    def is_full(self) -> bool:
        return sum(map(len, self._outputs.values())) >= self._most

    def begin(self, partitions: Collection[TopicPartition]) -> None:
        self._transactions.open(partitions)

    def finish(self, work: PartitionWork, records: Sequence[ConsumedRecord], outcome: Outcome) -> None:
        refused = self._refusals(work, records) if self._refused else {}
        for number, output in enumerate(outcome.outputs):
            row = outcome.row(number, len(records))
            if row not in refused:
                self._outputs[work].append((output, None if row is None else records[row].offset))
        self.work.complete(work, [record for row, record in enumerate(records) if row not in refused])
        for row, error in refused.items():
            self.give_up(work, GivenUp(records[row], error))

    def settle(self, timeout: float = 0.0) -> Mapping[PartitionWork, WasmlineError]:
        failures = super().settle(timeout)
        for work, error in failures.items():
            if isinstance(error, OutputRefused):
                offset = self._sending[work][error.place][1]
                if offset is None:
                    raise error
                self._refused[work.partition, offset] = error
        return failures

    def end(self, partitions: Collection[TopicPartition]) -> None:
        if self._round is not None:
            wait([self._round])  # its calls end by themselves, and until then its producers are in use
        for work in [work for work in self._outputs if work.partition in partitions]:
            del self._outputs[work]
        self._transactions.close(partitions)

    def _begin(self, commits: Mapping[PartitionWork, Commit]) -> Callable[[], Mapping[TopicPartition, WasmlineError]]:
        self._sending = {work: self._outputs.pop(work, []) for work in commits}
        transactions = {
            work.partition: ([output for output, _ in self._sending[work]], _committed(commit))
            for work, commit in commits.items()
        }
        return lambda: self._transactions.commit(transactions)

    def _refusals(self, work: PartitionWork, records: Iterable[ConsumedRecord]) -> dict[int, OutputRefused]:
        found = {row: self._refused.pop((work.partition, record.offset), None) for row, record in enumerate(records)}
        return {row: error for row, error in found.items() if error is not None}


def _committed(commit: Commit) -> Committed:
    return Committed(commit.offset, commit.metadata)
