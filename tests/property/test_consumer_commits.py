"""The commit side of the consumer under a cluster and handlers that fail in every way, and interrupts anywhere.

What holds after each step, exactly once: a record that is committed as done, by the offset or by the map, has all of
its outputs or one dead letter readable, each once; of any other record nothing is readable. At least once: a record
that is committed as done has its outputs, or a dead letter, readable; and no output more often than a handler made it.

Of both: no record is committed as done while an earlier one of its key is not.

What else holds: a consumer that ends commits all that it knows to be done, unless the cluster fails; it commits no map
that is as long as one that was refused; and while outputs wait that are as many or as large as they may be, only what
lets them go is handed out. FUZZ_EXAMPLES is how many histories are tried.
"""

from __future__ import annotations

import os
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from queue import SimpleQueue
from random import Random
from types import FrameType
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from wasmline import dead_letters
from wasmline.consumer import BatchResult, ConsumerOptions, Delivery, Ordering, Output, RetryPolicy
from wasmline.consumer.backends.memory import MemoryBackend, MemoryCluster, MemoryTransactionalProducer
from wasmline.consumer.records import ConsumedRecord
from wasmline.consumer.runtime import committer as progress_module
from wasmline.consumer.runtime import control_loop as owner_module
from wasmline.consumer.runtime import partition_lifecycle
from wasmline.consumer.runtime.control_loop import ControlLoop
from wasmline.consumer.runtime.executors import Mailbox
from wasmline.consumer.state.calls import Batch
from wasmline.consumer.state.partition_work import PartitionWork
from wasmline.consumer.timings import Timings
from wasmline.errors import (
    BrokerUnavailable,
    CommitFailed,
    KafkaError,
    MetadataTooLarge,
    NotAuthorized,
    OutputRefused,
    TerminalFailure,
    WasmlineError,
)
from wasmline.offset_maps import DEFAULT_LIMITS, OffsetMapLimits, codec
from wasmline.topic_partitions import TopicPartition
from wasmline.transactional_ids import transactional_id

PARTITIONS = [TopicPartition("in", number) for number in range(2)]
KEYS = [b"a", b"b", b"c", b"d", b"e", b"f", b"g", b"h", None]
MOST_BYTES = 400
"""Bytes that a record of the outputs' topic or of the dead letters' may have."""

AT_ONCE = Timings(
    retry_backoff_s=0.0,
    busy_poll_interval_s=0.0,
    idle_poll_timeout_s=0.0,
    result_linger_s=0.0,
    last_commit_retry_interval_s=0.0,
)
"""The clock of the tests waits for nothing."""

FAILURES: list[tuple[WasmlineError | None, bool]] = [
    (None, False),
    (None, False),
    (CommitFailed("the group has moved on"), False),
    (BrokerUnavailable("away", bootstrap_servers="memory"), False),
    (BrokerUnavailable("away", bootstrap_servers="memory"), True),
    (KafkaError("no"), False),
    (KafkaError("no"), True),
    (NotAuthorized("no"), False),
]
"""What the next commit fails with, and whether it is carried out all the same."""

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "100"))
CHANCE = st.integers(0, 2**32).map(Random)
INTERRUPTED: list[tuple[tuple[str, ...], str, int]] = [
    (("committer.py",), "", 9),
    (("transactional_committer.py", "at_least_once_committer.py"), "", 9),
    (("transactional_committer.py", "at_least_once_committer.py"), "_take_results", 4),
    (("offsets.py",), "", 9),
    (("control_loop.py", "partition_lifecycle.py", "work_manager.py", "calls.py", "shards.py"), "", 9),
]
"""Modules, a function of theirs or all, and how many bits the number of the line has."""


