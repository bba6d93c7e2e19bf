"""Exactly-once at its edges: what is committed has its outputs, each once, whatever ended a round or the consumer."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from clusters import Cluster, Memory, numbered
from running import PATIENCE, Ledger, Running, drained, ended
from wasmline.consumer import (
    ConsumedRecord,
    ConsumerOptions,
    Ordering,
    Output,
    RetryPolicy,
    assignment,
    offset_codec,
    offsets,
    progress,
)
from wasmline.consumer.errand import Errand
from wasmline.consumer.offset_codec import decode
from wasmline.errors import OutputRefused, RecordGivenUp, TopicNotFound
from wasmline.records import TopicPartition

RECORDS = 20
LARGE = 13
"""The record whose output is too large for its topic."""

NEVER = RetryPolicy(delay_ms=3_600_000, max_delay_ms=3_600_000)


@pytest.fixture
def ledger() -> Ledger:
    return Ledger()


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Partitions that begin anew do so at once."""
    monkeypatch.setattr(assignment, "BACK_OFF", 0.01)


def options(topic: str, group: str, **others: Any) -> ConsumerOptions:
    return ConsumerOptions(topics=(topic,), group_id=group, delivery="exactly_once", **others)  # type: ignore[arg-type]


def done(cluster: Cluster, group: str, topic: str) -> set[int]:
    """Return the offsets of partition 0 that the group has committed as done."""
    left = cluster.committed(group, topic).get(TopicPartition(topic, 0))
    if left is None:
        return set()
    highest, incompletes = decode(left.metadata, left.offset)
    return set(range(max(left.offset, highest + 1))) - set(incompletes)


def written(cluster: Cluster, *topics: str) -> list[int]:
    """Return the offsets of the inputs whose outputs a read_committed reader sees."""
    return sorted(int(record.key or b"") for topic in topics for record in cluster.read(topic))


def output(target: str, record: ConsumedRecord, large: int = LARGE) -> Output:
    return Output(target, b"x" * 50_000 if record.offset == large else b"", b"%d" % record.offset)


@pytest.mark.parametrize("batch_size", [None, 50])
@pytest.mark.parametrize("letters", [True, False], ids=["dead letters", "no dead letters"])
def test_an_output_that_is_too_large_takes_no_other_with_it(
    cluster: Cluster, group: str, batch_size: int | None, letters: bool
) -> None:
    topic, target, dead = cluster.topic(), cluster.topic(max_message_bytes=10_000), cluster.topic()
    cluster.write(*numbered(topic, RECORDS, keys=RECORDS))

    def one(record: ConsumedRecord) -> Output:
        return output(target, record)

    def several(records: Sequence[ConsumedRecord]) -> list[Output]:
        return [one(record) for record in records]

    asked = options(
        topic, group, batch_size=batch_size, commit_interval_ms=50, dead_letter_topic=dead if letters else None
    )
    handler: Callable[[Any], Any] = several if batch_size else one
    others = [number for number in range(RECORDS) if number != LARGE]
    if letters:
        with Running(cluster, asked, handler) as running:
            running.until(lambda _: done(cluster, group, topic) == set(range(RECORDS)))
        assert running.failure is None
        assert [record.value for record in cluster.read(dead)] == [b"%d" % LARGE]
        assert written(cluster, target) == others
    else:
        failed = ended(cluster, asked, handler)
        assert isinstance(failed.failure, RecordGivenUp)
        assert failed.failure.offset == LARGE
        assert written(cluster, target) == sorted(done(cluster, group, topic))
        assert LARGE not in done(cluster, group, topic)
        if batch_size is None:
            assert written(cluster, target) == others
    finished = Ledger()
    first = done(cluster, group, topic)

    def finish(record: ConsumedRecord) -> Output:
        finished.note(record)
        return output(target, record, large=-1)

    drained(cluster, options(topic, group), finished, finish, RECORDS - len(first))
    assert written(cluster, target) == (others if letters else list(range(RECORDS)))


def test_a_missing_output_topic_ends_the_consumer_and_no_commit_is_without_its_outputs(
    cluster: Cluster, group: str
) -> None:
    topic, target = cluster.topic(2), cluster.topic()
    cluster.write(*numbered(topic, RECORDS, keys=RECORDS), *numbered(topic, 5, partition=1))

    def work(record: ConsumedRecord) -> Output:
        return output(target if (record.partition, record.offset) != (0, LARGE) else "no-such-topic", record, large=-1)

    failed = ended(cluster, options(topic, group, commit_interval_ms=50), work)
    assert isinstance(failed.failure, TopicNotFound)
    left = cluster.committed(group, topic).get(TopicPartition(topic, 1))
    expected = Counter(done(cluster, group, topic)) + Counter(range(left.offset if left else 0))
    assert Counter(written(cluster, target)) == expected
    assert LARGE not in done(cluster, group, topic)


class _Interrupted(Errand[Any]):
    """The first round is interrupted where it begins, before or after its thread does."""

    late = False
    count = 0

    def __init__(self, call: Callable[[], Any]) -> None:
        type(self).count += 1
        if self.count > 1:
            super().__init__(call)
            return
        if self.late:
            super().__init__(call)
            assert self.wait(PATIENCE)
        raise KeyboardInterrupt


