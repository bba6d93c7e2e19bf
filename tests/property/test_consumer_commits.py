"""The commit side of the consumer under a cluster and handlers that fail in every way, and interrupts anywhere.

What holds after each step, exactly once: a record that is committed as done, by the offset or by the map, has all of
its outputs or one dead letter readable, each once; of any other record nothing is readable. At least once: a record
that is committed as done has its outputs, or a dead letter, readable.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from queue import SimpleQueue
from random import Random
from types import FrameType
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from wasmline.consumer import (
    ConsumerOptions,
    Delivery,
    Ordering,
    Outcome,
    Output,
    RetryPolicy,
    assignment,
    offset_codec,
)
from wasmline.consumer import offsets as offsets_module
from wasmline.consumer import owner as owner_module
from wasmline.consumer import progress as progress_module
from wasmline.consumer.backend import transactional_id
from wasmline.consumer.memory import MemoryBackend, MemoryCluster, MemoryWriter
from wasmline.consumer.owner import Owner
from wasmline.consumer.records import ConsumedRecord
from wasmline.consumer.work import Batch
from wasmline.errors import BrokerUnavailable, CommitFailed, KafkaError, TerminalFailure, WasmlineError
from wasmline.records import TopicPartition

PARTITIONS = [TopicPartition("in", number) for number in range(2)]
KEYS = [b"a", b"b", b"c", b"d", b"e", b"f", b"g", b"h", None]
MOST_BYTES = 400
"""Bytes that a record of the outputs' topic or of the dead letters' may have."""

FAILURES: list[tuple[WasmlineError | None, bool]] = [
    (None, False),
    (None, False),
    (CommitFailed("the group has moved on"), False),
    (BrokerUnavailable("away", bootstrap_servers="memory"), False),
    (BrokerUnavailable("away", bootstrap_servers="memory"), True),
    (KafkaError("no"), False),
    (KafkaError("no"), True),
]
"""What the next commit fails with, and whether it is carried out all the same."""

CHANCE = st.integers(0, 2**32).map(Random)
INTERRUPTED = [
    ("exactly_once.py", "at_least_once.py", "progress.py", "offsets.py"),
    ("owner.py", "assignment.py", "work.py", "shards.py"),
]


class Round:
    """Stands for Errand: a call that is made when the test says, or never answered."""

    begun: Sequence[Round] = ()

    def __init__(self, call: Callable[[], Any]) -> None:
        self._call = call
        self._answer: tuple[Any, BaseException | None] | None = None
        self.age = 0.0
        type(self).begun = [*self.begun, self]

    def carry_out(self) -> None:
        if self._answer is None:
            try:
                self._answer = self._call(), None
            except WasmlineError as error:
                self._answer = None, error

    def wait(self, timeout: float | None = None) -> bool:
        if timeout and not self.age:
            self.carry_out()
        return self._answer is not None

    def result(self) -> Any:
        assert self._answer is not None
        answer, error = self._answer
        if error is not None:
            raise error
        return answer


class Handlers:
    """An engine that keeps what it is given until the test brings it back."""

    workers, room = 4, 20

    def __init__(self) -> None:
        self.batches: list[Batch] = []

    def submit(self, batches: Sequence[Batch]) -> None:
        self.batches += batches

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
        limits=st.sampled_from([(8, 12), (12, 16), (offset_codec.PRESSURE, offset_codec.MAX_LENGTH)]),
        most=st.sampled_from([8, 1_000]),
        measured=st.sampled_from([2, 1_000]),
        ordering=st.sampled_from([Ordering.KEY, Ordering.UNORDERED]),
    )
    def begin(
        self,
        delivery: Delivery,
        batch_size: int | None,
        letters: bool,
        limits: tuple[int, int],
        most: int,
        measured: int,
        ordering: Ordering,
    ) -> None:
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(offset_codec, "PRESSURE", limits[0])
        self.patch.setattr(offset_codec, "MAX_LENGTH", limits[1])
        self.patch.setattr(offsets_module, "MEASURED_CALLS", measured)
        self.patch.setattr(offsets_module, "LONG_RANGE_OFFSETS", 4)
        self.patch.setattr(assignment, "BACK_OFF", 0.0)
        for wait in ("LOOK", "IDLE", "LINGER", "AGAIN"):
            self.patch.setattr(owner_module, wait, 0.0)
        self.patch.setattr(progress_module, "Errand", Round)
        Round.begun = []
        self.options = ConsumerOptions(
            topics=("in",),
            group_id="g",
            delivery=delivery,
            batch_size=batch_size,
            ordering=ordering,
            retry=RetryPolicy(delay_ms=0, max_attempts=2 if letters else None),
            dead_letter_topic="dead" if letters else None,
            buffer_records=most,
            revoke_wait_ms=0,
            commit_interval_ms=3_600_000,
        )
        self.once = delivery is Delivery.EXACTLY_ONCE
        self.cluster = MemoryCluster()
        self.cluster.create("in", len(PARTITIONS))
        self.cluster.create("out", max_message_bytes=MOST_BYTES)
        self.cluster.create("dead", max_message_bytes=MOST_BYTES)
        self.large = True
        self.start()
        self.produce(0, Random(1))
        self.produce(1, Random(2))

    def start(self) -> None:
        self.mailbox: SimpleQueue[Batch | None] = SimpleQueue()
        self.handlers = Handlers()
        self.backend = MemoryBackend(self.cluster, self.options)
        self.owner = Owner(self.options, self.backend, self.handlers, self.mailbox)
        self.backend.source.open(self.owner)

    @contextmanager
    def ending(self) -> Iterator[None]:
        """Where an exception ends the consumer, what is done is committed, and another one begins."""
        try:
            yield
        except (WasmlineError, KeyboardInterrupt) as error:
            note(f"ended by {error!r}")
            self.end()

    def end(self) -> None:
        """End as ``ParallelConsumer.run`` does."""
        try:
            self.owner.finish(0.0)
        except WasmlineError as error:
            note(f"and {error!r}")
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
        trouble, failing = chance.choice([0.0, 0.0, 0.5]), chance.choice([0.0, 0.0, 0.5])
        for _ in range(chance.randrange(1, 8)):
            self.turn()
            self.bring_back(haste, trouble, chance)
            self.turn()
            if chance.random() < haste:
                self.commit()
            self.turn()
            if chance.random() < haste:
                self.carry_out(chance.choice(FAILURES) if chance.random() < failing else (None, False), chance)
            self.what_is_committed_has_its_outputs()

    def turn(self) -> None:
        with self.ending():
            self.owner.turn()

    def bring_back(self, haste: float, trouble: float, chance: Random) -> None:
        """Some calls return, in any order."""
        batches, self.handlers.batches = self.handlers.batches, []
        for batch in chance.sample(batches, len(batches)):
            if chance.random() > haste:
                self.handlers.batches.append(batch)
                continue
            following: Batch | None = batch
            while following is not None:
                following.outcome = self.outcome(following.records, trouble, chance)
                self.mailbox.put(following)
                following = following.following

    def outcome(self, records: Sequence[ConsumedRecord], trouble: float, chance: Random) -> Outcome | Exception:
        if chance.random() < trouble / 2:
            return chance.choice([OSError("all of it"), TerminalFailure("\udc80 no")])
        failures: Mapping[int, Exception] = {
            place: OSError("one") for place in range(len(records)) if chance.random() < trouble / 2
        }
        rows = [
            (output, place)
            for place, record in enumerate(records)
            if place not in failures
            for output in outputs_of(record, large=self.large)
        ]
        known = [place for _, place in rows] if chance.random() < 0.5 else None
        return Outcome([output for output, _ in rows], failures, known)

    # -- commits -----------------------------------------------------------------------------------------------------

    def commit(self) -> None:
        """Begin a round; it is carried out later, or never."""
        with self.ending():
            self.owner._progress.commit()

    def carry_out(self, failure: tuple[WasmlineError | None, bool], chance: Random) -> None:
        """Carry out one of the rounds that were begun: perhaps one that was given up, by a consumer that is gone.

        Commits without a transaction keep their order, as those of one client do.
        """
        if not Round.begun:
            return
        each = chance.choice(Round.begun) if self.once else Round.begun[0]
        Round.begun = [other for other in Round.begun if other is not each]
        error, carried_out = failure
        if error is not None:
            self.cluster.fail_next_commit(error, carried_out=carried_out)
        each.carry_out()
        self.cluster._failing.clear()

    @rule(chance=CHANCE)
    def hang(self, chance: Random) -> None:
        """A round is not answered; it may be carried out whenever."""
        self.live(chance)
        self.commit()
        for each in Round.begun:
            each.age = progress_module.GIVE_UP
        self.turn()

    # -- what else happens -------------------------------------------------------------------------------------------

    @rule(chance=CHANCE)
    def stop(self, chance: Random) -> None:
        self.live(chance)
        with self.ending():
            self.owner.finish(0.0)
            self.backend.source.close()
            self.backend.transactions.close()
            self.start()

    @rule(chance=CHANCE)
    def crash(self, chance: Random) -> None:
        """The consumer is gone without a word; another gets its partitions."""
        self.live(chance)
        self.backend.expel()
        with self.cluster.change():
            self.backend.source.member.owned.clear()
        self.start()

    @rule(chance=CHANCE)
    def lose(self, chance: Random) -> None:
        """The group goes on without this member, which comes back."""
        self.live(chance)
        self.backend.expel()
        self.turn()

    @rule(partition=st.sampled_from(PARTITIONS), chance=CHANCE)
    def fence(self, partition: TopicPartition, chance: Random) -> None:
        self.live(chance)
        MemoryWriter(self.cluster, transactional_id("g", partition))

    @rule(chance=CHANCE)
    def interrupt(self, chance: Random) -> None:
        """Ctrl-C at any line of the owner's thread."""
        self.live(chance)
        left, modules = chance.randrange(1, 400), chance.choice(INTERRUPTED)

        def trace(frame: FrameType, event: str, _: Any) -> Any:
            nonlocal left
            if not frame.f_code.co_filename.endswith(modules):
                return None
            if event == "line":
                left -= 1
                if left == 0:
                    raise KeyboardInterrupt
            return trace

        self.turn()
        before = sys.gettrace()
        with self.ending():
            sys.settrace(trace)
            try:
                for _ in range(3):
                    self.bring_back(0.8, 0.0, chance)
                    self.owner.turn()
                    self.owner._progress.commit()
                    self.carry_out((None, False), chance)
                    self.owner.turn()
            finally:
                sys.settrace(before)

    # -- what holds --------------------------------------------------------------------------------------------------

    def done(self) -> set[bytes]:
        """Return the records that are committed as done."""
        found = set()
        for partition, left in self.cluster.committed("g").items():
            highest, incompletes = offset_codec.decode(left.metadata, left.offset)
            numbers = set(range(max(left.offset, highest + 1))) - set(incompletes)
            found |= {b"%d/%d" % (partition.partition, number) for number in numbers}
        return found

    @invariant()
    def what_is_committed_has_its_outputs(self) -> None:
        outputs = Counter((record.key, record.value) for record in self.cluster.records("out"))
        letters: Counter[bytes] = Counter()
        for record in self.cluster.records("dead"):
            headers = {header: value or b"" for header, value in record.headers}
            letters[b"%s/%s" % (headers["wasmline.source.partition"], headers["wasmline.source.offset"])] += 1
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

    def teardown(self) -> None:
        try:
            self.drain()
        finally:
            self.patch.undo()

    def drain(self) -> None:
        """Handlers that now succeed get everything done."""
        self.large = False
        self.cluster._failing.clear()
        chance = Random(0)
        for _ in range(50 + 4 * len(self.cluster.records("in"))):
            self.bring_back(1.0, 0.0, chance)
            self.turn()
            self.commit()
            while Round.begun:
                self.carry_out((None, False), chance)
            self.turn()
            if self.done() == {name(record) for record in self.cluster.records("in")}:
                break
        else:
            raise AssertionError(f"never done: {self.cluster.committed('g')}, {self.owner.work.queued} queued")
        self.what_is_committed_has_its_outputs()


Commits.TestCase.settings = settings(
    max_examples=100,
    stateful_step_count=12,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    report_multiple_bugs=False,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),  # most is decided by seeds, which do not shrink
)
TestCommits = Commits.TestCase
