"""How a consumer ends: by its handlers, by a stop, and by a second one that will not wait for the rest."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import repeat
from typing import Any

import pytest

from wasmline.consumer import (
    BatchResult,
    ConsumedRecord,
    ConsumerOptions,
    Delivery,
    Ordering,
    Output,
    ParallelConsumer,
    RetryPolicy,
    State,
    parallel_consumer,
)
from wasmline.consumer.backends.memory import MemoryBackend, MemoryCluster
from wasmline.consumer.runtime import control_loop
from wasmline.consumer.runtime.committer import Committer
from wasmline.consumer.runtime.executors import Mailbox, ThreadExecutor
from wasmline.consumer.state.calls import Batch
from wasmline.consumer.timings import Timings
from wasmline.errors import CommitFailed, HandlerBroken, NotAuthorized, RecordGivenUp
from wasmline.offset_maps import decode
from wasmline.topic_partitions import TopicPartition

ONLY = TopicPartition("in", 0)
KEYS = (b"a", b"b", b"c", b"d", b"e", b"f")
OPTIONS = ConsumerOptions(
    topics=("in",), group_id="g", max_concurrency=len(KEYS), drain_wait_ms=600_000, dead_letter_topic="letters"
)


@pytest.fixture
def cluster() -> MemoryCluster:
    """Return a cluster that holds a record for each of KEYS."""
    made = MemoryCluster()
    made.create("in")
    made.create("letters")
    for key in KEYS:
        made.write(Output("in", b"", key=key))
    return made


@pytest.mark.timeout(60)
@pytest.mark.parametrize("error", [SystemExit(3), HandlerBroken("the session is gone")])
def test_what_is_done_is_committed_however_many_handlers_end_the_consumer(
    cluster: MemoryCluster, error: BaseException
) -> None:
    together = threading.Barrier(len(KEYS))

    def handle(record: ConsumedRecord) -> None:
        together.wait()
        if record.key != b"a":
            raise error

    with pytest.raises(type(error)):
        ParallelConsumer(OPTIONS, MemoryBackend(cluster, OPTIONS)).run(handle)
    assert cluster.committed("g")[ONLY].offset == 1
    assert cluster.records("letters") == []


@pytest.mark.timeout(60)
def test_without_a_dead_letter_topic_several_records_that_are_given_up_lose_nothing(cluster: MemoryCluster) -> None:
    together = threading.Barrier(len(KEYS))
    options = replace(OPTIONS, dead_letter_topic=None, retry=RetryPolicy(max_attempts=1))

    def handle(record: ConsumedRecord) -> None:
        together.wait()
        if record.key != b"a":
            raise ValueError("no")

    consumer = ParallelConsumer(options, MemoryBackend(cluster, options))
    with pytest.raises(Exception, match="failed for good at attempt 1"):
        consumer.run(handle)
    assert consumer.health().state is State.FAILED
    assert cluster.committed("g")[ONLY].offset == 1


@pytest.mark.timeout(60)
def test_whatever_its_last_health_fails_with_a_consumer_closes_its_clients_and_its_handlers(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = MemoryBackend(cluster, OPTIONS)
    closed: list[str] = []
    for name in ("source", "sink", "transactions"):
        monkeypatch.setattr(getattr(backend, name), "close", partial(closed.append, name))
    consumer = ParallelConsumer(OPTIONS, backend)

    def no_health(*_: object) -> None:
        raise OSError("no health")

    def handle(_: ConsumedRecord) -> None:
        monkeypatch.setattr(control_loop.ControlLoop, "health", no_health)
        consumer.stop(drain=False)

    with pytest.raises(OSError, match="no health"):
        consumer.run(handle)
    assert sorted(closed) == ["sink", "source", "transactions"]
    assert consumer.stuck == 0


def test_a_second_stop_ends_the_draining_and_meanwhile_the_health_is_told(cluster: MemoryCluster) -> None:
    options = replace(OPTIONS, ordering=Ordering.PARTITION, batch_size=1)
    begun, finish = threading.Event(), threading.Event()

    def handle(records: Sequence[ConsumedRecord]) -> None:
        begun.set()
        finish.wait()

    consumer = ParallelConsumer(options, MemoryBackend(cluster, options))
    with ThreadPoolExecutor(1) as thread:
        running = thread.submit(consumer.run, handle)
        begun.wait()
        consumer.stop()
        while (health := consumer.health()).state is not State.DRAINING:
            pass
        assert (health.partitions[0].in_flight, health.partitions[0].queued) == (1, 5)
        consumer.stop(drain=False)
        finish.set()
        running.result()
    assert consumer.health().counters.records == 1
    assert cluster.committed("g")[ONLY].offset == 1


@pytest.mark.timeout(60)
def test_the_last_commit_is_tried_again_while_the_group_moves_on(cluster: MemoryCluster) -> None:
    """#777: a member that leaves in the middle of a rebalance is told to wait, and must not leave its work undone."""
    options = replace(OPTIONS, commit_interval_ms=600_000)
    consumer = ParallelConsumer(options, MemoryBackend(cluster, options))
    for _ in range(5):
        cluster.fail_next_commit(CommitFailed("the group has moved on"))

    def handle(record: ConsumedRecord) -> None:
        if record.key == KEYS[-1]:
            consumer.stop()

    consumer.run(handle)
    assert cluster.committed("g")[ONLY].offset == len(KEYS)