class Round:
    """Stands for BackgroundCall: a call that is made when the test says, or never answered."""

    begun: Sequence[Round] = ()
    shortest_refused = sys.maxsize
    """Characters of the shortest map of which the consumer knows that the cluster does not keep it."""
    interrupted = False
    """The next one is interrupted as soon as it has begun."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self._call = call
        self._answer: tuple[Any, BaseException | None] | None = None
        self.age = 0.0
        self.lengths: Mapping[TopicPartition, int] = {}
        """Characters of its maps."""
        type(self).begun = [*self.begun, self]
        if self.interrupted:
            type(self).interrupted = False
            if len(self.begun) % 2:
                self.carry_out()  # its thread goes on
            raise KeyboardInterrupt

    def carry_out(self, lost: WasmlineError | None = None) -> None:
        """Make the call; ``lost`` is what its answer is lost to."""
        if self._answer is None:
            try:
                self._answer = self._call(), None
            except WasmlineError as error:
                self._answer = None, error
            if lost is not None:
                self._answer = None, lost

    def wait(self, timeout: float | None = None) -> bool:
        if timeout and not self.age:
            self.carry_out()
        return self._answer is not None

    def result(self) -> Any:
        assert self._answer is not None
        answer, error = self._answer
        answers = dict.fromkeys(self.lengths, error) if error is not None else answer
        refused = [
            self.lengths.get(each, sys.maxsize) for each in answers if isinstance(answers[each], MetadataTooLarge)
        ]
        type(self).shortest_refused = min(self.shortest_refused, max(refused, default=sys.maxsize))
        if error is not None:
            raise error
        return answer


class Reading:
    """Stands for BackgroundCall: a call that is made when it is looked for the second time."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self._call = call
        self._looks = 0
        self._answer: tuple[Any, BaseException | None] | None = None

    def wait(self, timeout: float) -> bool:
        self._looks += 1
        if self._answer is None and (timeout or self._looks > 1):
            try:
                self._answer = self._call(), None
            except BaseException as error:
                self._answer = None, error
        return self._answer is not None

    def result(self) -> Any:
        assert self._answer is not None
        answer, error = self._answer
        if error is not None:
            raise error
        return answer


