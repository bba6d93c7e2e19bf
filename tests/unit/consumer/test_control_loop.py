"""What the owner's thread does in one turn after the other."""

import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from queue import SimpleQueue
from typing import Any

import pytest

from wasmline.consumer import (
    BatchResult,
    ConsumedRecord,
    ConsumerOptions,
    Delivery,
    Output,
    ParallelConsumer,
    RetryPolicy,
    State,
)
from wasmline.consumer.backends.memory import MemoryBackend, MemoryCluster
from wasmline.consumer.handler_adapters import executor_for
from wasmline.consumer.runtime import control_loop
from wasmline.consumer.runtime.executors import Mailbox
from wasmline.consumer.state.calls import Call
from wasmline.consumer.timings import Timings
from wasmline.topic_partitions import TopicPartition

TIMEOUT_S = 10.0
RECORDS = 3_000
HOUR_MS = 3_600_000
OPTIONS = ConsumerOptions(topics=("in",), group_id="g", max_concurrency=2)


class Handlers:
    """An engine whose handlers return at once, or not at all."""

    workers, room = 2, 4
    takes_columns = False

    def __init__(self, mailbox: Mailbox, *, quick: bool) -> None:
        self._mailbox = mailbox
        self._quick = quick

    def submit(self, batches: Sequence[Any]) -> None:
        for batch in batches if self._quick else ():
            following = batch
            while following is not None:
                following.result = BatchResult()
                self._mailbox.put(following)
                following = following.follow()

    def recall(self) -> Call | None:
        return None

    def close(self, timeout: float) -> int:
        return 0