def test_a_dead_letter_has_the_headers_of_the_program(cluster: MemoryCluster) -> None:
    options = replace(OPTIONS, retry=RetryPolicy(max_attempts=1), dead_letter_headers=[("version", b"7")])
    consumer = ParallelConsumer(options, MemoryBackend(cluster, options))
    failed = []

    def handle(record: ConsumedRecord) -> None:
        failed.append(record)
        if len(failed) == len(KEYS):
            consumer.stop()
        raise ValueError("no")

    consumer.run(handle)
    headers = [name for name, _ in cluster.records("letters")[0].headers]
    assert headers == ["wasmline.error", "wasmline.reason", "version", *(
        f"wasmline.source.{part}" for part in ("topic", "partition", "offset")
    )]  # fmt: skip


class Hanging:
    """An engine whose handlers never return, beside those that have."""

    workers, room = len(KEYS), 2 * len(KEYS)
    takes_columns = False

    def __init__(self, mailbox: Mailbox) -> None:
        self._mailbox = mailbox

    def submit(self, batches: Sequence[Any]) -> None:
        for batch in batches:
            if batch.records[0].key != b"a":
                batch.result = BatchResult()
                self._mailbox.put(batch)

    def recall(self) -> None:
        return None

    def close(self, timeout: float) -> int:
        return 1