@pytest.mark.parametrize("late", [False, True], ids=["before it is carried out", "after"])
def test_an_interrupt_as_a_round_begins_neither_loses_nor_doubles(
    cluster: Cluster, group: str, ledger: Ledger, late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, target = cluster.topic(), cluster.topic()
    cluster.write(*numbered(topic, RECORDS, keys=RECORDS))
    monkeypatch.setattr(_Interrupted, "late", late)
    monkeypatch.setattr(_Interrupted, "count", 0)
    monkeypatch.setattr(progress, "Errand", _Interrupted)

    def work(record: ConsumedRecord) -> Output:
        return output(target, record, large=-1)

    failed = ended(cluster, options(topic, group, commit_interval_ms=50), work)
    assert isinstance(failed.failure, KeyboardInterrupt)
    first = done(cluster, group, topic)
    assert written(cluster, target) == sorted(first)
    rest = RECORDS - len(first)

    def finish(record: ConsumedRecord) -> Output:
        ledger.note(record)
        return work(record)

    if rest:
        drained(cluster, options(topic, group), ledger, finish, rest)
    assert written(cluster, target) == list(range(RECORDS))


@pytest.mark.parametrize("place", ["complete", "moment", "settle"])
def test_an_interrupt_between_any_two_steps_neither_loses_nor_doubles(
    memory: Memory, group: str, ledger: Ledger, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C may be delivered wherever the owner is."""
    from wasmline.consumer.exactly_once import ExactlyOnce, _Outputs
    from wasmline.consumer.work import Work

    topic, target = memory.topic(), memory.topic()
    memory.write(*numbered(topic, RECORDS, keys=RECORDS))
    owner, name = {
        "complete": (Work, "complete"),
        "moment": (_Outputs, "add"),
        "settle": (ExactlyOnce, "_failed"),
    }[place]
    real, calls = getattr(owner, name), []

    def interrupted(*given: Any) -> Any:
        calls.append(name)
        if len(calls) == (1 if place == "settle" else 8):
            raise KeyboardInterrupt
        return real(*given)

    monkeypatch.setattr(owner, name, interrupted)

    def work(record: ConsumedRecord) -> Output:
        return output(target, record, large=-1)

    failed = ended(memory, options(topic, group, commit_interval_ms=50), work)
    assert isinstance(failed.failure, KeyboardInterrupt)
    first = done(memory, group, topic)
    assert written(memory, target) == sorted(first)

    def finish(record: ConsumedRecord) -> Output:
        ledger.note(record)
        return work(record)

    if first != set(range(RECORDS)):
        drained(memory, options(topic, group), ledger, finish, RECORDS - len(first))
    assert written(memory, target) == list(range(RECORDS))


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    gate = threading.Event()
    yield gate
    gate.set()


def test_outputs_whose_map_does_not_fit_wait_and_are_not_written_again_after_a_restart(
    cluster: Cluster, group: str, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More finishes out of order between two commits than a broker keeps."""
    monkeypatch.setattr(offset_codec, "PRESSURE", 40)
    monkeypatch.setattr(offset_codec, "MAX_LENGTH", 60)
    monkeypatch.setattr(offsets, "MEASURED_CALLS", 4)
    monkeypatch.setattr(offsets, "LONG_RANGE_OFFSETS", 20)
    topic, target = cluster.topic(), cluster.topic()
    cluster.write(*numbered(topic, 400))
    stuck = [number for number in range(400) if pow(3, number, 65_537) % 2]
    waits = threading.Event()

    def work(record: ConsumedRecord) -> Output:
        ledger.note(record)
        if record.offset in stuck and not waits.is_set():
            raise OSError("not now")
        return output(target, record, large=-1)

    asked = options(topic, group, ordering=Ordering.UNORDERED, retry=NEVER, commit_interval_ms=100)
    with Running(cluster, asked, work) as running:
        running.until(lambda health: health.partitions and health.partitions[0].blocked)
        running.until(lambda _: done(cluster, group, topic))
    assert running.failure is None
    first = done(cluster, group, topic)
    assert written(cluster, target) == sorted(first)
    assert len(first) < len(set(range(400)) - set(stuck))
    waits.set()
    again = Ledger()

    def finish(record: ConsumedRecord) -> Output:
        again.note(record)
        return output(target, record, large=-1)

    asked = options(topic, group, ordering=Ordering.UNORDERED)
    drained(cluster, asked, again, finish, 400 - len(first))
    assert written(cluster, target) == list(range(400))


def test_outputs_that_cannot_be_committed_yet_do_not_hold_up_what_lets_them_go(
    memory: Memory, group: str, ledger: Ledger, gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The buffer is full of outputs whose map does not fit, and only the records below would make it smaller."""
    monkeypatch.setattr(offset_codec, "PRESSURE", 10)
    monkeypatch.setattr(offset_codec, "MAX_LENGTH", 12)
    topic, target = memory.topic(), memory.topic()
    memory.write(*numbered(topic, 60, keys=60))

    def work(record: ConsumedRecord) -> list[Output]:
        ledger.note(record)
        if record.offset % 2 == 0 and record.attempt == 1:
            raise OSError("not now")
        return [output(target, record, large=-1)] * 5

    asked = options(topic, group, retry=RetryPolicy(delay_ms=200), buffer_records=60, commit_interval_ms=1)
    drained(memory, asked, ledger, work, 90)
    assert Counter(written(memory, target)) == Counter(list(range(60)) * 5)


def test_a_letter_that_no_topic_takes_ends_the_consumer_and_loses_nothing(
    cluster: Cluster, group: str, ledger: Ledger
) -> None:
    topic, dead = cluster.topic(), cluster.topic(max_message_bytes=150)
    cluster.write(*numbered(topic, 5, keys=5))

    def work(record: ConsumedRecord) -> None:
        if record.offset == 3:
            raise ValueError("no")

    asked = options(topic, group, dead_letter_topic=dead, retry=RetryPolicy(max_attempts=1), commit_interval_ms=50)
    failed = ended(cluster, asked, work)
    assert isinstance(failed.failure, OutputRefused)
    assert 3 not in done(cluster, group, topic)
    assert cluster.read(dead) == []