class Clock:
    """Stands for ``time``: each look at it takes a millisecond."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def monotonic(self) -> float:
        self.now += 0.001
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Sink:
    """Writes outputs when it is polled, as many of them as chance has it; some are never acknowledged."""

    def __init__(self, cluster: MemoryCluster) -> None:
        self._cluster = cluster
        self._waiting: deque[tuple[Output, Callable[[Exception | None], None]]] = deque()
        self.chance: Random | None = None
        """None: all are written."""
        self.trouble = 0.0

    def write(self, output: Output, done: Callable[[Exception | None], None], *, alone: bool = False) -> None:
        self._waiting.append((output, done))

    @property
    def is_full(self) -> bool:
        return len(self._waiting) > 6

    def poll(self) -> None:
        chance = self.chance
        for _ in range(len(self._waiting) if chance is None else chance.randrange(len(self._waiting) + 1)):
            output, done = self._waiting.popleft()
            error: Exception | None = None
            if chance is not None and chance.random() < self.trouble:
                error = BrokerUnavailable("not acknowledged in time", bootstrap_servers="memory")
            if error is None or (chance and chance.random() < 0.5):
                try:
                    self._cluster.write(output)
                except OutputRefused as refusal:
                    error = refusal
            done(error)

    def flush(self, timeout: float) -> int:
        self.chance = None
        self.poll()
        return 0

    def close(self) -> None:
        self._waiting.clear()


class Handlers:
    """An engine that keeps what it is given until the test brings it back."""

    workers = 4

    def __init__(self, check: Callable[[Sequence[Batch]], None], room: int) -> None:
        self.room = room
        self.takes_columns = False
        self.batches: list[Batch] = []
        self._check = check

    def submit(self, batches: Sequence[Any]) -> None:
        self._check(batches)
        self.batches += batches

    def recall(self) -> Batch | None:
        return self.batches.pop() if self.batches else None

    def close(self, timeout: float) -> int:
        return 0


def outputs_of(record: ConsumedRecord, *, large: bool) -> list[Output]:
    """Return what is made of a record: none, one or two outputs, of which one may be too large for its topic."""
    count = record.offset % 3
    if record.value == b"large" and large:
        return [Output("out", b"x" * 2 * MOST_BYTES, name(record))] * (count or 1)
    return [Output("out", b"%d" % number, name(record)) for number in range(count)]


def name(record: ConsumedRecord) -> bytes:
    return b"%d/%d" % (record.partition, record.offset)


class Commits(RuleBasedStateMachine):
    """One consumer after the other on one group, through Owner, Progress and the cluster in memory."""

    @initialize(
        delivery=st.sampled_from([Delivery.EXACTLY_ONCE, Delivery.EXACTLY_ONCE, Delivery.AT_LEAST_ONCE]),
        batch_size=st.sampled_from([None, 1, 4]),
        letters=st.booleans(),
        limits=st.sampled_from(
            [(4, 8), (8, 8), (8, 12), (DEFAULT_LIMITS.back_pressure_length, DEFAULT_LIMITS.max_metadata_length)]
        ),
        keeps=st.sampled_from([1, 1, 2, 100]),
        most=st.sampled_from([(8, 10**6), (1_000, 60), (1_000, 10**6)]),
        dead_bytes=st.sampled_from([MOST_BYTES, MOST_BYTES, 100]),
        measured=st.sampled_from([2, 1_000]),
        ordering=st.sampled_from([Ordering.KEY, Ordering.UNORDERED]),
        room=st.sampled_from([20, 80]),
    )
    def begin(
        self,
        delivery: Delivery,
        batch_size: int | None,
        letters: bool,
        limits: tuple[int, int],
        keeps: int,
        most: tuple[int, int],
        dead_bytes: int,
        measured: int,
        ordering: Ordering,
        room: int,
    ) -> None:
        self.patch = pytest.MonkeyPatch()
        self.map_limits = OffsetMapLimits(
            back_pressure_length=limits[0],
            max_metadata_length=limits[1],
            measured_calls=measured,
            long_range_offsets=4,
        )
        self.clock = Clock()
        self.patch.setattr(owner_module, "time", self.clock)
        self.patch.setattr(partition_lifecycle, "time", self.clock)
        self.patch.setattr(progress_module, "BackgroundCall", Round)
        self.patch.setattr(partition_lifecycle, "BackgroundCall", Reading)
        Round.begun, Round.interrupted = [], False
        self.options = ConsumerOptions(
            topics=("in",),
            group_id="g",
            delivery=delivery,
            batch_size=batch_size,
            ordering=ordering,
            retry=RetryPolicy(delay_ms=0, max_attempts=2 if letters else None),
            dead_letter_topic="dead" if letters else None,
            buffer_records=most[0],
            buffer_bytes=most[1],
            revoke_wait_ms=0,
            commit_interval_ms=3_600_000,
        )
        self.once = delivery is Delivery.EXACTLY_ONCE
        self.cluster = MemoryCluster(max_metadata_bytes=limits[1] // keeps)
        self.cluster.create("in", len(PARTITIONS))
        self.cluster.create("out", max_message_bytes=MOST_BYTES)
        self.cluster.create("dead", max_message_bytes=dead_bytes)
        self.large, self.room, self.hangs = True, room, False
        self.letters = letters and dead_bytes == MOST_BYTES
        self.calls: Counter[bytes] = Counter()
        """How often a handler was given a record."""
        self.named: set[bytes] = set()
        """Records that the handler of a list named as failed."""
        self.start()
        self.produce(0, Random(1))
        self.produce(1, Random(2))

    def start(self) -> None:
        self.mailbox: Mailbox = SimpleQueue()
        self.handlers = Handlers(self.only_what_lets_outputs_go, self.room)
        self.backend = MemoryBackend(self.cluster, self.options)
        self.sink = Sink(self.cluster)
        self.patch.setattr(self.backend, "sink", self.sink)
        Round.shortest_refused = sys.maxsize
        self.owner = ControlLoop(self.options, self.backend, self.handlers, self.mailbox, AT_ONCE, self.map_limits)
        self.patch.setattr(self.owner._lifecycle, "reopen", partial(self.reopen, self.owner._lifecycle.reopen))
        self.patch.setattr(
            self.owner._committer, "_substitute", partial(self.replace, self.owner._committer._substitute)
        )
        self.backend.source.open(self.owner)

    def reopen(self, reopen: Callable[..., None], work: PartitionWork, error: WasmlineError, *cut: int | None) -> None:
        """Nothing begins anew over a commit that surely was not carried out, or that never will be."""
        assert not isinstance(error, CommitFailed | NotAuthorized), error
        assert self.hangs or str(error) != str(progress_module.no_answer_error())
        reopen(work, error, *cut)

    def replace(self, replace: Callable[..., Any], work: PartitionWork, *refused: Any) -> Any:
        """What is refused of a partition that is gone is its next owner's to see to."""
        assert not work.closed
        return replace(work, *refused)

    @contextmanager
    def ending(self) -> Iterator[None]:
        """Where an exception ends the consumer, what is done is committed, and another one begins."""
        try:
            yield
        except (WasmlineError, KeyboardInterrupt) as error:
            note(f"ended by {error!r}")
            self.end(Random(0), is_whole=not isinstance(error, KeyboardInterrupt))

    def end(self, chance: Random, *, is_whole: bool = True) -> None:
        """End as ``ParallelConsumer.run`` does, while some handlers return."""
        self.bring_back(0.5, 0.0, chance)
        try:
            self.owner.finish(self.clock.now + 0.02)
        except WasmlineError as error:
            note(f"and {error!r}")
        else:
            assert not self.sink._waiting, "all outputs are written"
        if is_whole and self.backend.source.member.is_member:
            self.what_is_done_is_committed()
        for close in (self.backend.source.close, self.backend.sink.close, self.backend.transactions.close):
            try:
                close()
            except WasmlineError as error:
                note(f"and {error!r}")
        self.start()

    # -- records and handlers ----------------------------------------------------------------------------------------

    @rule(number=st.integers(0, 1), chance=CHANCE)
    def produce(self, number: int, chance: Random) -> None:
        for _ in range(chance.randrange(6, 24)):
            value = chance.choice([*[b""] * 8, b"large", b"v" * 2 * MOST_BYTES])
            self.cluster.write(Output("in", value, chance.choice(KEYS), partition=number))
        self.live(chance)

    @rule(chance=CHANCE)
    def live(self, chance: Random) -> None:
        """Records are read and handled, rounds begin, are carried out, fail, and are answered or not."""
        haste = chance.choice([0.3, 0.8, 1.0])
        self.sink.chance, self.sink.trouble = chance, chance.choice([0.0, 0.0, 0.1])
        trouble, failing = chance.choice([0.0, 0.0, 0.5]), chance.choice([0.0, 0.0, 0.5])
        for _ in range(chance.randrange(1, 8)):
            self.run_once()
            self.bring_back(haste, trouble, chance)
            self.run_once()
            if chance.random() < haste:
                self.commit()
            self.run_once()
            if chance.random() < haste:
                self.carry_out(chance.choice(FAILURES) if chance.random() < failing else (None, False), chance)
            self.what_is_committed_has_its_outputs()

    def run_once(self) -> None:
        with self.ending():
            self.owner.run_once()

    def bring_back(self, haste: float, trouble: float, chance: Random) -> None:
        """Some calls return, in any order."""
        batches, self.handlers.batches = self.handlers.batches, []
        for batch in chance.sample(batches, len(batches)):
            if chance.random() > haste:
                self.handlers.batches.append(batch)
                continue
            following: Batch | None = batch
            while following is not None:
                following.result = self.result_of(following.records, trouble, chance)
                self.mailbox.put(following)
                following = following.follow()

    def result_of(self, records: Sequence[ConsumedRecord], trouble: float, chance: Random) -> BatchResult | Exception:
        self.calls.update(map(name, records))
        if chance.random() < trouble / 2:
            return chance.choice([OSError("all of it"), TerminalFailure("\udc80 no")])
        failures: Mapping[int, Exception] = {
            place: OSError("one") for place in range(len(records)) if chance.random() < trouble / 2
        }
        if len(records) > 1:
            self.named.update(name(records[place]) for place in failures)
        rows = [
            (output, place)
            for place, record in enumerate(records)
            if place not in failures
            for output in outputs_of(record, large=self.large)
        ]
        known = [place for _, place in rows] if chance.random() < 0.5 else None
        return BatchResult([output for output, _ in rows], failures, known)

    # -- commits -----------------------------------------------------------------------------------------------------

    def commit(self) -> None:
        """Begin a round; it is carried out later, or never."""
        with self.ending():
            begins = (
                not self.owner._committer.is_busy and self.owner._committer.commit() and self.owner._committer.is_busy
            )
            if begins and Round.begun:
                commits = self.owner._committer._commits
                Round.begun[-1].lengths = {work.partition: len(commit.metadata) for work, commit in commits.items()}
                assert max(Round.begun[-1].lengths.values(), default=-1) < Round.shortest_refused

    def carry_out(self, failure: tuple[WasmlineError | None, bool], chance: Random) -> None:
        """Carry out one of the rounds that were begun: perhaps one that was given up, by a consumer that is gone.

        Commits without a transaction keep their order, as those of one client do.
        """
        if not Round.begun:
            return
        each = chance.choice(Round.begun) if self.once else Round.begun[0]
        Round.begun = [other for other in Round.begun if other is not each]
        error, carried_out = failure
        lost = error if carried_out and chance.random() < 0.5 else None
        if error is not None and lost is None:
            if chance.random() < 0.5:
                self.cluster._failing.append((None, True))  # type: ignore[arg-type]  # the second partition's fails
            self.cluster.fail_next_commit(error, carried_out=carried_out)
        each.carry_out(lost)
        self.cluster._failing.clear()

    def begin_round(self, chance: Random) -> None:
        self.produce(chance.randrange(2), chance)
        self.run_once()
        self.bring_back(1.0, 0.0, chance)
        self.run_once()
        self.commit()

    @rule(chance=CHANCE)
    def hang(self, chance: Random) -> None:
        """A round is not answered; it may be carried out whenever."""
        self.live(chance)
        self.begin_round(chance)
        for each in Round.begun:
            each.age = progress_module.COMMIT_TIMEOUT_S
        works, owner, self.hangs = list(self.owner._committer._commits), self.owner, True
        self.run_once()
        assert self.owner is not owner or all(work.closed for work in works), "it begins anew"
        self.hangs = False

    # -- what else happens -------------------------------------------------------------------------------------------

    @rule(chance=CHANCE)
    def stop(self, chance: Random) -> None:
        self.live(chance)
        self.end(chance)

    @rule(chance=CHANCE)
    def crash(self, chance: Random) -> None:
        """The consumer is gone without a word; another gets its partitions."""
        self.live(chance)
        self.backend.remove_from_group()
        with self.cluster.atomic():
            self.backend.source.member.owned.clear()
        self.start()

    @rule(chance=CHANCE)
    def lose(self, chance: Random) -> None:
        """The group goes on without this member, which comes back, while a round is under way."""
        self.live(chance)
        self.begin_round(chance)
        is_answered = chance.random() < 0.5
        while is_answered and Round.begun:
            self.carry_out((None, False), chance)
        self.backend.remove_from_group()
        self.run_once()
        while Round.begun:
            self.carry_out((None, False), chance)
        self.run_once()

    @rule(partition=st.sampled_from(PARTITIONS), chance=CHANCE)
    def compact(self, partition: TopicPartition, chance: Random) -> None:
        """Any record but the last may vanish, those that a commit calls incomplete among them."""
        self.cluster.compact(
            partition, [offset for offset in range(self.cluster.log(partition).end - 1) if chance.random() < 0.3]
        )

    @rule(partition=st.sampled_from(PARTITIONS), chance=CHANCE)
    def fence(self, partition: TopicPartition, chance: Random) -> None:
        self.live(chance)
        MemoryTransactionalProducer(self.cluster, transactional_id("g", partition))

    @rule(chance=CHANCE)
    def interrupt(self, chance: Random) -> None:
        """Ctrl-C at any line of the owner's thread."""
        self.live(chance)
        modules, function, bits = chance.choice(INTERRUPTED)
        left = int(2 ** chance.uniform(0, bits))

        def trace(frame: FrameType, event: str, _: Any) -> Any:
            nonlocal left
            if not frame.f_code.co_filename.endswith(modules) or function not in ("", frame.f_code.co_name):
                return None
            if event == "line":
                left -= 1
                if left == 0:
                    raise KeyboardInterrupt
            return trace

        self.run_once()
        before = sys.gettrace()
        Round.interrupted = chance.random() < 0.3
        with self.ending():
            sys.settrace(trace)
            try:
                for _ in range(3):
                    self.bring_back(0.8, 0.0, chance)
                    self.owner.run_once()
                    self.owner._committer.commit()
                    self.carry_out((None, False), chance)
                    self.owner.run_once()
            finally:
                sys.settrace(before)
                Round.interrupted = False

    # -- what holds --------------------------------------------------------------------------------------------------

    def done(self) -> set[bytes]:
        """Return the records that are committed as done."""
        found = set()
        for partition, left in self.cluster.committed("g").items():
            highest, incompletes = codec.decode(left.metadata, left.offset)
            numbers = set(range(max(left.offset, highest + 1))) - set(incompletes)
            found |= {b"%d/%d" % (partition.partition, number) for number in numbers}
        return found

    @invariant()
    def what_is_committed_has_its_outputs(self) -> None:
        outputs = Counter((record.key, record.value) for record in self.cluster.records("out"))
        letters: Counter[bytes] = Counter()
        cut: Counter[bytes] = Counter()
        for record in self.cluster.records("dead"):
            headers = {header: value or b"" for header, value in record.headers}
            source = b"%s/%s" % (headers["wasmline.source.partition"], headers["wasmline.source.offset"])
            letters[source] += 1
            cut[source] += dead_letters.TRUNCATED in headers
        done = self.done()
        for record in self.cluster.records("in"):
            expected = Counter((each.key, each.value) for each in outputs_of(record, large=False))
            seen = Counter({each: count for each, count in outputs.items() if each[0] == name(record)})
            letter = letters[name(record)]
            if name(record) not in done:
                assert not self.once or (not seen and not letter), record
            elif self.once:
                assert (seen, letter) in ((expected, 0), (Counter(), 1)), (record, seen, letter)
            else:
                assert letter or seen >= expected, record
            assert letter <= self.calls[name(record)], record
            assert all(count <= self.calls[name(record)] * expected.get(each, 1) for each, count in seen.items()), (
                record
            )
            assert bool(cut[name(record)]) == (bool(letter) and record.size > MOST_BYTES), record

    @invariant()
    def no_record_is_done_before_an_earlier_one_of_its_key(self) -> None:
        """But for what the handler of a list says, and exactly once, for records without outputs."""
        if self.options.ordering is Ordering.UNORDERED:
            return
        done = self.done()
        left: dict[tuple[int, bytes | None], ConsumedRecord] = {}
        for record in self.cluster.records("in"):
            shard = record.partition, None if self.options.ordering is Ordering.PARTITION else record.key
            if name(record) not in done:
                if name(record) not in self.named:
                    left.setdefault(shard, record)
            elif not self.once or outputs_of(record, large=False):
                assert shard not in left, (record, left[shard])

    @invariant()
    def nobody_writes_what_is_not_assigned(self) -> None:
        if self.once:
            assigned = self.backend.source.member.owned
            assert self.backend.transactions._writers.keys() <= assigned, "its producer would stay"

    def log(self, partition: TopicPartition) -> list[ConsumedRecord]:
        return [each for each in self.cluster.records("in") if each.partition == partition.partition]

    def what_is_done_is_committed(self) -> None:
        """Hold of a consumer that has ended, of what it is sure of, unless a map was too large."""
        committed = self.cluster.committed("g")
        for work in self.owner.work:
            offsets = work.offsets
            if not work.uncertain and not offsets.is_held_back and offsets.revision:
                assert offsets.commit() is None, work.partition
                assert offsets.base is not None
                left_out = range(committed[work.partition].offset, offsets.base)  # at most what compaction removed
                assert not [each for each in self.log(work.partition) if each.offset in left_out], work.partition

    def only_what_lets_outputs_go(self, batches: Sequence[Batch]) -> None:
        """Hold of what is handed out while as many outputs wait as may be, or as large ones."""
        if self.sink.is_full:
            assert all(batch.work.offsets.blocked for batch in batches)
        if self.once:
            progress: Any = self.owner._committer
            outputs = [each.output for waiting in progress._outputs.values() for each in waiting.waiting]
            if len(outputs) >= self.options.buffer_records or (
                sum(output.size for output in outputs) >= self.options.buffer_bytes
            ):
                assert all(batch.work.offsets.blocked for batch in batches)

    def teardown(self) -> None:
        try:
            self.drain()
        finally:
            self.patch.undo()

    def drain(self) -> None:
        """Handlers that now succeed get everything done, but for outputs that are too large, which become letters."""
        self.large = self.letters
        self.cluster._failing.clear()
        self.sink.chance = None
        chance = Random(0)
        ends = {partition: self.cluster.log(partition).end for partition in PARTITIONS}
        for _ in range(50 + 4 * len(self.cluster.records("in"))):
            self.bring_back(1.0, 0.0, chance)
            self.run_once()
            self.commit()
            while Round.begun:
                self.carry_out((None, False), chance)
            self.run_once()
            if {each: left.offset for each, left in self.cluster.committed("g").items()} == ends:
                break
        else:
            raise AssertionError(f"never done: {self.cluster.committed('g')}, {self.owner.work.queued} queued")
        self.what_is_committed_has_its_outputs()


Commits.TestCase.settings = settings(
    max_examples=EXAMPLES,
    stateful_step_count=12,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    report_multiple_bugs=False,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),  # most is decided by seeds, which do not shrink
)
TestCommits = Commits.TestCase