def test_all_that_a_consumer_waits_for_at_its_end_shares_one_deadline(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a clock of its own: draining, the last wait and leaving the group are one wait, and commits come before it."""
    now, committed_at = [1_000.0], []
    ends: list[float] = []

    class Clock:
        @staticmethod
        def monotonic() -> float:
            now[0] += 0.01
            return now[0]

        @staticmethod
        def sleep(seconds: float) -> None:
            now[0] += seconds

    options = replace(OPTIONS, drain_wait_ms=2_000, revoke_wait_ms=60_000, commit_interval_ms=3_600_000)
    backend = MemoryBackend(cluster, options)
    consumer = ParallelConsumer(options, backend, _timings=Timings(idle_poll_timeout_s=0.0))
    monkeypatch.setattr(parallel_consumer, "executor_for", lambda handler, asked, mailbox: Hanging(mailbox))
    monkeypatch.setattr(parallel_consumer, "time", Clock)
    monkeypatch.setattr(control_loop, "time", Clock)
    commit, close = backend.source.commit, backend.source.close

    def committing(offsets: Any) -> None:
        committed_at.append(now[0])
        commit(offsets)

    def closing() -> None:
        close()
        ends.append(now[0])

    monkeypatch.setattr(backend.source, "commit", committing)
    monkeypatch.setattr(backend.source, "close", closing)
    real = control_loop.ControlLoop.run_once

    def run_once(self: control_loop.ControlLoop) -> None:
        real(self)
        if self.counters.records == len(KEYS) - 1 and not consumer._stopping:
            begun.append(now[0])
            consumer.stop()

    begun: list[float] = []
    monkeypatch.setattr(control_loop.ControlLoop, "run_once", run_once)
    consumer.run(lambda record: None)
    assert ends[0] - begun[0] < 2.0 + 1.0
    assert committed_at[0] - begun[0] < 2.0 + 0.5
    assert consumer.stuck == 1


@pytest.mark.timeout(60)
@pytest.mark.parametrize(("owner", "step"), [(ThreadExecutor, "submit"), (control_loop.ControlLoop, "_handle")])
def test_the_end_does_not_wait_for_calls_that_an_interruption_has_lost(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch, owner: type, step: str
) -> None:
    """Ctrl-C comes between any two steps: before calls are submitted, or before one that has returned is handled."""
    whole = getattr(owner, step)

    def interrupted(*arguments: Any) -> None:
        monkeypatch.setattr(owner, step, whole)
        raise KeyboardInterrupt

    monkeypatch.setattr(owner, step, interrupted)
    with pytest.raises(KeyboardInterrupt):
        ParallelConsumer(OPTIONS, MemoryBackend(cluster, OPTIONS)).run(lambda record: None)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("delivery", list(Delivery))
@pytest.mark.parametrize(("owner", "step"), [(control_loop.ControlLoop, "_handle"), (Committer, "add_results")])
def test_nothing_that_follows_a_record_is_done_before_it_after_an_interruption(
    monkeypatch: pytest.MonkeyPatch, owner: type, step: str, delivery: Delivery
) -> None:
    """A worker goes on with the records of a key, while Ctrl-C comes before an earlier one of them is handled."""
    cluster, whole, calls = MemoryCluster(), getattr(owner, step), []
    cluster.create("in")
    cluster.create("out")
    for number in range(12):
        cluster.write(Output("in", b"%d" % number, key=b"a"))

    def interrupted(*arguments: Any) -> None:
        calls.append(arguments)
        if len(calls) == 3:
            raise KeyboardInterrupt
        whole(*arguments)

    monkeypatch.setattr(owner, step, interrupted)
    options = replace(OPTIONS, delivery=delivery)
    with pytest.raises(KeyboardInterrupt):
        ParallelConsumer(options, MemoryBackend(cluster, options)).run(lambda record: Output("out", record.value))
    left = cluster.committed("g")[ONLY]
    assert (left.offset, decode(left.metadata, left.offset)) == (2, (1, ())), "nothing above is done"
    assert [record.value for record in cluster.records("out")] == [b"0", b"1"]


@pytest.mark.timeout(60)
def test_a_call_that_returns_long_after_an_interruption_is_waited_for(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_loop, "RETURN_TIMEOUT_S", 0.2)
    interrupted = threading.Event()
    follow = Batch.follow

    def slow_follow(batch: Batch) -> Batch | None:
        interrupted.wait()
        time.sleep(0.1)  # between the return and the mailbox
        return follow(batch)

    def handle(record: ConsumedRecord) -> None:
        if record.key == b"f":
            interrupted.set()
            raise SystemExit
        interrupted.wait()
        time.sleep(0.5)

    monkeypatch.setattr(Batch, "follow", slow_follow)
    with pytest.raises(SystemExit):
        ParallelConsumer(OPTIONS, MemoryBackend(cluster, OPTIONS)).run(handle)
    assert cluster.committed("g")[ONLY].offset == 5


@pytest.mark.timeout(60)
@pytest.mark.parametrize("delivery", list(Delivery))
def test_an_error_in_results_does_not_make_an_ending_consumer_wait(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch, delivery: Delivery
) -> None:
    """With an end of ten minutes."""
    options = replace(OPTIONS, delivery=delivery)
    consumer = ParallelConsumer(options, MemoryBackend(cluster, options))
    whole, together = Committer.add_results, threading.Barrier(len(KEYS))

    def broken(self: Committer, *arguments: Any) -> None:
        if consumer._stopping:
            raise MemoryError
        whole(self, *arguments)

    def handle(record: ConsumedRecord) -> None:
        together.wait()
        consumer.stop(drain=False)
        time.sleep(0.3)  # the consumer waits for this call when it returns

    monkeypatch.setattr(Committer, "add_results", broken)
    with pytest.raises(MemoryError):
        consumer.run(handle)


@pytest.mark.timeout(60)
def test_a_dead_letter_of_the_handlers_own_is_counted_whatever_its_headers_are(cluster: MemoryCluster) -> None:
    consumer = ParallelConsumer(OPTIONS, MemoryBackend(cluster, OPTIONS))

    def handle(record: ConsumedRecord) -> Output:
        if record.key == b"f":
            consumer.stop()
        return Output("letters", b"", headers=[("wasmline.error", "text")])  # type: ignore[list-item]

    consumer.run(handle)
    assert len(cluster.records("letters")) == len(KEYS)
    [partition] = consumer.health().partitions
    assert partition.counts.dead_letters == {"text": len(KEYS)}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("with_outputs", [True, False])
def test_no_record_is_done_before_an_earlier_one_of_its_key_whose_outputs_are_not_acknowledged(
    monkeypatch: pytest.MonkeyPatch, with_outputs: bool
) -> None:
    """A consumer that began there would handle the earlier one after the later one."""
    cluster = MemoryCluster()
    for name in ("in", "out", "slow"):
        cluster.create(name)
    for number in range(10):
        cluster.write(Output("in", b"%d" % number, key=b"ab"[number % 2 :][:1]))
    backend = MemoryBackend(cluster, OPTIONS)
    write = backend.sink.write
    consumer = ParallelConsumer(OPTIONS, backend, _timings=Timings(last_commit_timeout_s=0.1))

    def hold(output: Output, *arguments: Any, **named: Any) -> None:
        if output.topic != "slow":  # its leader does not answer
            write(output, *arguments, **named)

    def handle(record: ConsumedRecord) -> Output | None:
        if record.offset >= 8:
            consumer.stop()
        if record.offset == 4:
            return Output("slow", record.value)
        return Output("out", record.value) if with_outputs else None

    monkeypatch.setattr(backend.sink, "write", hold)
    consumer.run(handle)
    left = cluster.committed("g")[ONLY]
    assert (left.offset, decode(left.metadata, left.offset)) == (4, (9, (4, 6, 8))), "b is done, and a from 4 on is not"


@pytest.mark.timeout(60)
def test_without_a_dead_letter_topic_nothing_of_a_key_is_written_before_a_rejected_output(
    cluster: MemoryCluster,
) -> None:
    cluster.create("out", max_message_bytes=10_000)
    for number in range(20):
        cluster.write(Output("in", b"", key=KEYS[number % len(KEYS)]))
    options = replace(
        OPTIONS, delivery=Delivery.EXACTLY_ONCE, dead_letter_topic=None, commit_interval_ms=600_000, max_concurrency=2
    )
    handled: list[int] = []

    def handle(record: ConsumedRecord) -> Output:
        handled.append(record.offset)
        if len(handled) == 26:
            consumer.stop()
        return Output("out", b"x" * (20_000 if record.offset == 8 else 1), key=b"%d" % record.offset)

    consumer = ParallelConsumer(options, MemoryBackend(cluster, options))
    with pytest.raises(RecordGivenUp):
        consumer.run(handle)
    written = sorted(int(record.key or b"") for record in cluster.records("out"))
    same_key = range(8, 26, len(KEYS))
    assert written == [offset for offset in range(26) if offset not in same_key]
    left = cluster.committed("g")[ONLY]
    assert (left.offset, decode(left.metadata, left.offset)) == (8, (25, tuple(same_key)))


@pytest.mark.timeout(60)
def test_without_a_dead_letter_topic_a_call_in_flight_writes_nothing_before_a_rejected_output_of_its_key(
    cluster: MemoryCluster,
) -> None:
    cluster.create("out", max_message_bytes=10_000)
    options = replace(OPTIONS, delivery=Delivery.EXACTLY_ONCE, dead_letter_topic=None, commit_interval_ms=20)
    cluster.write(Output("in", b"", key=KEYS[0]))
    cluster.write(Output("in", b"", key=KEYS[1]))

    def handle(record: ConsumedRecord) -> Output:
        if record.offset > len(KEYS) - 1:
            time.sleep(0.5)  # meanwhile the output of the first is rejected
        return Output("out", b"x" * (20_000 if record.offset == 0 else 1), key=b"%d" % record.offset)

    with pytest.raises(RecordGivenUp):
        ParallelConsumer(options, MemoryBackend(cluster, options)).run(handle)
    assert sorted(int(record.key or b"") for record in cluster.records("out")) == [1, 2, 3, 4, 5, 7]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("with_rows", [False, True])
def test_outputs_of_several_records_tie_their_keys_together_when_one_of_them_is_rejected(with_rows: bool) -> None:
    """Calls [a0] [b1, a2] [b3] [c4]: without a0 there is no a2, without that no b1, and without that no b3."""
    cluster = MemoryCluster()
    cluster.create("in")
    cluster.create("out", max_message_bytes=10_000)
    options = replace(
        OPTIONS,
        delivery=Delivery.EXACTLY_ONCE,
        dead_letter_topic=None,
        commit_interval_ms=600_000,
        max_concurrency=1,
        batch_size=4,
    )
    coming = [(b"b", b"a"), (b"b",), (b"c",)]  # the keys of the next calls

    def produce(keys: Sequence[bytes]) -> None:
        for key in keys:
            cluster.write(Output("in", b"", key=key))

    def handle(records: Sequence[ConsumedRecord], size: int = 1) -> Any:
        if coming:
            produce(coming.pop(0))
        else:
            consumer.stop()
        outputs = [
            Output("out", b"x" * (size if record.offset == 0 else 1), key=b"%d" % record.offset) for record in records
        ]
        if not with_rows:
            return BatchResult(outputs)
        return BatchResult([*outputs, Output("out", b"of all")], rows=[*range(len(records)), None])

    def written() -> list[int]:
        return [int(record.key) for record in cluster.records("out") if record.key]

    produce([b"a"])
    consumer = ParallelConsumer(options, MemoryBackend(cluster, options))
    with pytest.raises(RecordGivenUp):
        consumer.run(partial(handle, size=20_000))
    assert written() == [4]
    left = cluster.committed("g")[ONLY]
    assert (left.offset, decode(left.metadata, left.offset)) == (0, (4, (0, 1, 2, 3)))

    consumer = ParallelConsumer(options, MemoryBackend(cluster, options))
    consumer.run(handle)
    assert sorted(written()) == [0, 1, 2, 3, 4]
    assert written().index(0) < written().index(2)
    assert written().index(1) < written().index(3)


@pytest.mark.timeout(60)
def test_records_without_outputs_that_wait_for_one_fill_the_share_of_their_partition_and_hold_up_no_other() -> None:
    cluster = MemoryCluster()
    cluster.create("in", 2)
    cluster.create("out")
    for number in range(1_000):
        cluster.write(Output("in", b"%d" % number, key=b"a", partition=0))
    options = replace(OPTIONS, buffer_records=100, dead_letter_topic=None)
    backend = MemoryBackend(cluster, options)
    answers: list[Callable[[Exception | None], None]] = []

    def hold(output: Output, done: Callable[[Exception | None], None], *, alone: bool = False) -> None:
        answers.append(done)  # its leader does not answer

    backend.sink.write = hold  # type: ignore[method-assign]
    handled: list[int] = []
    others: list[int] = []

    def handle(record: ConsumedRecord) -> Output | None:
        (others if record.partition else handled).append(record.offset)
        return None if record.offset or record.partition else Output("out", b"x")

    consumer = ParallelConsumer(options, backend)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(consumer.run, handle)
        try:
            while not any(each.paused for each in consumer.health().partitions):
                assert not running.done()
                time.sleep(0.05)
            time.sleep(0.2)
            assert 50 <= len(handled) <= 75, "its fair share, and a poll"
            for number in range(1_000):
                cluster.write(Output("in", b"%d" % number, key=b"b", partition=1))
            while len(others) < 1_000:
                time.sleep(0.05)
            answers[0](None)
            while len(handled) < 1_000:
                time.sleep(0.05)
        finally:
            consumer.stop()
        running.result()
    assert cluster.committed("g")[ONLY].offset == 1_000


@pytest.mark.timeout(60)
@pytest.mark.parametrize("delivery", list(Delivery))
@pytest.mark.parametrize("refused", [0, 2])
def test_what_is_refused_until_the_member_polls_again_is_committed_as_it_leaves(
    cluster: MemoryCluster, refused: int, delivery: Delivery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rebalance began; the client takes part in it as it is closed, and may need a moment."""
    consumer = leaving_member(cluster, delivery, monkeypatch, repeat(CommitFailed("not yet"), refused))
    consumer.run(stopping_at_the_last(consumer))
    assert cluster.committed("g")[ONLY].offset == len(KEYS)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("delivery", list(Delivery))
def test_what_is_denied_as_the_member_leaves_is_raised(
    cluster: MemoryCluster, delivery: Delivery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its offsets are not committed: whoever started the consumer has to know."""
    denied = NotAuthorized("the group is not this client's")
    consumer = leaving_member(cluster, delivery, monkeypatch, repeat(denied))
    with pytest.raises(NotAuthorized):
        consumer.run(stopping_at_the_last(consumer))
    assert consumer.health().failure is denied
    assert cluster.committed("g") == {}


def leaving_member(
    cluster: MemoryCluster, delivery: Delivery, monkeypatch: pytest.MonkeyPatch, refusals: Iterator[Exception]
) -> ParallelConsumer:
    """Return a consumer whose commits are refused until its client is closed, and then with these errors."""
    options = replace(OPTIONS, commit_interval_ms=600_000, delivery=delivery)
    backend = MemoryBackend(cluster, options)
    committing, close, polled = cluster.committing, backend.source.close, threading.Event()

    def commit_if_polled() -> Any:
        if not polled.is_set():
            raise CommitFailed("the group is rebalancing")
        for refusal in refusals:
            raise refusal
        return committing()

    def poll_and_close() -> None:
        polled.set()
        close()

    monkeypatch.setattr(cluster, "committing", commit_if_polled)
    monkeypatch.setattr(backend.source, "close", poll_and_close)
    return ParallelConsumer(options, backend, _timings=Timings(last_commit_retry_s=0.5))


def stopping_at_the_last(consumer: ParallelConsumer) -> Callable[[ConsumedRecord], None]:
    def handle(record: ConsumedRecord) -> None:
        if record.key == KEYS[-1]:
            consumer.stop()

    return handle
