"""The control loop: polls, dispatches, collects and commits. Its thread alone touches the consumer's work."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from queue import Empty
from typing import cast

from wasmline.consumer.backends.base import Backend
from wasmline.consumer.health import ConsumerHealth, Counters, State, partition_health, waiting_keys
from wasmline.consumer.options import ConsumerOptions, Delivery
from wasmline.consumer.records import BatchResult, ConsumedRecord
from wasmline.consumer.runtime.at_least_once_committer import AtLeastOnceCommitter
from wasmline.consumer.runtime.committer import Committer
from wasmline.consumer.runtime.dead_letter_builder import DeadLetterBuilder
from wasmline.consumer.runtime.dispatch_limit import DispatchLimit
from wasmline.consumer.runtime.executors import Executor, Mailbox
from wasmline.consumer.runtime.failure_log import FailureLog, forget_frames
from wasmline.consumer.runtime.partition_lifecycle import PartitionLifecycle
from wasmline.consumer.runtime.stalled_partitions import StalledPartitions
from wasmline.consumer.runtime.transactional_committer import TransactionalCommitter
from wasmline.consumer.state.calls import Batch, Call
from wasmline.consumer.state.column_queue import ColumnBatch, ColumnCall
from wasmline.consumer.state.work_manager import WorkManager
from wasmline.consumer.timings import DEFAULT_TIMINGS, Timings
from wasmline.errors import HandlerBroken, InvalidBatch, WasmlineError
from wasmline.offset_maps import DEFAULT_LIMITS, OffsetMapLimits
from wasmline.topic_partitions import TopicPartition

logger = logging.getLogger(__name__)

MAX_POLL_RECORDS = 500
"""Maximum of records that one poll returns."""

BUSY_POLL_RECORDS = 100
"""Poll limit while all workers are busy, unless twice as many are dispatched: a larger poll would delay results."""

QUEUED_RECORDS_TARGET = 1_000
"""Queue length above which the loop stops polling back to back, provided every worker has work."""

MAX_JOINED_BYTES = 1 << 30
"""Bytes of the outputs of calls that are joined: a column of Arrow counts them in 31 bits."""

MAX_POLL_COLUMN_RECORDS = 10_000
"""Maximum of records that one poll returns as columns."""

RETURN_TIMEOUT_S = 0.5
"""Seconds for which a call that has a result is awaited, once the loop was interrupted: it may be lost."""


class ControlLoop:
    """One run of a consumer. ``run_once`` is one iteration of its loop; all methods are for one thread."""

    def __init__(
        self,
        options: ConsumerOptions,
        backend: Backend,
        executor: Executor,
        mailbox: Mailbox,
        timings: Timings = DEFAULT_TIMINGS,
        map_limits: OffsetMapLimits = DEFAULT_LIMITS,
    ) -> None:
        self.work = WorkManager(options, map_limits)
        self.counters = Counters()
        self.paused = False
        """No record is dispatched."""
        self._options = options
        self._timings = timings
        self._source = backend.source
        self._executor = executor
        self._dispatch_limit = DispatchLimit(executor, self.counters, options)
        self._batch_size = options.batch_size or 1
        self._mailbox = mailbox
        dead_letters = DeadLetterBuilder(options, self.counters)
        self._committer: Committer
        if options.delivery is Delivery.EXACTLY_ONCE:
            self._committer = TransactionalCommitter(
                self.work,
                backend.transactions,
                dead_letters,
                self.counters,
                options.buffer_records,
                options.buffer_bytes,
            )
        else:
            self._committer = AtLeastOnceCommitter(self.work, self._source, backend.sink, dead_letters, self.counters)
        self._lifecycle = PartitionLifecycle(
            self.work,
            self._source,
            self._committer,
            self.counters,
            timings,
            fails_on_loss=options.fail_on_data_loss,
            is_exact=options.delivery is Delivery.EXACTLY_ONCE,
        )
        self._failures = FailureLog()
        self._stalled = StalledPartitions()
        self._limit = None if options.handler_timeout_ms is None else options.handler_timeout_ms / 1_000
        self._timed_out: set[Call] = set()
        """Calls that were reported as timed out, and have not returned."""
        self._next_check = 0.0
        self._next_poll = 0.0
        self._next_commit = time.monotonic() + options.commit_interval
        self._draining = False
        self._ending = False
        self._is_released = False
        self._interrupted_at: float | None = None
        """When an exception ended the loop: calls that were about to be submitted, or collected, may be lost."""
        self.failure: BaseException | None = None
        """The first error that came up while the consumer ended."""

    # -- the loop ---------------------------------------------------------------------------------------------------

    def run_once(self) -> None:
        """Run one iteration; wait briefly if there is nothing to do."""
        now = time.monotonic()
        self._dispatch(now)
        self._commit_when_due(now)
        if not self._draining:
            self._lifecycle.retry(now)
            if self._lifecycle.is_opening:
                # A client allows one call at a time, and polls without a pause block other threads.
                time.sleep(self._timings.result_linger_s)
        if self.work.calls_in_flight:
            if self.work.calls_in_flight > (self._executor.workers + self._dispatch_limit.max_in_flight) // 2:
                # The workers have enough to do, and a wake-up for each result would cost them time.
                time.sleep(self._timings.result_linger_s)
            self._collect_results(self._wait_timeout(now, self._timings.busy_poll_interval_s))
            if time.monotonic() >= self._next_poll:
                self._poll_source(0.0)
        else:
            self._poll_source(self._wait_timeout(now, self._timings.idle_poll_timeout_s))
            self._collect_results(0.0)
        self._collect_commits()
        if now >= self._next_check:
            self._next_check = now + self._timings.check_interval_s
            self._stalled.check(() if self.paused else self.work, now)
            if self._limit is not None:
                self._check_timeouts(self._limit, now)

    def drain(self) -> None:
        """Stop reading."""
        self._draining = True
        self._source.pause([work.partition for work in self.work])

    @property
    def is_idle(self) -> bool:
        """Whether all records that were read are done."""
        return not (self.work.calls_in_flight or self.work.queued)

    def finish(self, deadline: float, *, is_interrupted: bool = False) -> None:
        """Dispatch nothing more, wait for the records in flight, and commit; then raise a deferred error.

        Completed records are committed before the wait, too: a process that ends may be killed meanwhile.
        ``is_interrupted``: an exception, such as that of Ctrl-C, has ended an iteration at any step.
        """
        self._ending = True
        self._interrupted_at = time.monotonic() if is_interrupted else None
        self._finish_partitions([work.partition for work in self.work], deadline)
        if self.failure is not None:
            raise self.failure

    def release(self) -> None:
        """Commit what was done since ``finish``; what is done later is not committed."""
        self._finish_partitions([work.partition for work in self.work], time.monotonic())
        self._is_released = True

    def health(self, state: State) -> ConsumerHealth:
        """Describe the consumer now."""
        now = time.monotonic()
        ends = self._source.cached_end_offsets([work.partition for work in self.work])
        counts = self._committer.counts
        return ConsumerHealth(
            state=state,
            counters=replace(self.counters),
            partitions=tuple(
                replace(
                    partition_health(work, ends.get(work.partition), counts[work.partition], now, self._limit),
                    stalled_seconds=self._stalled.seconds(work, now),
                )
                for work in self.work
            ),
            waiting=waiting_keys(self.work, now),
            connected_brokers=self._source.connected_brokers,
        )

    # -- the assignment ----------------------------------------------------------------------------------------------

    def assigned(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int | None]:
        """Open these partitions at their committed offsets; none, once the consumer is about to end."""
        if self._draining or self._ending:
            return {}
        # At once: a partition without a commit may begin at its end, which is another one soon.
        self._next_commit = time.monotonic()
        return self._lifecycle.open(partitions)

    def revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Wait for the records in flight of these partitions, commit, and release them; one that ends has waited."""
        if self._is_released:
            # What was refused, as in a rebalance, which a member that leaves has taken part in.
            self._commit_rest([work.partition for work in self.work.commits(partitions)])
        else:
            self._finish_partitions(
                partitions, time.monotonic() + (0.0 if self._ending else self._options.revoke_wait_ms / 1_000)
            )
        self.lost(partitions)

    def lost(self, partitions: Collection[TopicPartition]) -> None:
        """Release these partitions."""
        self._lifecycle.close(partitions)

    def out_of_range(self, partition: TopicPartition, offset: int | None, end: int | None) -> None:
        """Continue at the beginning of the log, or raise OffsetOutOfRange."""
        self._lifecycle.out_of_range(partition, offset, end)

    # -- progress -----------------------------------------------------------------------------------------------------

    def _commit_when_due(self, now: float) -> None:
        if (now >= self._next_commit or self.work.is_starved) and self._committer.commit():
            self._next_commit = now + self._options.commit_interval

    def _collect_commits(self, timeout: float = 0.0) -> None:
        try:
            for work, failure in self._committer.collect(timeout).items():
                if not work.closed:
                    self._lifecycle.reopen(work, failure)
        except WasmlineError as error:
            self._fail(error)

    def _finish_partitions(self, partitions: Collection[TopicPartition], deadline: float) -> None:
        """Dispatch nothing more of these partitions, wait for their records in flight, and commit what is done."""
        self.work.hold(partitions)
        # Those of other partitions are recalled with them, and dispatched again.
        self._recall(0)
        self._dispatch(time.monotonic())
        if self.work.in_flight_of(partitions):
            self._committer.commit()
        while self._has_calls(partitions) and (left := deadline - time.monotonic()) > 0:
            self._collect_results(min(left, self._timings.busy_poll_interval_s))
            self._dispatch(time.monotonic())
            self._commit_when_due(time.monotonic())
            self._collect_commits()
        self._collect_commits(max(self._timings.last_commit_timeout_s, deadline - time.monotonic()))
        self._commit_rest(partitions)

    def _commit_rest(self, partitions: Collection[TopicPartition]) -> None:
        """Commit what is done of these partitions; what is refused, again."""
        deadline = time.monotonic() + self._timings.last_commit_retry_s
        while self._committer.commit(partitions) and self._committer.is_busy:
            self._collect_commits(self._timings.last_commit_timeout_s)
            if not self.work.commits(partitions) or time.monotonic() > deadline:
                return
            time.sleep(self._timings.last_commit_retry_interval_s)

    def _has_calls(self, partitions: Collection[TopicPartition]) -> bool:
        """Return whether calls of these partitions are in flight and awaited."""
        if self._limit is None and self._interrupted_at is None:
            return self.work.in_flight_of(partitions) > 0
        now = time.monotonic()
        return any(self._is_awaited(call, now) for call in self.work.calls(partitions))

    def _is_awaited(self, call: Call, now: float) -> bool:
        """Return whether a call in flight should still return: it has not timed out, and is not lost."""
        if self._limit is not None and call.lasts(now) >= self._limit + self._timings.check_interval_s:
            return False
        if self._interrupted_at is None or call.is_running:
            return True
        # One that was not begun is not awaited: it is lost, or a worker finds that its partition is held.
        returned = call.returned
        return returned is not None and now - max(returned, self._interrupted_at) < RETURN_TIMEOUT_S

    # -- records ------------------------------------------------------------------------------------------------------

    def _check_timeouts(self, limit: float, now: float) -> None:
        """Report each timed-out call once: a thread, or a coroutine that does not end when cancelled."""
        timed_out = {call for call in self.work.calls() if call.lasts(now) > limit + self._timings.check_interval_s}
        for call in timed_out - self._timed_out:
            logger.warning(
                "%s@%d: its handler has not returned for %.1f s, and handler_timeout_ms is %.0f: its key and its "
                "worker are blocked; set a time-out for the calls that the handler makes",
                call.work.partition,
                call.first_offset,
                call.lasts(now),
                limit * 1_000,
            )
        self._timed_out = timed_out

    def _poll_source(self, timeout: float) -> None:
        """Poll, and pause or resume partitions by the state of their buffers."""
        starving = self.work.calls_in_flight + self.work.ready < self._executor.workers
        dispatched = self._dispatch_limit.max_in_flight * self._batch_size
        most = MAX_POLL_RECORDS if starving and self.work.queued else max(BUSY_POLL_RECORDS, dispatched // 2)
        if self._executor.takes_columns:
            columns = self._source.poll_columns(min(MAX_POLL_COLUMN_RECORDS, self.work.room), timeout)
            has_read, again = bool(columns), self.work.add_columns(columns)
        else:
            records = self._source.poll(min(most, MAX_POLL_RECORDS, self.work.room), timeout)
            has_read, again = bool(records), self.work.add(records)
        if again:
            self._lifecycle.reread(again)
        polls_again = has_read and (starving or self.work.queued < max(QUEUED_RECORDS_TARGET, dispatched))
        self._next_poll = time.monotonic() + (0.0 if polls_again else self._timings.busy_poll_interval_s)
        pause, resume = self.work.balance()
        if pause:
            self._source.pause(pause)
        if resume and not self._draining:
            self._source.resume(resume)

    def _dispatch(self, now: float) -> None:
        self._dispatch_limit.update(now, self.work.calls_in_flight)
        is_full = self._committer.is_full
        most = self._executor.room if is_full else self._dispatch_limit.max_in_flight
        self._recall(0 if self.paused else most)
        if self.paused:
            return
        room = most - self.work.calls_in_flight
        ahead = self._dispatch_limit.followers if self.work.ready < self._executor.workers else 0
        # Records that shrink a map that is too large free outputs, so they run however many outputs wait.
        calls: list[Call] = [*self.work.take_batches(room, now, ahead, shrinking=is_full)]
        while not is_full and len(calls) < room and (more := self.work.take_columns()):
            calls += more
        if calls:
            self._executor.submit(calls)

    def _recall(self, most: int) -> None:
        """Take back calls that no worker has begun, until so many are in flight; of columns there are few."""
        if self._executor.takes_columns:
            return
        # One by one: an exception between any two steps, such as that of Ctrl-C, leaves no more than one behind.
        while self.work.calls_in_flight > most and (call := self._executor.recall()) is not None:
            self.work.put_back(cast("Batch", call))

    def _collect_results(self, timeout: float) -> None:
        """Collect the calls that have returned, and wait ``timeout`` seconds for the first."""
        try:
            call = self._mailbox.get(timeout=timeout) if timeout > 0 else self._mailbox.get_nowait()
            now = time.monotonic()
            while True:
                if call is not None:
                    self._handle(call, now)
                call = self._mailbox.get_nowait()
        except Empty:
            return

    def _handle(self, call: Call, now: float) -> None:
        try:
            if isinstance(call, Batch):
                if call.is_next:  # or an exception has ended the loop before the one that it follows was done
                    self._handle_result(call, now)
            elif isinstance(call, ColumnCall):
                self._handle_columns(call, now)
        except BaseException as error:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        """Raise an error that ends the consumer; while it ends, only after all other completed work is committed."""
        if not self._ending:
            raise error
        self.failure = error if self.failure is None else self.failure
        if self._interrupted_at is None:
            self._interrupted_at = time.monotonic()

    def _handle_result(self, batch: Batch, now: float) -> None:
        result = batch.result
        if result is None:
            self.work.abandon(batch)
            return
        self.counters.batches += 1
        self.counters.handler_seconds += batch.seconds
        if isinstance(result, BatchResult):
            self._dispatch_limit.count(batch.seconds, result)
            failed = len(result.failures)
            self.counters.records += len(batch.records) - failed
            if not batch.work.closed:
                self._committer.add_results(batch.work, *_succeeded(batch, result))
            dead_lettered = self.work.release(batch, now, result.failures)  # what follows is the next only now
            if not failed:
                return
            self.counters.failures += failed
            errors = {batch.records[place].offset: error for place, error in result.failures.items()}
        elif isinstance(result, Exception) and _is_of_records(result):
            failed = len(batch.records)
            dead_lettered = self.work.fail(batch, now, result)
            self.counters.failures += 1
            errors = {batch.records[0].offset: result}
        else:
            self.work.abandon(batch)
            raise result
        if failed > len(dead_lettered):
            self._committer.counts[batch.work.partition].retries += failed - len(dead_lettered)
        for record, error in dead_lettered:
            self._failures.dead_lettered(record, error, now)
            self._committer.add_dead_letter(batch.work, record, error)
            errors.pop(record.offset, None)
            forget_frames(error)
        for record in batch.records:
            if (retried := errors.get(record.offset)) is not None:
                self._failures.retried(record, retried, now)
                forget_frames(retried)

    def _handle_columns(self, call: ColumnCall, now: float) -> None:
        self.counters.batches += call.result is not None
        self.counters.handler_seconds += call.seconds
        batch = self.work.release_columns(call)
        if batch is None:
            return
        self._handle_column_batch(batch, now)
        for error in batch.errors:
            forget_frames(error)

    def _handle_column_batch(self, batch: ColumnBatch, now: float) -> None:
        results = [each.result for each in batch.calls]
        broken = [each for each in results if isinstance(each, BaseException) and not _is_of_records(each)]
        if broken:
            raise broken[0]
        if any(each is None for each in results):
            return  # its partition is being released
        errors = [each for each in results if isinstance(each, Exception)]
        if errors:
            self._run_as_records(batch, errors[0], now)
            return
        size = sum(call.output_bytes for call in batch.calls)
        if len(batch.calls) > 1 and size > MAX_JOINED_BYTES:
            text = (
                f"the outputs of {len(batch.columns)} records have {size} bytes; at most {MAX_JOINED_BYTES} are joined"
            )
            self._run_as_records(batch, InvalidBatch(text), now)
            return
        result = batch.result
        if result.failures and not self._committer.takes_dead_letters(batch.work):
            self._run_as_records(batch, next(iter(result.failures.values())), now)
            return
        self.counters.records += len(batch.columns) - len(result.failures)
        self.counters.failures += len(result.failures)
        if batch.work.closed:
            return
        failed = {row: batch.columns.record(row) for row in sorted(result.failures)}
        self._committer.add_columns(batch, result.outputs, [(failed[row], result.failures[row]) for row in failed])
        for row, record in failed.items():
            self._failures.dead_lettered(record, result.failures[row], now)

    def _run_as_records(self, batch: ColumnBatch, error: Exception, now: float) -> None:
        """Run the records of a batch one by one, because of an error whose cause is one of them."""
        self.counters.failures += 1
        if records := self.work.run_as_records(batch):
            self._committer.counts[batch.work.partition].retries += len(records)
            self._failures.retried(records[0], error, now)

    def _wait_timeout(self, now: float, most: float) -> float:
        """Return the seconds for which nothing is due, at most ``most``."""
        if self._committer.is_busy or self._lifecycle.is_opening:
            most = min(most, self._timings.busy_poll_interval_s)
        else:
            most = min(most, self._next_commit - now)
        may_dispatch = (
            self.work.calls_in_flight < self._dispatch_limit.max_in_flight
            and not self.paused
            and not self._committer.is_full
        )
        due = self.work.due if may_dispatch else None
        return max(0.0, most if due is None else min(most, due - now))


def _is_of_records(error: BaseException) -> bool:
    """Return whether the error of a call may be the fault of its records."""
    return isinstance(error, Exception) and not isinstance(error, HandlerBroken)


def _succeeded(batch: Batch, result: BatchResult) -> tuple[Sequence[ConsumedRecord], BatchResult]:
    """Return the records of a batch that did not fail, and their result."""
    if not result.failures:
        return batch.records, result
    places = [place for place in range(len(batch.records)) if place not in result.failures]
    records = [batch.records[place] for place in places]
    if result.rows is None:
        return records, BatchResult(result.outputs)
    new: dict[int | None, int | None] = {place: row for row, place in enumerate(places)}
    new[None] = None  # what comes from no record in particular is written, as without rows
    kept = [(output, new[row]) for output, row in zip(result.outputs, result.rows, strict=True) if row in new]
    return records, BatchResult([output for output, _ in kept], rows=[row for _, row in kept])