@pytest.mark.parametrize(
    ("keys", "quick", "expected"),
    [
        (1, False, RECORDS),
        (100, False, control_loop.QUEUED_RECORDS_TARGET),
        (100, True, RECORDS),
    ],
)
def test_it_reads_on_without_a_pause_while_its_keys_are_too_few_for_its_workers_or_calls_are_short(
    keys: int, quick: bool, expected: int
) -> None:
    cluster = MemoryCluster()
    mailbox: Mailbox = SimpleQueue()
    cluster.create("in")
    for number in range(RECORDS):
        cluster.write(Output("in", b"", key=b"%d" % (number % keys)))
    backend = MemoryBackend(cluster, OPTIONS)
    timings = Timings(busy_poll_interval_s=3_600.0)
    ours = control_loop.ControlLoop(OPTIONS, backend, Handlers(mailbox, quick=quick), mailbox, timings)
    backend.source.open(ours)
    for _ in range(RECORDS // control_loop.BUSY_POLL_RECORDS):
        mailbox.put(None)  # it does not wait for a result
        ours.run_once()
    read = ours.work.queued + ours.work.calls_in_flight + ours.counters.records
    assert expected <= read < expected + 3 * control_loop.BUSY_POLL_RECORDS


def test_a_retry_that_is_due_does_not_keep_it_busy_while_outputs_are_full(monkeypatch: pytest.MonkeyPatch) -> None:
    options = replace(
        OPTIONS,
        delivery=Delivery.EXACTLY_ONCE,
        buffer_records=2,
        commit_interval_ms=HOUR_MS,
        retry=RetryPolicy(delay_ms=0),
    )
    cluster, mailbox = MemoryCluster(), SimpleQueue[Any]()
    cluster.create("in")
    for key in (b"bad", b"good"):
        cluster.write(Output("in", b"", key=key))
    backend, timings = MemoryBackend(cluster, options), Timings(idle_poll_timeout_s=0.01)
    waits: list[float] = []
    answer = backend.source.poll

    def poll(limit: int, timeout: float) -> Sequence[ConsumedRecord]:
        waits.append(timeout)
        return answer(limit, timeout)

    monkeypatch.setattr(backend.source, "poll", poll)
    ours = control_loop.ControlLoop(options, backend, GoodAndBad(mailbox, quick=True), mailbox, timings)
    backend.source.open(ours)
    while not ours.counters.records:
        ours.run_once()
    failures = ours.counters.failures
    assert failures
    waits.clear()
    for _ in range(5):
        ours.run_once()
    assert waits == [timings.idle_poll_timeout_s] * 5
    assert ours.counters.failures == failures


class GoodAndBad(Handlers):
    """An engine that writes two outputs for a record of one key, and fails with that of another."""

    def submit(self, batches: Sequence[Any]) -> None:
        for batch in batches:
            is_good = batch.records[0].key == b"good"
            batch.result = BatchResult([Output("out", b"")] * 2) if is_good else OSError("down")
            self._mailbox.put(batch)


class FastThenHanging(Handlers):
    """An engine whose handlers return at once, until they hang; what is queued then can be recalled."""

    workers, room = 2, 4

    def __init__(self, mailbox: Mailbox) -> None:
        super().__init__(mailbox, quick=True)
        self.queued: list[Any] = []

    def submit(self, batches: Sequence[Any]) -> None:
        if self._quick:
            super().submit(batches)
        else:
            self.queued += batches

    def hang(self) -> None:
        self._quick = False

    def recall(self) -> Call | None:
        return self.queued.pop() if self.queued else None


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> tuple[control_loop.ControlLoop, FastThenHanging]:
    """A consumer of two partitions with hundreds of calls that no worker has begun."""
    cluster, mailbox = MemoryCluster(), SimpleQueue[Any]()
    cluster.create("in", partitions=2)
    for number in range(RECORDS):
        cluster.write(Output("in", b"", key=b"%d" % number))
    backend, handlers = MemoryBackend(cluster, OPTIONS), FastThenHanging(mailbox)
    ours = control_loop.ControlLoop(OPTIONS, backend, handlers, mailbox)
    backend.source.open(ours)
    while ours.counters.records < RECORDS // 4:
        ours.run_once()
    handlers.hang()
    while len(handlers.queued) < 100:
        ours.run_once()
    return ours, handlers


def test_calls_that_no_worker_has_begun_are_recalled_once_calls_last_long(
    hanging: tuple[control_loop.ControlLoop, FastThenHanging],
) -> None:
    ours, handlers = hanging
    queued, before = ours.work.queued + ours.work.calls_in_flight, handlers.queued[:4]
    for _ in range(100):
        ours.run_once()
        if len(handlers.queued) <= handlers.room:
            break
    assert handlers.queued == before
    assert ours.work.queued + ours.work.calls_in_flight >= queued


def test_no_call_begins_in_a_consumer_that_is_paused(
    hanging: tuple[control_loop.ControlLoop, FastThenHanging],
) -> None:
    ours, handlers = hanging
    ours.paused = True
    ours.run_once()
    assert (handlers.queued, ours.work.calls_in_flight) == ([], 0)
    ours.paused = False
    ours.run_once()
    assert handlers.queued


def test_a_revoked_partition_does_not_wait_for_calls_that_no_worker_has_begun(
    hanging: tuple[control_loop.ControlLoop, FastThenHanging], monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, handlers = hanging
    revoked = next(work.partition for work in ours.work if ours.work.in_flight_of([work.partition]))
    [kept] = {work.partition for work in ours.work} - {revoked}
    ours.work.add(ConsumedRecord(*kept, RECORDS + number, b"%d" % number, b"") for number in range(10))

    def wait(timeout: float) -> None:
        raise AssertionError(f"it waits {timeout} s")

    monkeypatch.setattr(ours, "_collect_results", wait)
    ours.revoked([revoked])
    assert {work.partition for work in ours.work} == {kept}
    assert {batch.work.partition for batch in handlers.queued} == {kept}, "its workers have work meanwhile"


def test_a_kept_partition_commits_while_a_revoked_one_waits_for_its_calls() -> None:
    options = replace(
        OPTIONS, max_concurrency=4, delivery=Delivery.EXACTLY_ONCE, commit_interval_ms=10, revoke_wait_ms=HOUR_MS
    )
    cluster, mailbox = MemoryCluster(), SimpleQueue[Any]()
    cluster.create("in", partitions=2)
    cluster.create("out")
    slow, kept = TopicPartition("in", 0), TopicPartition("in", 1)
    for number in range(100):
        cluster.write(Output("in", b"", b"%d" % number, partition=kept.partition))
    cluster.write(Output("in", b"", b"slow", partition=slow.partition))
    revokes, ends = threading.Event(), threading.Event()

    def handle(record: ConsumedRecord) -> Output | None:
        if record.partition == kept.partition:
            assert record.offset < 50 or revokes.wait(TIMEOUT_S)
            return Output("out", b"")
        assert ends.wait(TIMEOUT_S)
        return None

    backend = MemoryBackend(cluster, options)
    executor = executor_for(handle, options, mailbox)
    ours = control_loop.ControlLoop(options, backend, executor, mailbox)
    backend.source.open(ours)
    while not ours.work.in_flight_of([slow]) or ours.counters.records < 50:
        ours.run_once()

    def look() -> None:
        time.sleep(0.1)  # the commit that a revocation begins with has begun
        revokes.set()
        until = time.monotonic() + TIMEOUT_S
        while len(cluster.records("out")) < 100 and time.monotonic() < until:
            time.sleep(0.01)
        seen.append(len(cluster.records("out")))
        ends.set()

    seen: list[int] = []
    looking = threading.Thread(target=look)
    looking.start()
    ours.revoked([slow])
    looking.join()
    executor.close(TIMEOUT_S)
    assert seen == [100]


def test_a_consumer_that_is_paused_has_not_stalled() -> None:
    options = replace(OPTIONS, buffer_records=20)
    cluster, mailbox = MemoryCluster(), SimpleQueue[Any]()
    cluster.create("in")
    for number in range(100):
        cluster.write(Output("in", b"", b"%d" % number))
    backend = MemoryBackend(cluster, options)
    timings = Timings(check_interval_s=0.01)
    ours = control_loop.ControlLoop(options, backend, Handlers(mailbox, quick=False), mailbox, timings)
    ours.paused = True
    backend.source.open(ours)
    until = time.monotonic() + 0.5
    while time.monotonic() < until:
        ours.run_once()
    [partition] = ours.health(State.PAUSED).partitions
    assert (partition.paused, partition.stalled_seconds) == (True, 0)


def test_no_call_follows_a_long_one_in_a_consumer_that_is_paused() -> None:
    cluster = MemoryCluster()
    cluster.create("in")
    for _ in range(100):
        cluster.write(Output("in", b"", b"one"))
    consumer = ParallelConsumer(OPTIONS, MemoryBackend(cluster, OPTIONS))
    begun = []

    def handle(record: ConsumedRecord) -> None:
        begun.append(record.offset)
        if record.offset == 1:
            consumer.pause()
            threading.Timer(0.5, consumer.stop, kwargs={"drain": False}).start()
        time.sleep(0.05)

    consumer.run(handle)
    assert begun == [0, 1]
