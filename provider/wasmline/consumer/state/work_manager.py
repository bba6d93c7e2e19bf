"""The state of a consumer's records: read, in flight, done, and ready to commit. Pure.

Nothing here waits, reads a clock or uses threads: ``now`` is an argument, in seconds of any monotonic clock, and one
thread makes all calls. A batch in flight is its executor's until it returns. Every assignment of a partition is a
``PartitionWork`` of its own, so a batch that returns after its partition was revoked finds it ``closed`` and changes no
offset, wherever the partition is by then.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from math import ceil
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from wasmline.consumer.options import ConsumerOptions, NullKeys, Ordering
from wasmline.consumer.records import ConsumedRecord
from wasmline.consumer.state.buffers import IDLE_RESUME_FILL_RATIO, RESUME_FILL_RATIO
from wasmline.consumer.state.calls import Batch, Call, followed_outputs
from wasmline.consumer.state.column_queue import ColumnBatch, ColumnCall, ColumnQueue
from wasmline.consumer.state.offsets import Commit, InitialProgress, PartitionOffsets
from wasmline.consumer.state.partition_totals import PartitionTotals, in_turn
from wasmline.consumer.state.partition_work import PartitionWork
from wasmline.consumer.state.shards import Shard, Shards
from wasmline.offset_maps import DEFAULT_LIMITS, OffsetMapLimits
from wasmline.topic_partitions import TopicPartition

if TYPE_CHECKING:
    from wasmline.consumer.columns import RecordColumns

FIRST_CALL_ROWS = 256
"""Maximum rows of the first call with columns, of which it is not known how long it takes."""

CALL_TARGET_S = 0.25
"""Seconds that a call with columns should take at most, by the calls before it: its records are done together. It is
half of ``handler_timeout_ms``, if that is less."""

MAX_CALL_BYTES = 16 << 20
"""Bytes of the records of a batch of columns, about, and of the outputs of a call, by the calls before it: a guest has
them in its memory."""

MAX_CALL_OUTPUTS = 50_000
"""Outputs of a call with columns, by the calls before it: those of a batch are in one transaction, whose time is
limited."""

MIN_CALL_ROWS = 64
"""Rows of a call below which a batch of columns is not divided: dividing costs as much as some handlers do."""

FIRST_POLL_RECORDS = 10
"""Maximum of records of a poll before it is known how large they are."""


class FailedRecord(NamedTuple):
    """A record that is not retried. Its offset is incomplete until ``WorkManager.complete``."""

    record: ConsumedRecord
    error: Exception


class WorkManager:
    """All partitions of one consumer."""

    def __init__(self, options: ConsumerOptions, map_limits: OffsetMapLimits = DEFAULT_LIMITS) -> None:
        self.map_limits = map_limits
        self._options = options
        self.shard_of = _shard_of(options.ordering, options.null_keys)
        """Returns a record's shard within its partition."""
        self._batch_size = options.batch_size or 1
        self._call_rows = min(FIRST_CALL_ROWS, self._batch_size)
        """Maximum rows of the next call with columns."""
        timeout_ms = options.handler_timeout_ms
        self._call_target_s = CALL_TARGET_S if timeout_ms is None else min(CALL_TARGET_S, timeout_ms / 2_000)
        self._partitions: dict[tuple[str, int], PartitionWork] = {}
        self._totals = PartitionTotals(options.buffer_records, options.buffer_bytes)
        self._changed = self._totals.changed
        self._record_bytes = 0.0
        """Average size of the records that were read last: a moving average, but at least that of the last poll. 0:
        unknown."""
        self._paused_partitions = 0
        """Partitions that are paused."""
        self._departed: dict[TopicPartition, tuple[Shards, ColumnQueue]] = {}
        self._most_characters: int | None = None
        """The broker's limit of an offset map, where that is less than usual."""
        self._alone: dict[TopicPartition, int] = {}
        """The offset up to which the records of a partition run one by one."""
        self.calls_in_flight = 0
        """Calls in flight, including those of closed partitions; one that others follow counts as one."""

    def __iter__(self) -> Iterator[PartitionWork]:
        return iter(self._partitions.values())

    # -- partitions come and go ------------------------------------------------------------------------------------

    def assign(self, starts: Mapping[TopicPartition, InitialProgress | None]) -> None:
        """Begin an assignment of each partition at its committed progress; None: nothing was ever committed."""
        for partition, start in starts.items():
            shards, columns = self._departed.get(partition) or (Shards(), ColumnQueue())
            offsets = PartitionOffsets(start, self.map_limits)
            work = self._partitions[partition] = PartitionWork(partition, shards, columns, offsets)
            self._departed.pop(partition, None)  # only now, or Ctrl-C would leave calls without their locks
            if self._most_characters is not None:
                work.offsets.limit(self._most_characters)
            self._changed[work] = None

    def hold(self, partitions: Iterable[TopicPartition]) -> None:
        """Dispatch nothing more of these partitions; records in flight may finish and count."""
        for work in self.of(partitions):
            work.held = True
            self._changed[work] = None

    def revoke(self, partitions: Iterable[TopicPartition]) -> None:
        """End the assignment of each partition. Records in flight keep their locks, and their results are ignored."""
        for work in self.of(partitions):
            work.held = work.closed = True
            locked, columns = work.shards.successor(), work.columns.successor()
            if len(locked) or columns.batch is not None:
                self._departed[work.partition] = locked, columns
            del self._partitions[work.partition]  # only now, or Ctrl-C would leave calls without their locks
            self._paused_partitions -= work.paused
            self._changed[work] = None

    # -- records ---------------------------------------------------------------------------------------------------

    def add(self, records: Iterable[ConsumedRecord]) -> dict[TopicPartition, int]:
        """Queue records that were read, in offset order within a partition, except those that are done already.

        Records below those read before are skipped: the client returned them twice, or the log was truncated and
        rewritten, which the caller has to find out. Return the first such offset of each partition.
        """
        again: dict[TopicPartition, int] = {}
        count = total = 0
        for record in records:
            work = self._partitions.get((record.topic, record.partition))
            if work is None:
                continue  # it was fetched before the partition was revoked
            offset, offsets, size = record.offset, work.offsets, record.size
            count, total = count + 1, total + size
            if offsets.next is not None and offset < offsets.next:
                again.setdefault(work.partition, offset)
            elif offsets.admit(offset):
                work.bytes += size
                work.shards.add(self.shard_of(record), record)
            self._changed[work] = None
        self._observe_sizes(count, total)
        return again

    def add_columns(self, read: Iterable[RecordColumns]) -> dict[TopicPartition, int]:
        """Queue records that were read as columns, as ``add`` does."""
        again: dict[TopicPartition, int] = {}
        count = total = 0
        for columns in read:
            work = self._partitions.get(columns.partition)
            if work is None:
                continue
            count, total = count + len(columns), total + columns.size
            new, repeated = columns.above(work.offsets.next)
            if repeated is not None:
                again.setdefault(work.partition, repeated)
            if new is None:
                continue
            if not work.offsets.admits_run(new.first):  # the map has some as done, so that no columns wait before these
                self.add(new.records())
                continue
            work.offsets.admit_run(new.offsets)
            work.bytes += new.size
            work.columns.add(new)
            self._changed[work] = None
        self._observe_sizes(count, total)
        return again

    def _observe_sizes(self, records: int, size: int) -> None:
        if records:
            latest = max(1.0, size / records)
            self._record_bytes = max(latest, (self._record_bytes + latest) / 2)

    def take_columns(self) -> list[ColumnCall]:
        """Dispatch the next columns that may run, if there are any, to the workers that are free for them."""
        self._totals.update()
        runnable = self._totals.runnable_columns
        waiting = len(runnable)
        for work in in_turn(runnable):
            self._changed[work] = None
            if self._alone and self._limit(work) and self.is_alone(work):
                self._queue_as_records(work, work.columns.take_all())
                continue
            free = max(1, self._options.max_concurrency - self.calls_in_flight)
            parts = 1 if self._options.ordering is Ordering.PARTITION else max(1, free // waiting)
            batch = work.columns.batch = self._take_column_batch(work, parts)
            work.in_flight += len(batch.columns)
            self.calls_in_flight += len(batch.calls)
            return batch.calls
        return []

    def _take_column_batch(self, work: PartitionWork, parts: int) -> ColumnBatch:
        """Take the next columns of a partition, as up to so many calls, none of which has too many rows."""
        taken = self._take(work, self._call_rows * parts)
        columns = taken[0].joined(taken)
        shares = columns.split(
            min(parts, ceil(len(columns) / MIN_CALL_ROWS)), self._options.ordering, self._options.null_keys
        )
        # One key may have more rows than a call: what follows waits for the next batch.
        most = min((int(rows[self._call_rows]) for rows in shares if len(rows) > self._call_rows), default=len(columns))
        if most < len(columns):
            work.columns.put_back(taken)
            taken = self._take(work, most)
            columns = taken[0].joined(taken)  # it may have fewer rows: bytes are limited, too
            shares = [kept for rows in shares if len(kept := rows[rows < len(columns)])]
        return ColumnBatch(work, taken, columns, shares)

    def _take(self, work: PartitionWork, most: int) -> list[RecordColumns]:
        taken, is_split = work.columns.take(most, MAX_CALL_BYTES)
        if is_split:
            work.offsets.split(taken[-1].first, len(taken[-1]))
        return taken

    def release_columns(self, call: ColumnCall) -> ColumnBatch | None:
        """Take a call back; return its batch once all of its calls have returned. Nothing of it counts as done yet."""
        batch = call.batch
        self.calls_in_flight -= 1
        if call.began is not None:
            share = min(
                self._call_target_s / max(call.seconds, 1e-6),
                MAX_CALL_OUTPUTS / max(call.outputs, 1),
                MAX_CALL_BYTES / max(call.output_bytes, 1),
            )
            self._call_rows = max(1, min(int(share * len(call.columns)), 2 * self._call_rows, self._batch_size))
        batch.outstanding.discard(call)
        if batch.outstanding:
            return None
        for each in batch.calls:
            del each.batch  # a reference cycle would keep records and outputs until the next garbage collection
        work = batch.work
        work.in_flight -= len(batch.columns)
        columns = work.columns
        if work.closed:
            now = self._partitions.get(work.partition)
            columns = now.columns if now else self._departed[work.partition][1]
            work = now or work
        columns.batch = None
        self._changed[work] = None
        return batch

    def run_as_records(self, batch: ColumnBatch) -> list[ConsumedRecord]:
        """Queue the records of a released batch that failed as a whole, to run one by one; return them.

        Which of them caused it is unknown, and this attempt does not count.
        """
        if batch.work.closed:
            return []
        records = self._queue_as_records(batch.work, [batch.columns], batch.runs, batch.size)
        for shard in batch.work.shards:
            shard.alone = len(shard.records)
        return records

    def complete_columns(self, batch: ColumnBatch) -> None:
        """Mark a released batch as done, unless its assignment is over."""
        if batch.work.closed:
            return
        batch.work.bytes -= batch.size
        batch.work.offsets.done(*batch.runs)
        self._changed[batch.work] = None

    def _queue_as_records(
        self, work: PartitionWork, parts: Sequence[RecordColumns], runs: Sequence[int] = (), size: int | None = None
    ) -> list[ConsumedRecord]:
        """Queue columns that were taken as records: before all other columns, which wait for them.

        ``runs``, ``size``: of ``parts`` that were joined."""
        records = [record for part in parts for record in part.records()]
        work.offsets.divide(set(runs) or {part.first for part in parts})
        work.bytes -= sum(part.size for part in parts) if size is None else size
        for record in records:
            work.bytes += record.size
            work.shards.add(self.shard_of(record), record)
        self._changed[work] = None
        return records

    def take(self, now: float, ahead: int = 0) -> Batch | None:
        """Dispatch the next records that may run, if there are any, as ``take_batches`` does."""
        return next(iter(self.take_batches(1, now, ahead)), None)

    def take_batches(self, most: int, now: float, ahead: int = 0, *, shrinking: bool = False) -> list[Batch]:
        """Dispatch the next records that may run, in up to so many batches; partitions are served in turn.

        Where the handler takes one record at a time, up to ``ahead`` records of the same shard follow. ``shrinking``:
        only records that shrink a map that is nearly too large.
        """
        self._totals.update(now)
        for work in self._totals.blocked:
            first = work.columns.first
            if first is not None and work.columns.batch is None and first.first <= work.offsets.highest_succeeded:
                # Offsets above these were skipped, so that they are in the map: as records they shrink it.
                self._queue_as_records(work, work.columns.take_all())
        self._totals.update()
        runnable = self._totals.runnable
        batches: list[Batch] = []
        skipped = 0
        while skipped < len(runnable) and len(batches) < most:
            work = next(iter(runnable))
            runnable.move_to_end(work)
            # Columns in flight may have the same keys.
            waits = work.columns.batch is not None or (shrinking and not work.offsets.blocked)
            batch = None if waits else self._take_batch(work, now, ahead)
            if batch is None:
                skipped += 1
                continue
            batches.append(batch)
            skipped = 0
            if not work.shards.ready:
                del runnable[work]
        return batches

    def _take_batch(self, work: PartitionWork, now: float, ahead: int) -> Batch | None:
        """Dispatch the next records of a partition. None: they would enlarge a map that is nearly too large."""
        self._changed[work] = None
        shards = work.shards
        below = work.offsets.highest_succeeded + 1 if work.offsets.blocked else None
        locked, records = shards.take(self._limit(work) if self._alone else self._batch_size, now, below)
        if not records:
            return None
        batch = Batch(work, locked, records)
        for shard in locked:
            shard.batch = batch
        work.in_flight += len(records)
        self.calls_in_flight += 1
        if ahead and self._options.batch_size is None and locked[0].records:
            self._attach_following(batch, ahead, below)
        return batch

    def run_alone(self, work: PartitionWork, offset: int) -> None:
        """Dispatch the records of a partition one by one, up to ``offset``, in this assignment and the next ones."""
        self._alone[work.partition] = max(offset, self._alone.get(work.partition, offset))

    def is_alone(self, work: PartitionWork) -> bool:
        """Return whether the records of a partition run one by one."""
        return work.partition in self._alone

    def _limit(self, work: PartitionWork) -> int:
        """Return the maximum of records of one call."""
        last = self._alone.get(work.partition)
        if last is None:
            return self._batch_size
        if work.offsets.base is not None and work.offsets.base <= last:
            return 1
        del self._alone[work.partition]
        return self._batch_size

    def _attach_following(self, batch: Batch, ahead: int, below: int | None) -> None:
        work, shards = batch.work, batch.shards
        most_outputs = followed_outputs(self._options, ahead)
        for record in work.shards.take_following(shards[0], ahead, below):
            following = Batch(work, shards, [record])
            batch.followed_outputs = most_outputs
            batch.next, batch = following, following
            work.following += 1

    def release(self, batch: Batch, now: float, failures: Mapping[int, Exception] | None = None) -> list[FailedRecord]:
        """Take a batch back from its handler and unlock its shards; nothing of it counts as done before ``complete``.

        Where a worker has begun another that follows, that one is in flight now. Otherwise those that follow are queued
        again.

        ``failures`` are the records that failed, by their place in the batch. Those that the retry policy retries are
        queued again before the others of their shard; the others are returned.
        """
        if batch.followed_by is not None:
            batch.work.following -= 1
            self._changed[batch.work] = None
            batch.work.shards.advance(batch.shards[0], batch.followed_by)
            return []
        if (not failures and batch.next is None) or batch.work.closed:
            self._unlock(batch)
            return []
        failures = failures or {}
        shards = self._end_in_flight(batch)
        dead_lettered: list[FailedRecord] = []
        first = 0
        for shard, records in batch.runs:
            shards.requeue(shard, [record for each in batch.following_batches for record in each.records])
            failed = [(record, failures[place]) for place, record in enumerate(records, first) if place in failures]
            first += len(records)
            if not self._queue_retries(shards, shard, failed, now, dead_lettered):
                shards.unlock(shard)
        return dead_lettered

    def abandon(self, batch: Batch) -> None:
        """Take back a batch that was not begun, and those that follow it, because its partition is being released."""
        self._unlock(batch)

    def put_back(self, batch: Batch) -> None:
        """Queue the records of a batch that was not begun, and of those that follow it, as before they were taken.

        Of several batches the one that was taken last is the first.
        """
        if batch.work.closed:
            self._unlock(batch)
            return
        shards = self._end_in_flight(batch)
        following = [record for each in batch.following_batches for record in each.records]
        for shard, records in reversed(list(batch.runs)):
            shards.put_back(shard, [*records, *following])

    def fail(self, batch: Batch, now: float, error: Exception) -> list[FailedRecord]:
        """Take back a batch that failed as a whole, as ``release`` does.

        Which of several records caused it is unknown: they are retried one by one, and this attempt does not count.
        A record that failed by itself is retried by itself.
        """
        if len(batch.records) == 1:
            dead_lettered = self.release(batch, now, {0: error})
            if not dead_lettered and not batch.work.closed:
                batch.shards[0].alone += 1
            return dead_lettered
        if batch.work.closed:
            self._unlock(batch)
            return []
        shards = self._end_in_flight(batch)
        for shard, records in batch.runs:
            shard.alone = len(records)
            shards.requeue_failed(shard, records, due=now + (self._options.retry.after(1, error) or 0), error=error)
        return []

    def complete(self, work: PartitionWork, records: Sequence[ConsumedRecord]) -> None:
        """Mark records as done, together, unless their assignment is over."""
        if work.closed:
            return
        self._changed[work] = None
        if len(records) == 1:
            work.bytes -= records[0].size
            work.offsets.done(records[0].offset)
            return
        for record in records:
            work.bytes -= record.size
        work.offsets.done(*[record.offset for record in records])

    def keep_waiting(self, work: PartitionWork, records: Sequence[ConsumedRecord]) -> None:
        """Count records as buffered until ``complete_waiting``: they wait for the outputs of earlier ones."""
        work.waiting += len(records)
        self._changed[work] = None

    def complete_waiting(self, work: PartitionWork, records: Sequence[ConsumedRecord]) -> None:
        """Do as ``complete`` does with records that were kept waiting."""
        work.waiting -= len(records)
        self.complete(work, records)

    def skip_to(self, work: PartitionWork, start: int, read: int) -> int:
        """Continue a partition at ``start``, as ``PartitionOffsets.skip_to`` does."""
        self._changed[work] = None
        return work.offsets.skip_to(start, read)

    # -- commits, pauses and counts --------------------------------------------------------------------------------

    def commits(self, partitions: Iterable[TopicPartition] | None = None) -> dict[PartitionWork, Commit]:
        """Return the commits to make of these partitions, or of all."""
        chosen = list(self) if partitions is None else self.of(partitions)
        self._changed.update(dict.fromkeys(chosen))  # their maps are measured
        return {work: commit for work in chosen if not work.uncertain and (commit := work.offsets.commit())}

    def limit_maps(self, characters: int) -> None:
        """Commit no offset map of more than this many characters, in this assignment and the next ones."""
        self._most_characters = characters
        for work in self:
            work.offsets.limit(characters)
        self._changed.update(dict.fromkeys(self))

    def balance(self) -> tuple[list[TopicPartition], list[TopicPartition]]:
        """Return the partitions to pause, which have their shares of the buffers, and those to read again."""
        pause: list[TopicPartition] = []
        resume: list[TopicPartition] = []
        self._totals.update()
        buffers = self._totals.records, self._totals.bytes
        if not self._paused_partitions and not any(buffer.is_half_full for buffer in buffers):
            return pause, resume
        works = self._partitions.values()
        shares = [(buffer, buffer.fair_share(works)) for buffer in buffers]
        is_idle = self.calls_in_flight + self._totals.ready < self._options.max_concurrency
        for work in works:
            if work.paused:
                is_waiting = not work.shards.ready and not work.columns.size
                ratio = IDLE_RESUME_FILL_RATIO if is_idle or is_waiting else RESUME_FILL_RATIO
                if all(buffer.has_drained(work, share, ratio) for buffer, share in shares):
                    work.paused = False
                    resume.append(work.partition)
            elif any(buffer.is_full(work, share) for buffer, share in shares):
                work.paused = True
                pause.append(work.partition)
        self._paused_partitions += len(pause) - len(resume)
        return pause, resume

    @property
    def room(self) -> int:
        """Records that may be read at once, if they are as large as those that were read last; at least 1."""
        self._totals.update()
        works = self._partitions.values()
        most = FIRST_POLL_RECORDS
        if self._record_bytes:
            most = int(self._totals.bytes.poll_limit(works) / self._record_bytes)
        return max(1, min(self._totals.records.poll_limit(works), most))

    @property
    def is_starved(self) -> bool:
        """Whether a partition waits for a commit: it would shrink its map, and nothing else of it may run."""
        self._totals.update()
        return any(not work.offsets.is_measured and not work.in_flight for work in self._totals.blocked)

    @property
    def due(self) -> float | None:
        """The time at which the next retry is due, if one is waiting."""
        self._totals.update()
        return min((work.shards.due for work in self._totals.delayed if work.shards.due is not None), default=None)

    @property
    def queued(self) -> int:
        """Records that wait."""
        self._totals.update()
        return self._totals.queued

    @property
    def ready(self) -> int:
        """Shards, and partitions with columns, that may run, including those of held partitions."""
        self._totals.update()
        return self._totals.ready

    def in_flight_of(self, partitions: Iterable[TopicPartition]) -> int:
        """Return the number of records of these partitions in flight."""
        return sum(work.in_flight for work in self.of(partitions))

    def calls(self, partitions: Iterable[TopicPartition] | None = None) -> set[Call]:
        """Return the calls in flight of these partitions, or of all: of batches in a sequence, the first."""
        chosen = self if partitions is None else self.of(partitions)
        return {call for work in chosen for call in work.calls}

    def of(self, partitions: Iterable[TopicPartition]) -> list[PartitionWork]:
        """Return the current assignments of these partitions, if any."""
        return [self._partitions[partition] for partition in partitions if partition in self._partitions]

    def _unlock(self, batch: Batch) -> None:
        shards = self._end_in_flight(batch)
        for shard in batch.shards:
            shards.unlock(shard)

    def _end_in_flight(self, batch: Batch) -> Shards:
        """Record that a batch, and those that follow it, is no longer in flight; return its current shards."""
        self.calls_in_flight -= 1
        work = batch.work
        work.in_flight -= len(batch.records)
        if batch.next is not None:
            work.following -= sum(1 for _ in batch.following_batches)
        if not work.closed:
            self._changed[work] = None
            return work.shards
        now = self._partitions.get(work.partition)
        if now is None:
            return self._departed[work.partition][0]
        self._changed[now] = None
        return now.shards

    def _queue_retries(
        self,
        shards: Shards,
        shard: Shard,
        failed: Sequence[tuple[ConsumedRecord, Exception]],
        now: float,
        dead_lettered: list[FailedRecord],
    ) -> list[ConsumedRecord]:
        """Queue the records to retry again; the others join ``dead_lettered``."""
        kept, due, last = [], now, None
        for record, error in failed:
            delay = self._options.retry.after(record.attempt, error)
            if delay is None:
                dead_lettered.append(FailedRecord(record, error))
            else:
                kept.append(record._replace(attempt=record.attempt + 1))
                due, last = max(due, now + delay), error if last is None else last
        if last is not None:
            shards.requeue_failed(shard, kept, due=due, error=last)
        return kept


def _shard_of(ordering: Ordering, null_keys: NullKeys) -> Callable[[ConsumedRecord], Hashable]:
    """Return the function that names a record's shard within its partition. Offsets are ints, so they equal no key."""
    if ordering is Ordering.PARTITION:
        return lambda record: None
    if ordering is Ordering.UNORDERED:
        return attrgetter("offset")
    if null_keys is NullKeys.UNORDERED:
        return lambda record: record.offset if record.key is None else record.key
    return attrgetter("key")
