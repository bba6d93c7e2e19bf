"""The core of the key-parallel consumer beside a naive model of it, through whatever a cluster and handlers may do."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from itertools import groupby
from random import Random

from hypothesis import HealthCheck, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from wasmline.consumer.options import ConsumerOptions, NullKeys, Ordering, RetryPolicy
from wasmline.consumer.records import BatchResult, ConsumedRecord
from wasmline.consumer.state.calls import Batch
from wasmline.consumer.state.offsets import Commit, InitialProgress
from wasmline.consumer.state.partition_work import PartitionWork
from wasmline.consumer.state.work_manager import FailedRecord, WorkManager
from wasmline.errors import TerminalFailure
from wasmline.offset_maps import DEFAULT_LIMITS, OffsetMapLimits, codec
from wasmline.topic_partitions import TopicPartition

PARTITIONS = [TopicPartition("orders", number) for number in range(2)]
KEYS = [b"a", b"b", b"c", None]
BUFFER_RECORDS, BUFFER_BYTES = 24, 200
MOST_ATTEMPTS = 3
WORKERS = 3

ERRORS: list[Exception] = [OSError("now"), OSError("now"), TerminalFailure("never")]
SOME = st.lists(st.sampled_from(PARTITIONS), min_size=1, unique=True)
CHANCE = st.integers(0, 2**32).map(Random)
"""Decides what is not worth a draw of its own."""

Lock = tuple[TopicPartition, Hashable]


@dataclass(frozen=True)
class Snapshot:
    """What a commit says, by the model: which offset, up to where it knows of finished ones, and what was not."""

    offset: int
    highest: int
    incompletes: tuple[int, ...]
    text: str


@dataclass
class View:
    """One assignment of one partition, as the model sees it."""

    work: PartitionWork
    next: int | None
    highest: int
    awaited: list[int]
    """Incomplete by the commit that this began with, and not read yet."""
    records: dict[int, ConsumedRecord] = field(default_factory=dict)
    """What was read and was to be done."""
    state: dict[int, str] = field(default_factory=dict)
    """Of these: queued, out, released, dropped (it came back untouched) or done."""
    queues: dict[Hashable, list[ConsumedRecord]] = field(default_factory=dict)
    rests: dict[Hashable, float] = field(default_factory=dict)
    suspects: dict[Hashable, int] = field(default_factory=dict)
    """How many of a queue's first records go out alone."""
    blocked: bool = False
    changes: int = 0
    acknowledged: int = 0
    """How many of the changes the broker is known to have."""
    fitting: tuple[Snapshot, int] | None = None
    """The newest snapshot whose map fits, and how many changes there were."""

    @property
    def incompletes(self) -> list[int]:
        return sorted([*self.awaited, *(offset for offset, state in self.state.items() if state != "done")])

    @property
    def base(self) -> int | None:
        return None if self.next is None else min(self.incompletes, default=self.highest + 1)

    @property
    def bytes(self) -> int:
        return sum(record.size for offset, record in self.records.items() if self.state[offset] != "done")

    def count(self, *states: str) -> int:
        return sum(state in states for state in self.state.values())

    def done(self, offset: int) -> None:
        self.state[offset] = "done"
        self.highest = max(self.highest, offset)
        self.changes += 1


def map_limits(pressure: int, most: int) -> OffsetMapLimits:
    return OffsetMapLimits(back_pressure_length=pressure, max_metadata_length=most)


class Consumer(RuleBasedStateMachine):
    """Drives Work. A step that Work takes otherwise than the model fails there."""

    @initialize(
        ordering=st.sampled_from([Ordering.KEY, Ordering.KEY, *Ordering]),
        null_keys=st.sampled_from(NullKeys),
        batch_size=st.sampled_from([None, 1, 3, 50]),
        limits=st.sampled_from([map_limits(8, 12), map_limits(16, 24), DEFAULT_LIMITS]),
        first=st.sampled_from([0, 1000]),
    )
    def begin(
        self, ordering: Ordering, null_keys: NullKeys, batch_size: int | None, limits: OffsetMapLimits, first: int
    ) -> None:
        self.limits = limits
        self.ordering, self.null_keys, self.most = ordering, null_keys, batch_size or 1
        self.work = WorkManager(
            ConsumerOptions(
                topics=("orders",),
                group_id="group",
                ordering=ordering,
                null_keys=null_keys,
                batch_size=batch_size,
                retry=RetryPolicy(delay_ms=1_000, factor=2, max_delay_ms=3_000, max_attempts=MOST_ATTEMPTS),
                max_concurrency=WORKERS,
                buffer_records=BUFFER_RECORDS,
                buffer_bytes=BUFFER_BYTES,
            ),
            limits,
        )
        self.now = 0.0
        self.serial = 0
        self.logs: dict[TopicPartition, dict[int, ConsumedRecord]] = {partition: {} for partition in PARTITIONS}
        self.end_offsets = dict.fromkeys(PARTITIONS, first)
        self.commits: dict[TopicPartition, list[Snapshot]] = {partition: [] for partition in PARTITIONS}
        self.views: dict[TopicPartition, View] = {}
        self.held: set[TopicPartition] = set()
        self.lone: set[Batch] = set()
        self.paused: set[TopicPartition] = set()
        self.out: list[tuple[View, Batch]] = []
        self.locks: set[Lock] = set()
        self.released: list[tuple[View, ConsumedRecord]] = []
        self.completed: set[bytes | None] = set()
        self.pending: list[tuple[View, int, Commit]] = []
        for partition in PARTITIONS:
            self.produce(partition, 12, Random(first))
            self.work.assign({partition: None})
            self.follow(partition, None)

    def key(self, record: ConsumedRecord) -> Hashable:
        if self.ordering is Ordering.PARTITION:
            return "all"
        if self.ordering is Ordering.UNORDERED or (record.key is None and self.null_keys is NullKeys.UNORDERED):
            return record.offset
        return record.key

    # -- the log -----------------------------------------------------------------------------------------------------

    @rule(partition=st.sampled_from(PARTITIONS), count=st.integers(1, 40), chance=CHANCE)
    def produce(self, partition: TopicPartition, count: int, chance: Random) -> None:
        for _ in range(count):
            self.append(partition, self.end_offsets[partition] + chance.choice([0, 0, 0, 1, 7]), chance)

    def append(self, partition: TopicPartition, offset: int, chance: Random) -> None:
        self.serial += 1
        value = b"%d" % self.serial + b"." * chance.randrange(10)
        self.logs[partition][offset] = ConsumedRecord(*partition, offset, chance.choice(KEYS), value, [("h", None)])
        self.end_offsets[partition] = offset + 1

    @rule(partition=st.sampled_from(PARTITIONS), share=st.sampled_from([0.1, 0.5]), chance=CHANCE)
    def compact(self, partition: TopicPartition, share: float, chance: Random) -> None:
        """Any record but the last may vanish, those that a commit calls incomplete among them."""
        for offset in list(self.logs[partition])[:-1]:
            if chance.random() < share:
                del self.logs[partition][offset]

    @rule(partition=st.sampled_from(PARTITIONS), chance=CHANCE)
    def cut(self, partition: TopicPartition, chance: Random) -> None:
        """The log is cut below what was read, and written anew; of the old commits, what is below still holds."""
        view = self.views.get(partition)
        if view is None or not view.next or view.base is None or partition in self.paused:
            return
        cut = chance.randrange(max(0, view.next - 20), view.next)
        self.logs[partition] = {offset: record for offset, record in self.logs[partition].items() if offset < cut}
        for offset in range(cut, cut + 3):
            self.append(partition, offset, chance)
        assert self.work.add([self.logs[partition][cut], self.logs[partition][cut + 1]]) == {partition: cut}
        first = view.work.offsets.first
        assert first is not None
        start = (self.start(partition, chance) or InitialProgress(first, first - 1)).below(cut)
        self.commits[partition].clear()
        self.give_up(partition)
        self.work.assign({partition: start})
        self.follow(partition, start)

    @rule(partition=st.sampled_from(PARTITIONS), chance=CHANCE)
    def return_twice(self, partition: TopicPartition, chance: Random) -> None:
        """The client returns records again; whatever became of them, that changes nothing."""
        view = self.views.get(partition)
        if view is None or view.next is None:
            return
        read = [record for offset, record in self.logs[partition].items() if offset < view.next]
        if read:
            again = read[chance.randrange(len(read)) :]
            assert self.work.add(again) == {partition: again[0].offset}

    # -- the assignment ------------------------------------------------------------------------------------------------

    @rule(chance=CHANCE)
    def assign(self, chance: Random) -> None:
        free = [partition for partition in PARTITIONS if partition not in self.views]
        starts = {partition: self.start(partition, chance) for partition in free if chance.random() < 0.8}
        self.work.assign(starts)
        for partition, start in starts.items():
            self.follow(partition, start)

    @rule(partition=st.sampled_from(PARTITIONS), limit=st.integers(1, 20), chance=CHANCE)
    def restart(self, partition: TopicPartition, limit: int, chance: Random) -> None:
        """What is done is committed, and somebody goes on from there."""
        self.run_once(rounds=2, trouble=0.3, haste=0.6, chance=chance)
        self.commit([partition], stored=True, acknowledged=True)
        self.give_up(partition)
        start = self.start(partition)
        self.work.assign({partition: start})
        self.follow(partition, start)
        self.poll(limit, [partition])

    def start(self, partition: TopicPartition, chance: Random | None = None) -> InitialProgress | None:
        """Any commit may be where a partition begins: the newest need not have reached the broker."""
        commits = self.commits[partition]
        if not commits:
            return None
        commit = chance.choice(commits[-3:]) if chance else commits[-1]
        highest, incompletes = codec.decode(commit.text, commit.offset)
        assert (highest, incompletes) == (commit.highest, commit.incompletes)
        return InitialProgress(commit.offset, highest, incompletes)

    def follow(self, partition: TopicPartition, start: InitialProgress | None) -> None:
        (work,) = self.work.of([partition])
        assert not work.closed
        if partition in self.views:
            assert self.views[partition].work.closed
        if start is None:
            self.views[partition] = View(work, None, -1, [])
        else:
            self.views[partition] = View(work, start.offset, start.highest_succeeded, list(start.incompletes))

    @rule(partitions=SOME)
    def hold(self, partitions: list[TopicPartition]) -> None:
        self.work.hold(partitions)
        self.held |= self.views.keys() & set(partitions)

    @rule(partitions=SOME, committing=st.booleans())
    def revoke(self, partitions: list[TopicPartition], committing: bool) -> None:
        if committing:
            self.commit(partitions, stored=True, acknowledged=True)
        self.give_up(*partitions)

    def give_up(self, *partitions: TopicPartition) -> None:
        works = self.work.of(partitions)
        self.work.revoke(partitions)
        assert all(work.held and work.closed for work in works), "no engine begins what it has of them"
        for partition in partitions:
            self.views.pop(partition, None)
        self.held -= set(partitions)
        self.paused -= set(partitions)

    # -- records -------------------------------------------------------------------------------------------------------

    @rule(
        rounds=st.integers(1, 4),
        trouble=st.sampled_from([0.0, 0.3, 0.8]),
        haste=st.sampled_from([0.2, 0.6, 1.0]),
        chance=CHANCE,
    )
    def run_once(self, rounds: int, trouble: float, haste: float, chance: Random) -> None:
        """Some records are read, some are handed out, some come back, and some of those are done."""
        for _ in range(rounds):
            self.now += chance.choice([0.0, 0.5, 1.0, 5.0])
            self.poll(chance.randrange(20), chance.sample(PARTITIONS, len(PARTITIONS)))
            self.take(chance.randrange(10), ahead=chance.choice([0, 1, 4]))
            for view, batch in chance.sample(self.out, len(self.out)):
                if chance.random() < haste:
                    self.out.remove((view, batch))
                    self.bring_back(view, batch, chance if chance.random() < trouble else None)
            for view, record in chance.sample(self.released, len(self.released)):
                if chance.random() < haste:
                    self.released.remove((view, record))
                    self.complete(view, record)
            self.the_books_agree()

    def poll(self, limit: int, order: list[TopicPartition]) -> None:
        """Read on where reading is not paused; what was fetched for a partition that is gone arrives too."""
        found = []
        for partition in order:
            view = self.views.get(partition)
            if partition in self.paused or (view is None and limit % 2):
                continue
            begin = view.next if view and view.next is not None else 0
            found += [record for offset, record in self.logs[partition].items() if offset >= begin][:limit]
        self.work.add(found)
        for record in found:
            partition = TopicPartition(record.topic, record.partition)
            if partition in self.views:
                self.read(partition, record)

    def read(self, partition: TopicPartition, record: ConsumedRecord) -> None:
        view = self.views[partition]
        if view.next is None:
            view.highest = record.offset - 1
        view.next = record.offset + 1
        known = record.offset in view.awaited
        for offset in [offset for offset in view.awaited if offset <= record.offset]:
            view.awaited.remove(offset)
            if offset != record.offset:
                view.done(offset)
        if known or record.offset > view.highest:
            view.records[record.offset] = record
            view.state[record.offset] = "queued"
            view.queues.setdefault(self.key(record), []).append(record)

    def runnable(self, partition: TopicPartition, key: Hashable) -> bool:
        view = self.views[partition]
        queue = view.queues.get(key)
        return (
            bool(queue)
            and partition not in self.held
            and (partition, key) not in self.locks
            and view.rests.get(key, 0.0) <= self.now
            and not (view.blocked and queue is not None and queue[0].offset >= view.highest)
        )

    def take(self, most: int, ahead: int = 0) -> None:
        for _ in range(most):
            batch = self.work.take(self.now, ahead)
            if batch is None:
                for partition, view in self.views.items():
                    assert not [key for key in view.queues if self.runnable(partition, key)]
                waiting = [due for view in self.views.values() for due in view.rests.values() if due > self.now]
                if not self.held:
                    assert self.work.due == min(waiting, default=None)
                return
            self.took(batch)

    def took(self, batch: Batch) -> None:
        partition = batch.work.partition
        view = self.views[partition]
        assert batch.work is view.work
        assert 1 <= len(batch.records) <= self.most
        assert [run for _, run in batch.runs] == self.runs(batch)
        note(f"took {[(record.offset, record.key, record.attempt) for record in batch.records]} of {partition}")
        lone = False
        for run in self.runs(batch):
            key = self.key(run[0])
            assert self.runnable(partition, key)
            queue = view.queues[key]
            assert run == queue[: len(run)], "the first of their key, in order"
            assert not view.blocked or all(record.offset < view.highest for record in run)
            if view.suspects.get(key):
                assert len(batch.records) == 1, "a suspect goes out alone"
                view.suspects[key] -= 1
                lone = True
            del queue[: len(run)]
            view.rests.pop(key, None)
            self.locks.add((partition, key))
        for record in batch.records:
            view.state[record.offset] = "out"
        self.out.append((view, batch))
        if lone:
            self.lone.add(batch)
        if following := [record for each in batch.following_batches for record in each.records]:
            assert self.most == len(batch.records) == 1
            queue = view.queues[self.key(batch.records[0])]
            assert following == queue[: len(following)], "the next of their key, in order"
            assert not view.blocked or all(record.offset < view.highest for record in following)
        if len(batch.records) < self.most and not lone:
            rest = [key for key in view.queues if self.runnable(partition, key)]
            assert not rest or any(view.suspects.get(key) for key in rest), "a batch takes what there is"

    @precondition(lambda self: self.out)
    @rule(chance=CHANCE)
    def leave_undone(self, chance: Random) -> None:
        """Whoever does not begin a batch is about to give its partition up."""
        view, batch = self.out.pop(chance.randrange(len(self.out)))
        self.unlock(batch)
        self.work.abandon(batch)
        rest = [record for each in batch.following_batches for record in each.records]
        for record in [*batch.records, *rest]:
            view.state[record.offset] = "dropped"
        del view.queues[self.key(batch.records[0])][: len(rest)]
        if not batch.work.closed:
            self.work.hold([batch.work.partition])
            self.held.add(batch.work.partition)

    @precondition(lambda self: self.out)
    @rule()
    def recall(self) -> None:
        """A batch that nobody has begun is queued again as it was: the one that was taken last."""
        view, batch = self.out.pop()
        self.unlock(batch)
        self.work.put_back(batch)
        if batch.work.closed:
            for record in [*batch.records, *(record for each in batch.following_batches for record in each.records)]:
                view.state[record.offset] = "dropped"
            return
        for run in self.runs(batch):
            key = self.key(run[0])
            view.queues.setdefault(key, [])[:0] = run
            for record in run:
                view.state[record.offset] = "queued"
            if batch in self.lone:
                view.suspects[key] = view.suspects.get(key, 0) + 1

    def bring_back(self, view: View, batch: Batch, chance: Random | None) -> None:
        """Take a batch back; ``chance`` decides how it failed."""
        size = len(batch.records)
        errors: dict[int, Exception] = {}
        if not chance:
            batch.result = BatchResult()
            batch.seconds = batch.records[0].offset % 3  # after a long call a worker does not go on
            if following := batch.follow():
                self.go_on(view, batch, following)
                return
        self.unlock(batch)
        if chance and chance.random() < 0.5:
            error = chance.choice(ERRORS)
            given_up = self.work.fail(batch, self.now, error)
            if size > 1:
                assert given_up == []
                self.suspected(view, batch, 0.0 if isinstance(error, TerminalFailure) else 1.0)
            else:
                self.failed(view, batch, {0: error}, given_up, alone=True)
            return
        if chance:
            errors = {place: chance.choice(ERRORS) for place in range(size) if batch.next or chance.random() < 0.4}
        self.failed(view, batch, errors, self.work.release(batch, self.now, errors), alone=False)

    def go_on(self, view: View, batch: Batch, following: Batch) -> None:
        """What follows is out now, and its key is as locked as before."""
        assert self.work.release(batch, self.now) == []
        (record,), (begun,) = batch.records, following.records
        view.state[record.offset] = "released"
        if not batch.work.closed:
            self.released.append((view, record))
        assert view.queues[self.key(record)].pop(0) == begun
        view.state[begun.offset] = "out"
        self.out.append((view, following))

    def runs(self, batch: Batch) -> list[list[ConsumedRecord]]:
        return [list(run) for _, run in groupby(batch.records, self.key)]

    def unlock(self, batch: Batch) -> None:
        for run in self.runs(batch):
            self.locks.remove((batch.work.partition, self.key(run[0])))

    def failed(
        self,
        view: View,
        batch: Batch,
        errors: dict[int, Exception],
        given_up: list[FailedRecord],
        alone: bool,
    ) -> None:
        lost = [
            FailedRecord(record, errors[place])
            for place, record in enumerate(batch.records)
            if place in errors and (record.attempt >= MOST_ATTEMPTS or isinstance(errors[place], TerminalFailure))
        ]
        assert given_up == ([] if batch.work.closed else lost)
        again = [record for place, record in enumerate(batch.records) if place in errors]
        again = [record for record in again if record not in [each.record for each in lost]]
        for record in batch.records:
            if record not in again:
                view.state[record.offset] = "released"
                if not batch.work.closed:
                    self.released.append((view, record))
        for record in reversed(again):
            key = self.key(record)
            view.state[record.offset] = "queued"
            view.queues[key].insert(0, record._replace(attempt=record.attempt + 1))
            due = self.now + [1.0, 2.0][record.attempt - 1]
            view.rests[key] = max(due, view.rests.get(key, 0.0))
            if alone:
                view.suspects[key] = view.suspects.get(key, 0) + 1

    def suspected(self, view: View, batch: Batch, delay: float) -> None:
        """A batch of several failed as a whole: each record goes out once more, alone, and as if it had not been."""
        for run in self.runs(batch):
            key = self.key(run[0])
            view.queues[key][:0] = run
            view.rests[key] = self.now + delay
            view.suspects[key] = len(run)
            for record in run:
                view.state[record.offset] = "queued"

    def complete(self, view: View, record: ConsumedRecord) -> None:
        self.work.complete(view.work, [record])
        if not view.work.closed:
            view.done(record.offset)
            self.completed.add(record.value)

    # -- what follows from it ------------------------------------------------------------------------------------------

    @rule(
        partitions=st.one_of(st.none(), SOME),
        stored=st.booleans(),
        acknowledged=st.booleans(),
    )
    def commit(self, partitions: list[TopicPartition] | None, stored: bool, acknowledged: bool) -> None:
        """Commit. The commit may be lost, and so may its answer, which else arrives at once or later."""
        commits = self.work.commits(partitions)
        views = [view for each, view in self.views.items() if partitions is None or each in partitions]
        for view in views:
            self.measure(view)
        assert set(commits) == {view.work for view in views if view.fitting and view.fitting[1] > view.acknowledged}
        self.pending = []
        for work, commit in commits.items():
            view = self.views[work.partition]
            assert view.fitting
            snapshot, changes = view.fitting
            assert commit[:2] == (snapshot.offset, snapshot.text)
            if stored:
                self.commits[work.partition].append(snapshot)
                self.pending.append((view, changes, commit))
        if acknowledged:
            self.acknowledge()

    def measure(self, view: View) -> None:
        """Of a moment whose map is too large nothing is committed, but of the last one whose map was not."""
        if view.changes and (view.fitting is None or view.changes > view.fitting[1]):
            snapshot = self.snapshot(view)
            view.blocked = len(snapshot.text) > self.limits.back_pressure_length
            if len(snapshot.text) <= self.limits.max_metadata_length:
                view.fitting = snapshot, view.changes

    def snapshot(self, view: View) -> Snapshot:
        """What is to be committed: no incomplete offset lies below it, or counts as finished in the map."""
        assert view.base is not None
        incompletes = view.incompletes
        text = codec.encode(view.base, view.highest, incompletes)
        if not text:
            return Snapshot(view.base, view.base - 1, (), "")
        return Snapshot(
            view.base,
            max(view.highest, view.base - 1),
            tuple(each for each in incompletes if each <= view.highest),
            text,
        )

    @precondition(lambda self: self.pending)
    @rule()
    def acknowledge(self) -> None:
        for view, moment, commit in self.pending:
            view.work.offsets.committed(commit)
            view.acknowledged = max(view.acknowledged, moment)
        self.pending = []

    @rule()
    def balance(self) -> None:
        """In buffers that are half full, a partition with its share is paused, until half of the share or half is free.

        Until an eighth is, where a worker or the partition has nothing to run. With all partitions at their share, or
        above, the buffer is full.
        """
        is_idle = len(self.out) + self.work.ready < WORKERS
        pause, resume = self.work.balance()
        full: set[TopicPartition] = set()
        filled: set[TopicPartition] = set()
        for most, sizes in (
            (BUFFER_RECORDS, {each: view.count("queued", "out") for each, view in self.views.items()}),
            (BUFFER_BYTES, {each: view.bytes for each, view in self.views.items()}),
        ):
            total = sum(sizes.values())
            shares = [share for share in range(1, most + 1) if sum(max(size, share) for size in sizes.values()) <= most]
            share = max(shares, default=max(1, most // 8 // (len(sizes) or 1)))
            share = max(share, most // 8 // (len(sizes) or 1))
            for each, view in self.views.items():
                ratio = 0.875 if is_idle or not view.work.shards.ready else 0.5
                if total >= most / 2 and sizes[each] >= share:
                    full.add(each)
                if total > most / 2 * ratio and sizes[each] > share * ratio:
                    filled.add(each)
        assert set(pause) == full - self.paused
        assert set(resume) == self.paused - filled
        self.paused = (self.paused | set(pause)) - set(resume)

    @invariant()
    def the_books_agree(self) -> None:
        assert self.work.calls_in_flight == len(self.out)
        assert self.work.queued == sum(view.count("queued") for view in self.views.values())
        assert self.work.ready == sum(view.work.shards.ready for view in self.views.values())
        assert self.work.due == min(
            (view.work.shards.due for view in self.views.values() if view.work.shards.due is not None), default=None
        )
        assert self.work.is_starved == any(
            view.blocked and not view.work.offsets.is_measured and not view.count("out") for view in self.views.values()
        )
        assert {each.partition for each in self.work} == self.views.keys()
        for view in self.views.values():
            work = view.work
            assert (work.held, work.paused) == (work.partition in self.held, work.partition in self.paused)
            assert work.in_flight == self.work.in_flight_of([work.partition]) == view.count("out")
            assert work.buffered == view.count("queued", "out")
            assert work.bytes == view.bytes
            assert (work.offsets.base, work.offsets.incompletes) == (view.base, len(view.incompletes))
            assert work.offsets.blocked == view.blocked

    def teardown(self) -> None:
        """From whatever state, with handlers that now succeed, everything gets done and nothing is left behind."""
        for partition in list(self.held):
            self.give_up(partition)
        for partition in PARTITIONS:
            if partition not in self.views:
                start = self.start(partition)
                self.work.assign({partition: start})
                self.follow(partition, start)
        for _ in range(20 + 2 * self.serial):
            self.poll(20, PARTITIONS)
            self.take(100, ahead=2)
            for view, batch in self.out:
                self.bring_back(view, batch, None)
            self.out.clear()
            for view, record in self.released:
                self.complete(view, record)
            self.released.clear()
            self.commit(None, stored=True, acknowledged=True)
            self.balance()
            self.the_books_agree()
            self.now += 5
            if all(
                view.base == self.end_offsets[partition]
                for partition, view in self.views.items()
                if self.logs[partition]
            ):
                break
        for partition, log in self.logs.items():
            assert {record.value for record in log.values()} <= self.completed
            assert not log or self.views[partition].base == self.end_offsets[partition]
        assert not self.paused
        assert sum(work.bytes + work.buffered + work.offsets.incompletes for work in self.work) == 0


Consumer.TestCase.settings = settings(
    max_examples=100,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    report_multiple_bugs=False,
)
TestConsumer = Consumer.TestCase
