"""The whole consumer, on a cluster in memory and on a real one. ``#`` numbers are of Confluent's Java library."""

from __future__ import annotations

import asyncio
import resource
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from support.consumers.clusters import Cluster, Kafka, Memory, numbered
from support.consumers.running_consumer import PROMPT, TIMEOUT_S, Ledger, Running, drained, ended
from wasmline.consumer import (
    BatchResult,
    ConsumedRecord,
    ConsumerHealth,
    ConsumerOptions,
    NullKeys,
    Ordering,
    Output,
    RetryPolicy,
    State,
)
from wasmline.consumer.backends.kafka import transactions
from wasmline.consumer.backends.kafka.file_descriptor_check import DESCRIPTORS
from wasmline.consumer.partition_counters import PartitionCounters
from wasmline.consumer.runtime.dispatch_limit import MAX_FOLLOWERS
from wasmline.errors import (
    BrokerUnavailable,
    CommitFailed,
    ConsumerError,
    HandlerCancelled,
    InvalidConsumerOption,
    InvalidKafkaConfig,
    InvalidOffsetMetadata,
    KafkaError,
    NotAuthorized,
    OffsetOutOfRange,
    RecordGivenUp,
    RecordsFailed,
    TerminalFailure,
    TopicNotFound,
    UnsafeBroker,
    WasmlineError,
)
from wasmline.offset_maps import OffsetMapLimits, decode, encode
from wasmline.offset_maps.codec import encode_as
from wasmline.offset_maps.encodings import Encoding
from wasmline.topic_partitions import CommittedOffset, TopicPartition

ONCE = RetryPolicy(max_attempts=1)
SOON = RetryPolicy(delay_ms=1)
NEVER = RetryPolicy(delay_ms=3_600_000, max_delay_ms=3_600_000)
"""A retry that no test lives to see."""

DELIVERIES = pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])


def options(topic: str, group: str, **others: Any) -> ConsumerOptions:
    return ConsumerOptions(topics=(topic,), group_id=group, **others)


def is_committed(cluster: Cluster, group: str, topic: str, offset: int) -> bool:
    return cluster.committed(group, topic) == {TopicPartition(topic, 0): CommittedOffset(offset, "")}


def value_order(records: Sequence[ConsumedRecord], key: bytes | None) -> list[int]:
    return [int(record.value or b"") for record in records if record.key == key]


# -- order ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["threads", "asyncio"])
def test_keys_run_together_and_each_in_order(cluster: Cluster, group: str, ledger: Ledger, kind: str) -> None:
    topic = cluster.topic(2)
    cluster.write(*numbered(topic, 60, keys=5), *numbered(topic, 10, keys=1, partition=1))
    together = threading.Barrier(6)
    arrived: list[bytes] = []
    all_there = asyncio.Event()

    def work(record: ConsumedRecord) -> None:
        place = (record.partition, record.key)
        ledger.enter(place)
        if record.value in (b"0", b"1", b"2", b"3", b"4") and (record.partition == 0 or record.value == b"0"):
            together.wait(TIMEOUT_S)
        ledger.leave(place)
        ledger.note(record)

    async def work_async(record: ConsumedRecord) -> None:
        place = (record.partition, record.key)
        ledger.enter(place)
        if record.value in (b"0", b"1", b"2", b"3", b"4") and (record.partition == 0 or record.value == b"0"):
            arrived.append(b"")
            if len(arrived) == 6:
                all_there.set()
            await asyncio.wait_for(all_there.wait(), TIMEOUT_S)
        ledger.leave(place)
        ledger.note(record)

    drained(cluster, options(topic, group), ledger, work if kind == "threads" else work_async, 70)
    assert set(ledger.most.values()) == {1}
    for number in range(5):
        records = [record for record in ledger.seen if record.partition == 0]
        assert value_order(records, f"key-{number}".encode()) == list(range(number, 60, 5))
    assert ledger.offsets(1) == list(range(10))
    assert cluster.committed(group, topic) == {
        TopicPartition(topic, 0): CommittedOffset(60, ""),
        TopicPartition(topic, 1): CommittedOffset(10, ""),
    }


def test_partition_order_runs_one_record_of_each_partition(cluster: Cluster, group: str, ledger: Ledger) -> None:
    topic = cluster.topic(2)
    cluster.write(*numbered(topic, 10, keys=10), *numbered(topic, 10, keys=10, partition=1))
    together = threading.Barrier(2)

    def work(record: ConsumedRecord) -> None:
        ledger.enter(record.partition)
        if record.offset == 0:
            together.wait(TIMEOUT_S)
        ledger.leave(record.partition)
        ledger.note(record)

    drained(cluster, options(topic, group, ordering=Ordering.PARTITION), ledger, work, 20)
    assert ledger.most == {0: 1, 1: 1}
    assert ledger.offsets(0) == ledger.offsets(1) == list(range(10))


@pytest.mark.parametrize(
    ("key", "others"),
    [(b"one", {"ordering": Ordering.UNORDERED}), (None, {"null_keys": NullKeys.UNORDERED})],
    ids=["one key unordered", "no key, #314"],
)
def test_what_has_no_order_runs_together(
    cluster: Cluster, group: str, ledger: Ledger, key: bytes | None, others: dict[str, Any]
) -> None:
    topic = cluster.topic()
    cluster.write(*[Output(topic, b"", key, partition=0)] * 6)
    together = threading.Barrier(6)

    def work(record: ConsumedRecord) -> None:
        together.wait(TIMEOUT_S)
        ledger.note(record)

    drained(cluster, options(topic, group, **others), ledger, work, 6)
    assert sorted(ledger.offsets()) == list(range(6))


def test_records_without_a_key_wait_for_each_other_by_default(cluster: Cluster, group: str, ledger: Ledger) -> None:
    """#183: what the Java library does, too."""
    topic = cluster.topic()
    cluster.write(*numbered(topic, 20))

    def work(record: ConsumedRecord) -> None:
        ledger.enter(record.key)
        ledger.leave(record.key)
        ledger.note(record)

    drained(cluster, options(topic, group), ledger, work, 20)
    assert ledger.most == {None: 1}
    assert ledger.offsets() == list(range(20))


def test_a_batch_has_runs_of_one_key_in_order(cluster: Cluster, group: str, ledger: Ledger) -> None:
    """#551, #266."""
    topic = cluster.topic()
    cluster.write(*numbered(topic, 40, keys=2))
    batches: list[list[ConsumedRecord]] = []

    def work(records: Sequence[ConsumedRecord]) -> None:
        batches.append(list(records))
        for record in records:
            ledger.note(record)

    drained(cluster, options(topic, group, batch_size=10, max_concurrency=1), ledger, work, 40)
    assert max(len(batch) for batch in batches) == 10
    assert any(len({record.key for record in batch}) < len(batch) for batch in batches)
    for key in (0, 1):
        assert value_order(ledger.seen, f"key-{key}".encode()) == list(range(key, 40, 2))


# -- failures ---------------------------------------------------------------------------------------------------------


def test_a_failing_record_is_tried_again_before_the_rest_of_its_key(
    cluster: Cluster, group: str, ledger: Ledger
) -> None:
    topic = cluster.topic()
    cluster.write(*numbered(topic, 4, keys=1))

    def work(record: ConsumedRecord) -> None:
        ledger.note(record)
        if record.offset == 1 and record.attempt < 3:
            raise OSError("not yet")

    running = drained(cluster, options(topic, group, retry=SOON), ledger, work, 6)
    assert [(record.offset, record.attempt) for record in ledger.seen] == [
        (0, 1),
        (1, 1),
        (1, 2),
        (1, 3),
        (2, 1),
        (3, 1),
    ]
    counters = running.consumer.health().counters
    assert (counters.records, counters.failures) == (4, 2)


def test_a_record_that_fails_for_ever_holds_up_its_key_alone(cluster: Cluster, group: str, ledger: Ledger) -> None:
    """#47, #415: what is done beside it is in the map, and does not run again."""
    topic = cluster.topic()
    cluster.write(*numbered(topic, 20, keys=4))

    def work(record: ConsumedRecord) -> None:
        ledger.note(record)
        if record.key == b"key-0":
            raise OSError("never")

    with Running(cluster, options(topic, group, retry=NEVER), work) as running:
        ledger.count(16)
        health = running.until(lambda health: health.partitions[0].incompletes == 5)
    (stuck,) = health.waiting
    assert (stuck.key, stuck.offset, stuck.attempt, stuck.seconds) == (b"key-0", 0, 2, None)
    assert stuck.error == "OSError: never"
    (left,) = cluster.committed(group, topic).values()
    assert left.offset == 0
    assert decode(left.metadata, 0) == (19, (0, 4, 8, 12, 16))
    again = Ledger()
    drained(cluster, options(topic, group), again, again.note, 5)
    assert again.offsets() == [0, 4, 8, 12, 16]
    assert cluster.committed(group, topic) == {TopicPartition(topic, 0): CommittedOffset(20, "")}


@DELIVERIES
def test_a_record_that_is_given_up_goes_to_the_dead_letters_as_it_came(
    cluster: Cluster, group: str, ledger: Ledger, delivery: str
) -> None:
    """#196, #310, #65, #248; what cannot be parsed, #304, #391, #550, fails in the handler and goes the same way."""
    topic, letters = cluster.topic(), cluster.topic()
    poison = Output(topic, b"poison", b"key", [("trace", b"1")], timestamp=77, partition=0)
    cluster.write(*numbered(topic, 2), poison, *numbered(topic, 2))

    def work(record: ConsumedRecord) -> None:
        ledger.note(record)
        if record.value == b"poison":
            raise ValueError("no JSON")

    asked = options(
        topic, group, retry=RetryPolicy(delay_ms=1, max_attempts=2), dead_letter_topic=letters, delivery=delivery
    )
    running = drained(cluster, asked, ledger, work, 6)
    (letter,) = cluster.read(letters)
    assert (letter.key, letter.value, letter.timestamp) == (b"key", b"poison", 77)
    assert list(letter.headers) == [
        ("trace", b"1"),
        ("wasmline.error", b"ValueError"),
        ("wasmline.reason", b"no JSON"),
        ("wasmline.source.topic", topic.encode()),
        ("wasmline.source.partition", b"0"),
        ("wasmline.source.offset", b"2"),
    ]
    health = running.consumer.health()
    assert health.counters.given_up == 1
    assert [each.counts for each in health.partitions] == [
        PartitionCounters(records=5, outputs=1, retries=1, dead_letters=Counter({"ValueError": 1}))
    ]
    assert cluster.committed(group, topic) == {TopicPartition(topic, 0): CommittedOffset(5, "")}


class Unprintable(Exception):
    """Has no text."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


@DELIVERIES
@pytest.mark.parametrize(
    "error",
    [ValueError("unknown customer \ud800"), ValueError("x" * 2_000_000), Unprintable()],
    ids=["a lone surrogate", "two megabytes", "no text"],
)
def test_a_dead_letter_can_be_written_whatever_the_exception(
    cluster: Cluster, group: str, delivery: str, error: Exception
) -> None:
    topic, letters = cluster.topic(), cluster.topic()
    cluster.write(*numbered(topic, 3, keys=3))

    def work(record: ConsumedRecord) -> None:
        if record.offset == 1:
            raise error

    asked = options(
        topic,
        group,
        delivery=delivery,
        dead_letter_topic=letters,
        retry=RetryPolicy(delay_ms=1, max_attempts=2),
        commit_interval_ms=50,
    )
    with Running(cluster, asked, work) as running:
        running.until(lambda health: is_committed(cluster, group, topic, 3))
    (letter,) = cluster.read(letters)
    assert letter.value == b"1"
    assert len(dict(letter.headers)["wasmline.reason"] or b"") <= 1_024


@DELIVERIES
@pytest.mark.parametrize("large", ["value", "headers", "key"])
def test_a_dead_letter_that_its_topic_does_not_take_is_cut_and_says_so(
    cluster: Cluster, group: str, delivery: str, large: str
) -> None:
    topic, letters = cluster.topic(), cluster.topic(max_message_bytes=20_000)
    key = b"k" * 30_000 if large == "key" else b"key"
    headers = [("trace", b"h" * 30_000 if large == "headers" else b"1")]
    cluster.write(Output(topic, b"v" * 30_000 if large == "value" else b"v", key, headers), *numbered(topic, 2))

    def work(record: ConsumedRecord) -> None:
        if record.offset == 0:
            raise ValueError("no JSON")

    asked = options(topic, group, delivery=delivery, dead_letter_topic=letters, retry=ONCE, commit_interval_ms=50)
    with Running(cluster, asked, work) as running:
        running.until(lambda health: is_committed(cluster, group, topic, 3))
    (letter,) = cluster.read(letters)
    assert (letter.value, letter.key) == (None, None if large == "key" else b"key")
    assert [name for name, _ in letter.headers] == [
        "wasmline.error",
        "wasmline.reason",
        "wasmline.source.topic",
        "wasmline.source.partition",
        "wasmline.source.offset",
        "wasmline.truncated",
    ]
    assert int(dict(letter.headers)["wasmline.truncated"] or b"") > 30_000


@pytest.mark.parametrize("error", [TerminalFailure("never again"), ValueError("x")], ids=["terminal", "named terminal"])
def test_a_terminal_failure_is_not_tried_again(memory: Memory, group: str, ledger: Ledger, error: Exception) -> None:
    topic, letters = memory.topic(), memory.topic()
    memory.write(*numbered(topic, 2))

    def work(record: ConsumedRecord) -> None:
        ledger.note(record)
        raise error

    retry = RetryPolicy(delay_ms=1, terminal=(ValueError,))
    drained(memory, options(topic, group, retry=retry, dead_letter_topic=letters), ledger, work, 2)
    assert [record.attempt for record in ledger.seen] == [1, 1]
    assert len(memory.read(letters)) == 2


def test_without_dead_letters_the_consumer_ends_rather_than_drop_a_record(
    cluster: Cluster, group: str, ledger: Ledger
) -> None:
    topic = cluster.topic()
    cluster.write(*numbered(topic, 10, keys=10))
    others_done = threading.Event()

    def work(record: ConsumedRecord) -> None:
        if record.offset == 3:
            assert others_done.wait(TIMEOUT_S)
            raise ValueError("no JSON")
        ledger.note(record)
        if len(ledger.seen) == 9:
            others_done.set()

    running = ended(cluster, options(topic, group, retry=ONCE), work)
    failure = running.failure
    assert isinstance(failure, RecordGivenUp)
    assert (failure.topic, failure.partition, failure.offset, failure.attempts) == (topic, 0, 3, 1)
    health = running.consumer.health()
    assert (health.state, health.failure) == (State.FAILED, failure)
    (left,) = cluster.committed(group, topic).values()
    assert (left.offset, decode(left.metadata, left.offset)) == (3, (9, (3,)))


def test_a_batch_names_its_failures_and_writes_for_the_others(cluster: Cluster, group: str, ledger: Ledger) -> None:
    topic, target, letters = cluster.topic(), cluster.topic(), cluster.topic()
    cluster.write(*numbered(topic, 10, keys=10))

    def work(records: Sequence[ConsumedRecord]) -> list[Output]:
        for record in records:
            ledger.note(record)
        bad = {place: ValueError("odd") for place, record in enumerate(records) if record.offset % 2}
        good = [Output(target, record.value) for record in records if not record.offset % 2]
        if bad:
            raise RecordsFailed("some are odd", failures=bad, outputs=good)
        return good

    drained(cluster, options(topic, group, batch_size=4, retry=ONCE, dead_letter_topic=letters), ledger, work, 10)
    assert sorted(record.value or b"" for record in cluster.read(target)) == [b"0", b"2", b"4", b"6", b"8"]
    assert sorted(record.value or b"" for record in cluster.read(letters)) == [b"1", b"3", b"5", b"7", b"9"]
    assert cluster.committed(group, topic) == {TopicPartition(topic, 0): CommittedOffset(10, "")}


def test_a_batch_that_fails_as_a_whole_is_tried_one_by_one(memory: Memory, group: str, ledger: Ledger) -> None:
    topic, letters = memory.topic(), memory.topic()
    memory.write(*numbered(topic, 6, keys=1))
    sizes: list[int] = []

    def work(records: Sequence[ConsumedRecord]) -> None:
        sizes.append(len(records))
        if any(record.offset == 3 for record in records):
            raise ValueError("a poison somewhere")
        for record in records:
            ledger.note(record)

    retry = RetryPolicy(delay_ms=1, max_attempts=1)
    asked = options(topic, group, batch_size=6, max_concurrency=1, retry=retry, dead_letter_topic=letters)
    drained(memory, asked, ledger, work, 5)
    assert ledger.offsets() == [0, 1, 2, 4, 5]
    assert [record.value for record in memory.read(letters)] == [b"3"]


def test_an_exception_that_is_no_error_ends_the_consumer_and_what_is_done_is_committed(
    cluster: Cluster, group: str, ledger: Ledger
) -> None:
    topic = cluster.topic()
    cluster.write(*numbered(topic, 4, keys=4))
    others_done = threading.Event()

    def work(record: ConsumedRecord) -> None:
        if record.offset == 1:
            assert others_done.wait(TIMEOUT_S)
            raise SystemExit("the handler ends the program")
        ledger.note(record)
        if len(ledger.seen) == 3:
            others_done.set()

    running = ended(cluster, options(topic, group), work)
    assert isinstance(running.failure, SystemExit)
    (left,) = cluster.committed(group, topic).values()
    assert (left.offset, decode(left.metadata, left.offset)) == (1, (3, (1,)))


def test_a_cancelled_handler_has_failed_and_is_tried_again(memory: Memory, group: str, ledger: Ledger) -> None:
    topic = memory.topic()
    memory.write(*numbered(topic, 3))

    async def work(record: ConsumedRecord) -> None:
        ledger.note(record)
        if record.offset == 1 and record.attempt == 1:
            raise asyncio.CancelledError

    seen: list[Exception] = []

    class Policy:
        def after(self, attempt: int, error: Exception) -> float | None:
            seen.append(error)
            return 0.0

    drained(memory, options(topic, group, retry=Policy()), ledger, work, 4)
    assert ledger.offsets() == [0, 1, 1, 2]
    assert [type(error) for error in seen] == [HandlerCancelled]


def test_a_consumer_runs_once(memory: Memory, group: str, ledger: Ledger) -> None:
    topic = memory.topic()
    with Running(memory, options(topic, group), ledger.note) as running:
        running.until(lambda health: health.partitions)
        with pytest.raises(ConsumerError, match="once"):
            running.consumer.run(ledger.note)


# -- outputs ----------------------------------------------------------------------------------------------------------


@DELIVERIES
def test_outputs_are_written_once_and_in_the_order_of_their_key(
    cluster: Cluster, group: str, ledger: Ledger, delivery: str
) -> None:
    topic, target = cluster.topic(2), cluster.topic()
    cluster.write(*numbered(topic, 30, keys=3), *numbered(topic, 30, keys=3, partition=1))

    def work(record: ConsumedRecord) -> Iterator[Output]:
        for letter in (b"a", b"b"):
            key = b"%d-%s" % (record.partition, record.key or b"")
            yield Output(target, b"%s%s" % (record.value or b"", letter), key, record.headers, record.timestamp)
        ledger.note(record)

    drained(cluster, options(topic, group, delivery=delivery), ledger, work, 60)
    written = cluster.read(target)
    for partition in (0, 1):
        for number in range(3):
            key = f"{partition}-key-{number}".encode()
            expected = [f"{value}{letter}".encode() for value in range(number, 30, 3) for letter in "ab"]
            assert [record.value for record in written if record.key == key] == expected
    assert len(written) == 120


@DELIVERIES
def test_a_record_whose_output_is_refused_goes_to_the_dead_letters_alone(
    cluster: Cluster, group: str, ledger: Ledger, delivery: str
) -> None:
    topic, target, letters = cluster.topic(), cluster.topic(max_message_bytes=1_000), cluster.topic()
    cluster.write(*numbered(topic, 10, keys=10))

    def work(record: ConsumedRecord) -> Output:
        ledger.note(record)
        return Output(target, b"x" * 5_000 if record.offset == 4 else record.value, record.key)

    with Running(
        cluster, options(topic, group, delivery=delivery, dead_letter_topic=letters, commit_interval_ms=50), work
    ) as running:
        running.until(lambda health: health.counters.given_up == 1 and is_committed(cluster, group, topic, 10))
        running.stop(drain=True)
    assert [record.value for record in cluster.read(letters)] == [b"4"]
    assert sorted(int(record.value or b"") for record in cluster.read(target)) == [0, 1, 2, 3, 5, 6, 7, 8, 9]
    assert cluster.committed(group, topic) == {TopicPartition(topic, 0): CommittedOffset(10, "")}


def test_a_missing_output_topic_ends_the_consumer_and_what_is_done_is_committed(
    cluster: Cluster, group: str, ledger: Ledger
) -> None:
    topic = cluster.topic()
    cluster.write(*numbered(topic, 4, keys=4))
    others_done = threading.Event()

    def work(record: ConsumedRecord) -> Output | None:
        if record.offset == 2:
            assert others_done.wait(TIMEOUT_S)
            return Output("no-such-topic", b"")
        ledger.note(record)
        if len(ledger.seen) == 3:
            others_done.set()
        return None

    running = ended(cluster, options(topic, group), work)
    assert isinstance(running.failure, TopicNotFound)
    (left,) = cluster.committed(group, topic).values()
    assert (left.offset, decode(left.metadata, left.offset)) == (2, (3, (2,)))


@pytest.mark.parametrize("delivery", [pytest.param("at_least_once", marks=pytest.mark.long), "exactly_once"])
def test_an_output_topic_that_is_deleted_meanwhile_is_named(
    real_cluster: Kafka, group: str, delivery: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the client, or with exactly-once, which it tells nothing, once a transaction has taken too long."""
    monkeypatch.setattr(transactions, "TRANSACTION_DEADLINE_S", 3.0)
    topic, target = real_cluster.topic(), real_cluster.topic()
    asked = options(topic, group, delivery=delivery, commit_interval_ms=50)
    with Running(real_cluster, asked, lambda record: Output(target, record.value)) as running:
        real_cluster.write(*numbered(topic, 1))
        running.until(lambda _: is_committed(real_cluster, group, topic, 1))
        real_cluster.delete(target)
        real_cluster.write(*numbered(topic, 4))
        running.join()
    assert isinstance(running.failure, TopicNotFound)
    assert running.failure.topic == target


@pytest.mark.parametrize(
    ("error", "carried_out"),
    [(CommitFailed, False), (KafkaError, False), (KafkaError, True)],
    ids=["aborted", "lost", "carried out, and its answer lost"],
)
def test_outputs_are_seen_once_whatever_becomes_of_a_transaction(
    memory: Memory, group: str, error: type[WasmlineError], carried_out: bool
) -> None:
    """#830, #541: a transaction that fails is begun anew, by a reader of what is committed."""
    topic, target = memory.topic(), memory.topic()
    memory.write(*numbered(topic, 50, keys=7))
    for number in range(3):
        memory.cluster.fail_next_commit(error(f"injected {number}"), carried_out=carried_out)

    def work(record: ConsumedRecord) -> Output:
        return Output(target, record.value, record.key)

    with Running(memory, options(topic, group, delivery="exactly_once", commit_interval_ms=1), work) as running:
        running.until(lambda _: is_committed(memory, group, topic, 50))
    written = memory.read(target)
    for number in range(7):
        assert value_order(written, f"key-{number}".encode()) == list(range(number, 50, 7))
    assert len(written) == 50


@DELIVERIES
def test_commits_that_fail_are_counted(memory: Memory, group: str, ledger: Ledger, delivery: str) -> None:
    topic = memory.topic()
    memory.write(*numbered(topic, 5))
    for _ in range(3):
        memory.cluster.fail_next_commit(BrokerUnavailable("away", bootstrap_servers="memory"))
    with Running(memory, options(topic, group, delivery=delivery, commit_interval_ms=1), ledger.note) as running:
        running.until(lambda _: is_committed(memory, group, topic, 5))
        assert running.consumer.health().counters.failed_commits == 3


def test_the_health_tells_of_brokers_that_are_away(memory: Memory, group: str, ledger: Ledger) -> None:
    with Running(memory, options(memory.topic(), group), ledger.note) as running:
        running.until(lambda health: health.connected_brokers == 1)
        with memory.cluster.unavailable():
            running.until(lambda health: health.connected_brokers == 0)
        running.until(lambda health: health.connected_brokers == 1)


def test_what_coroutines_keep_outlives_a_consumer(memory: Memory, group: str, ledger: Ledger) -> None:
    """A session that a module opens once belongs to the event loop of its first use."""
    topic = memory.topic()
    turn = asyncio.Semaphore(1)

    async def work(record: ConsumedRecord) -> None:
        async with turn:
            await asyncio.sleep(0)
            ledger.note(record)

    for count in (8, 16):
        memory.write(*numbered(topic, 8, keys=8))
        drained(memory, options(topic, group), ledger, work, count)
    assert sorted(ledger.offsets()) == list(range(16))


# -- commits and restarts ---------------------------------------------------------------------------------------------


@DELIVERIES
def test_a_record_in_flight_is_not_committed_and_what_finished_beside_it_does_not_run_again(
    cluster: Cluster, group: str, ledger: Ledger, gate: threading.Event, delivery: str
) -> None:
    """#62, #826. The handler of one record never returns, and the consumer ends all the same."""
    topic = cluster.topic()
    cluster.write(*numbered(topic, 12, keys=12))

    def work(record: ConsumedRecord) -> None:
        if record.offset in (2, 5):
            gate.wait()
        ledger.note(record)

    asked = options(topic, group, drain_wait_ms=10, revoke_wait_ms=10, delivery=delivery)
    with Running(cluster, asked, work, timings=replace(PROMPT, handler_shutdown_s=0.01)) as running:
        ledger.count(10)
        running.until(lambda health: health.partitions[0].incompletes == 2)
        running.stop(drain=True)
    assert running.failure is None
    assert running.consumer.stuck == 2
    (left,) = cluster.committed(group, topic).values()
    assert (left.offset, left.metadata) == (2, encode(2, 11, [2, 5]))
    again = Ledger()
    drained(cluster, options(topic, group, delivery=delivery), again, again.note, 2)
    assert sorted(again.offsets()) == [2, 5]
    assert cluster.committed(group, topic) == {TopicPartition(topic, 0): CommittedOffset(12, "")}


def test_a_restart_runs_what_the_map_calls_incomplete_and_nothing_else(
    cluster: Cluster, group: str, ledger: Ledger
) -> None:
    """Each partition was left with a map in another of the eight encodings."""
    topic = cluster.topic(len(Encoding))
    cluster.write(*(output for number in range(len(Encoding)) for output in numbered(topic, 20, partition=number)))
    cluster.commit(
        group,
        {
            TopicPartition(topic, number): CommittedOffset(2, encode_as(encoding, 2, 17, [2, 4, 9, 10]))
            for number, encoding in enumerate(Encoding)
        },
    )
    drained(cluster, options(topic, group), ledger, ledger.note, 6 * len(Encoding))
    for number in range(len(Encoding)):
        assert ledger.offsets(number) == [2, 4, 9, 10, 18, 19]


GAP = range(100, 35_900)
"""Offsets of the longest log that have no record."""

SHAPES: dict[str, tuple[int, Callable[[int], bool]]] = {
    "few": (100, lambda offset: offset in (3, 50)),
    "alternating": (900, lambda offset: offset % 2 == 0),
    "alternating, compressed": (6_000, lambda offset: offset % 2 == 0),
    "a long range": (36_000, lambda offset: offset == 7),
    "nothing done": (50, lambda offset: offset < 49),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_maps_of_all_shapes_survive_a_restart(memory: Memory, group: str, ledger: Ledger, shape: str) -> None:
    count, hangs = SHAPES[shape]
    topic = memory.topic()
    memory.write(*[Output(topic, b"", partition=0)] * count)
    if count > GAP.stop:
        memory.cluster.compact(TopicPartition(topic, 0), GAP)
    records = len(memory.read(topic))
    incomplete = [offset for offset in range(count) if hangs(offset)]

    def work(record: ConsumedRecord) -> None:
        ledger.note(record)
        if hangs(record.offset):
            raise OSError("not now")

    first = options(topic, group, ordering=Ordering.UNORDERED, retry=NEVER, buffer_records=100_000)
    with Running(memory, first, work) as running:
        ledger.count(records)
        running.until(lambda health: health.counters.records + health.counters.failures == records)
    (left,) = memory.committed(group, topic).values()
    assert left.offset == incomplete[0]
    again = Ledger()
    drained(memory, options(topic, group, ordering=Ordering.UNORDERED), again, again.note, len(incomplete))
    assert sorted(again.offsets()) == incomplete
    assert memory.committed(group, topic) == {TopicPartition(topic, 0): CommittedOffset(count, "")}


@DELIVERIES
def test_a_record_as_large_as_brokers_take_by_default_is_relayed(
    cluster: Cluster, group: str, ledger: Ledger, delivery: str
) -> None:
    """librdkafka's own limit is lower than that of brokers and of Java clients."""
    topic, target = cluster.topic(), cluster.topic()
    cluster.write(Output(topic, b"x" * 1_048_500))

    def relay(record: ConsumedRecord) -> Output:
        ledger.note(record)
        return Output(target, record.value)

    drained(cluster, options(topic, group, delivery=delivery), ledger, relay, 1)
    assert [len(record.value or b"") for record in cluster.read(target)] == [1_048_500]


@DELIVERIES
@pytest.mark.parametrize("start", [1_000, 1], ids=["above", "below"])
def test_a_committed_offset_that_the_log_does_not_have_ends_the_consumer(
    cluster: Cluster, group: str, ledger: Ledger, start: int, delivery: str
) -> None:
    topic = cluster.topic()
    partition = TopicPartition(topic, 0)
    cluster.write(*numbered(topic, 6))
    cluster.cut(partition, 3)
    cluster.commit(group, {partition: CommittedOffset(start)})
    failure = ended(cluster, options(topic, group, delivery=delivery), ledger.note).failure
    assert isinstance(failure, OffsetOutOfRange)
    assert (failure.topic, failure.partition, failure.offset, failure.start) == (topic, 0, start, 3)
    assert "fail_on_data_loss" in str(failure)
    assert ledger.seen == []
    assert cluster.committed(group, topic) == {partition: CommittedOffset(start)}


@DELIVERIES
@pytest.mark.parametrize(("start", "expected", "lost"), [(1_000, [3, 4, 5], 0), (1, [3, 5], 1)], ids=["above", "below"])
def test_offsets_that_the_log_has_no_longer_are_counted_where_loss_is_allowed(
    cluster: Cluster, group: str, ledger: Ledger, start: int, expected: list[int], lost: int, delivery: str
) -> None:
    """Of a map, what was done above the committed offset is not lost."""
    topic = cluster.topic()
    partition = TopicPartition(topic, 0)
    cluster.write(*numbered(topic, 6))
    cluster.cut(partition, 3)
    cluster.commit(group, {partition: CommittedOffset(start, encode(start, start + 3, [start, start + 2]))})
    asked = options(topic, group, delivery=delivery, fail_on_data_loss=False, kafka={"auto.offset.reset": "latest"})
    running = drained(cluster, asked, ledger, ledger.note, len(expected))
    assert ledger.offsets() == expected
    assert running.consumer.health().partitions[0].counts.lost_offsets == lost
    assert cluster.committed(group, topic) == {partition: CommittedOffset(6, "")}


@DELIVERIES
@pytest.mark.parametrize("is_read", [True, False], ids=["read", "unread"])
@pytest.mark.parametrize("strategy", ["cooperative-sticky", "range"])
def test_what_follows_the_end_that_latest_began_at_is_done_by_the_next_consumer(
    cluster: Cluster, group: str, ledger: Ledger, strategy: str, delivery: str, *, is_read: bool
) -> None:
    """The end is another one by then: what was read and not done, and what came in between, would be passed over."""
    topic = cluster.topic()
    cluster.write(*numbered(topic, 3))
    kafka = {"auto.offset.reset": "latest", "partition.assignment.strategy": strategy}
    asked = options(topic, group, delivery=delivery, kafka=kafka, retry=NEVER)

    def fail(record: ConsumedRecord) -> None:
        ledger.note(record)
        raise OSError("not now")

    with Running(cluster, asked, fail) as running:
        running.until(lambda health: health.partitions and health.partitions[0].next_commit == 3)
        if is_read:
            cluster.write(Output(topic, b"first"))
            ledger.count(1)
    assert cluster.committed(group, topic)[TopicPartition(topic, 0)].offset == 3
    cluster.write(Output(topic, b"second"))
    again = Ledger()
    drained(cluster, asked, again, again.note, 1 + is_read)
    assert again.offsets() == [3, 4][: 1 + is_read]


def test_a_log_that_retention_has_emptied_is_passed_over_for_good(cluster: Cluster, group: str, ledger: Ledger) -> None:
    topic = cluster.topic()
    partition = TopicPartition(topic, 0)
    cluster.write(*numbered(topic, 6))
    cluster.cut(partition, 6)
    cluster.commit(group, {partition: CommittedOffset(1)})
    for lost in (5, 0):
        with Running(cluster, options(topic, group, fail_on_data_loss=False), ledger.note) as running:
            running.until(lambda health: health.partitions)
        assert running.consumer.health().partitions[0].counts.lost_offsets == lost
        assert cluster.committed(group, topic) == {partition: CommittedOffset(6)}


@pytest.mark.parametrize("allowed", [False, True], ids=["ends", "counts"])
def test_retention_that_overtakes_a_consumer_at_work_is_noticed(
    cluster: Cluster, group: str, ledger: Ledger, *, allowed: bool
) -> None:
    """What is in a handler is done, whatever became of the log."""
    topic = cluster.topic()
    partition = TopicPartition(topic, 0)
    go_on = threading.Event()

    def work(record: ConsumedRecord) -> None:
        ledger.note(record)
        assert go_on.wait(TIMEOUT_S)

    cluster.write(*numbered(topic, 10))
    asked = options(topic, group, buffer_records=2, max_concurrency=1, fail_on_data_loss=not allowed)
    with Running(cluster, asked, work) as running:
        health = running.until(lambda health: any(each.paused for each in health.partitions) and ledger.seen)
        (told,) = health.partitions
        read = told.queued + told.in_flight
        cluster.cut(partition, 8)
        go_on.set()
        if allowed:
            ledger.count(read + 2)
            running.stop(drain=True)
        else:
            running.join()
    if allowed:
        assert ledger.offsets() == [*range(read), 8, 9]
        assert running.consumer.health().partitions[0].counts.lost_offsets == 8 - read
        assert cluster.committed(group, topic) == {partition: CommittedOffset(10)}
    else:
        assert isinstance(running.failure, OffsetOutOfRange)
        assert ledger.offsets() == list(range(read))
        assert cluster.committed(group, topic) == {partition: CommittedOffset(read)}


FOREIGN = ["no base64!", "AQ==", "Ag==", "////", "bAAKcg", "TAAA", "{}", "é"]


def test_metadata_that_is_not_ours_kills_nothing_and_skips_nothing(
    cluster: Cluster, group: str, ledger: Ledger
) -> None:
    """#326, #327: maps of nobody, of Kafka Streams, of no known encoding, cut off."""
    topic = cluster.topic(len(FOREIGN))
    cluster.write(*(output for number in range(len(FOREIGN)) for output in numbered(topic, 4, partition=number)))
    left = {TopicPartition(topic, number): CommittedOffset(1, metadata) for number, metadata in enumerate(FOREIGN)}
    cluster.commit(group, left)
    running = drained(cluster, options(topic, group), ledger, ledger.note, 3 * len(FOREIGN))
    for number in range(len(FOREIGN)):
        assert ledger.offsets(number) == [1, 2, 3]
    assert running.consumer.health().counters.unreadable_maps == len(FOREIGN)


def test_a_map_of_records_that_the_log_does_not_have_is_not_believed(
    cluster: Cluster, group: str, ledger: Ledger
) -> None:
    """A topic that was made anew under its name."""
    topic = cluster.topic()
    cluster.write(*numbered(topic, 3))
    cluster.commit(group, {TopicPartition(topic, 0): CommittedOffset(0, encode(0, 99, [0]))})
    drained(cluster, options(topic, group), ledger, ledger.note, 3)
    assert ledger.offsets() == [0, 1, 2]


@pytest.mark.parametrize(
    ("metadata", "error"), [("no base64!", InvalidOffsetMetadata), (encode(0, 99, [0]), OffsetOutOfRange)]
)
def test_a_map_that_cannot_be_used_ends_exactly_once(
    memory: Memory, group: str, ledger: Ledger, metadata: str, error: type[WasmlineError]
) -> None:
    """Without it, what it says is done would be written twice."""
    topic = memory.topic()
    memory.write(*numbered(topic, 3))
    memory.commit(group, {TopicPartition(topic, 0): CommittedOffset(0, metadata)})
    asked = options(topic, group, delivery="exactly_once")
    assert isinstance(ended(memory, asked, ledger.note).failure, error)
    assert ledger.seen == []


def test_an_error_that_does_not_pass_ends_the_consumer_with_its_reason(
    memory: Memory, group: str, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rather than be tried again for ever while nothing is read."""
    topic = memory.topic()
    memory.write(*numbered(topic, 1))
    running = Running(memory, options(topic, group), ledger.note, timings=replace(PROMPT, max_error_duration_s=0.05))

    def refused(_: Any) -> Any:
        raise KafkaError("the coordinator refused: INVALID_GROUP_ID")

    monkeypatch.setattr(running.consumer._backend.source, "committed", refused)  # type: ignore[union-attr]
    running._thread.start()
    running.join()
    assert isinstance(running.failure, KafkaError)
    assert "INVALID_GROUP_ID" in str(running.failure)
    assert ledger.seen == []


def test_transaction_markers_and_aborted_records_hold_nothing_up(cluster: Cluster, group: str, ledger: Ledger) -> None:
    """#329: at the start, in the middle and at the end of the log."""
    topic = cluster.topic()
    writer = cluster.writer(f"{group}-writer")
    for outcome in (writer.abort, writer.commit, writer.abort, writer.commit, writer.abort):
        for output in numbered(topic, 2):
            writer.write(output)
        outcome()
    drained(cluster, options(topic, group), ledger, ledger.note, 4)
    assert ledger.offsets() == [3, 4, 9, 10]
    assert cluster.committed(group, topic) == {TopicPartition(topic, 0): CommittedOffset(11, "")}
    cluster.write(Output(topic, b"next", partition=0))
    again = Ledger()
    drained(cluster, options(topic, group), again, again.note, 1)
    assert again.offsets() == [15]


def test_incomplete_records_that_were_compacted_away_are_done(memory: Memory, group: str, ledger: Ledger) -> None:
    """#409: a hole at the committed offset, and one above it."""
    topic = memory.topic()
    partition = TopicPartition(topic, 0)
    memory.write(*numbered(topic, 10))
    memory.commit(group, {partition: CommittedOffset(2, encode(2, 8, [2, 4, 6]))})
    memory.cluster.compact(partition, [2, 4])
    drained(memory, options(topic, group), ledger, ledger.note, 2)
    assert ledger.offsets() == [6, 9]
    assert memory.committed(group, topic) == {partition: CommittedOffset(10, "")}


@pytest.mark.parametrize("written", [2, 6], ids=["to less than before", "to more than before"])
def test_a_log_that_is_truncated_and_grows_ends_the_consumer(
    memory: Memory, group: str, ledger: Ledger, written: int
) -> None:
    topic = memory.topic()
    memory.write(*numbered(topic, 6))
    running = Running(memory, options(topic, group), ledger.note)
    with running:
        ledger.count(6)
        with memory.cluster.atomic():
            memory.cluster.truncate(TopicPartition(topic, 0), 2)
            memory.write(*numbered(topic, written))
        running.join()
    assert isinstance(running.failure, OffsetOutOfRange)
    assert running.failure.start == 2


@pytest.mark.parametrize("written", [2, 6], ids=["to less than before", "to more than before"])
@pytest.mark.parametrize("seeks_fail", [0, 2], ids=["at once", "after seeks that failed"])
def test_a_log_that_is_truncated_and_written_anew_is_read_anew_where_loss_is_allowed(
    memory: Memory, group: str, ledger: Ledger, seeks_fail: int, written: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = memory.topic()
    partition = TopicPartition(topic, 0)
    memory.write(*numbered(topic, 6))
    running = Running(memory, options(topic, group, fail_on_data_loss=False), ledger.note)
    source = running.consumer._backend.source  # type: ignore[union-attr]
    go, asked_for = source.seek, []

    def seek(offsets: Any) -> None:
        asked_for.append(offsets)
        if len(asked_for) <= seeks_fail:
            raise BrokerUnavailable("away", bootstrap_servers="memory")
        go(offsets)

    monkeypatch.setattr(source, "seek", seek)
    with running:
        ledger.count(6)
        with memory.cluster.atomic():
            memory.cluster.truncate(partition, 2)
            memory.write(*numbered(topic, written))
        ledger.count(8 + written)
        running.stop(drain=True)
    assert len(asked_for) > seeks_fail
    assert ledger.offsets() == [*range(6), *range(2 + written)]
    assert memory.committed(group, topic) == {partition: CommittedOffset(2 + written, "")}


@DELIVERIES
def test_records_that_the_client_returns_twice_are_done_once(
    cluster: Cluster, group: str, ledger: Ledger, delivery: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, target = cluster.topic(), cluster.topic()
    partition = TopicPartition(topic, 0)
    cluster.write(*numbered(topic, 6))
    backs = [0, 3]

    def work(record: ConsumedRecord) -> Output:
        ledger.note(record)
        return Output(target, b"%d" % record.offset)

    running = Running(cluster, options(topic, group, delivery=delivery, commit_interval_ms=50), work)
    source = running.consumer._backend.source  # type: ignore[union-attr]
    poll = source.poll

    def poll_again(limit: int, timeout: float) -> Any:
        records = poll(limit, timeout)
        if backs and any(record.offset == 5 for record in records):
            source.seek({partition: backs.pop()})
        return records

    monkeypatch.setattr(source, "poll", poll_again)
    with running:
        running.until(lambda _: not backs)
        cluster.write(*numbered(topic, 2))
        ledger.count(8)
        running.stop(drain=True)
    assert ledger.offsets() == list(range(8))
    assert sorted(record.value or b"" for record in cluster.read(target)) == [b"%d" % number for number in range(8)]
    assert cluster.committed(group, topic) == {partition: CommittedOffset(8, "")}


def test_where_nothing_is_committed_and_no_reset_is_allowed_the_consumer_says_so(
    cluster: Cluster, group: str, ledger: Ledger
) -> None:
    topic = cluster.topic()
    cluster.write(*numbered(topic, 1))
    running = ended(cluster, options(topic, group, kafka={"auto.offset.reset": "error"}), ledger.note)
    assert isinstance(running.failure, KafkaError)
    assert ledger.seen == []


# -- life -------------------------------------------------------------------------------------------------------------


def test_a_paused_consumer_hands_nothing_out_and_goes_on_where_it_was(
    cluster: Cluster, group: str, ledger: Ledger
) -> None:
    topic = cluster.topic()
    cluster.write(*numbered(topic, 2))
    with Running(cluster, options(topic, group), ledger.note) as running:
        ledger.count(2)
        running.consumer.pause()
        running.until(lambda health: health.state is State.PAUSED)
        cluster.write(*numbered(topic, 3))
        running.until(lambda health: health.partitions[0].queued == 3)
        assert len(ledger.seen) == 2
        running.consumer.resume()
        ledger.count(5)
        running.until(lambda health: health.state is State.RUNNING)
    assert ledger.offsets() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("drain", [True, False], ids=["draining", "not draining"])
def test_a_stop_finishes_what_was_read_or_what_is_in_flight(
    cluster: Cluster, group: str, ledger: Ledger, gate: threading.Event, drain: bool
) -> None:
    """Where nothing is drained, what follows in the hands of a worker may begin until the owner hears of the stop."""
    topic = cluster.topic()
    cluster.write(*numbered(topic, 40))

    def work(record: ConsumedRecord) -> None:
        ledger.note(record)
        gate.wait()

    with Running(cluster, options(topic, group), work) as running:
        running.until(lambda health: health.partitions and health.partitions[0].queued == 39)
        running.consumer.stop(drain=drain)
        gate.set()
        running.join()
    done = len(ledger.seen)
    assert done == 40 if drain else 1 <= done <= 1 + MAX_FOLLOWERS
    assert ledger.offsets() == list(range(done))
    assert [left.offset for left in cluster.committed(group, topic).values()] == [done]


def test_health_tells_the_state_the_lag_and_the_keys_that_wait(
    cluster: Cluster, group: str, ledger: Ledger, gate: threading.Event
) -> None:
    """#71, #484, #656."""
    topic = cluster.topic()
    cluster.write(*numbered(topic, 6, keys=2))

    def work(record: ConsumedRecord) -> None:
        if record.key == b"key-1":
            gate.wait()
        ledger.note(record)

    with Running(cluster, options(topic, group), work) as running:
        ledger.count(3)
        health = running.until(lambda health: health.partitions[0].incompletes == 3)
        assert health.state is State.RUNNING
        (partition,) = health.partitions
        assert (partition.partition, partition.next_commit) == (TopicPartition(topic, 0), 1)
        assert (partition.lag, partition.queued, partition.in_flight) == (5, 2, 1)
        assert partition.buffered_bytes == 3 * len(b"key-1" + b"1")
        (stuck,) = health.waiting
        assert (stuck.key, stuck.offset, stuck.attempt, stuck.error) == (b"key-1", 1, 1, None)
        assert stuck.seconds is not None
        gate.set()
        ledger.count(6)
    health = running.consumer.health()
    assert (health.state, health.failure, health.counters.records) == (State.CLOSED, None, 6)


@pytest.mark.parametrize("bound", ["records", "bytes"])
def test_what_waits_in_memory_is_bounded(
    memory: Memory, group: str, ledger: Ledger, gate: threading.Event, bound: str
) -> None:
    """#832, #817, #716."""
    topic = memory.topic(2)
    for number in (0, 1):
        memory.write(*[Output(topic, b"x" * 1_000, partition=number)] * 2_000)

    def work(record: ConsumedRecord) -> None:
        gate.wait()
        ledger.note(record)

    limits = {"buffer_records": 400} if bound == "records" else {"buffer_bytes": 400_000}
    with Running(memory, options(topic, group, ordering=Ordering.UNORDERED, **limits), work) as running:
        health = running.until(
            lambda health: len(health.partitions) == 2 and all(each.paused for each in health.partitions)
        )
        gate.set()
        assert sum(each.queued + each.in_flight for each in health.partitions) <= 400
        ledger.count(4_000)
        running.until(lambda health: not any(each.paused for each in health.partitions))


def test_a_map_that_is_nearly_too_large_holds_new_records_back_until_it_has_shrunk(
    memory: Memory, group: str, ledger: Ledger, gate: threading.Event
) -> None:
    """#47, #53, #647, #831."""
    topic = memory.topic()
    memory.write(*[Output(topic, b"", partition=0)] * 3_000)

    def work(record: ConsumedRecord) -> None:
        if record.offset % 2 == 0 and not gate.is_set():
            raise OSError("not yet")
        ledger.note(record)

    asked = options(topic, group, ordering=Ordering.UNORDERED, retry=SOON, commit_interval_ms=1)
    with Running(memory, asked, work, map_limits=OffsetMapLimits(back_pressure_length=50)) as running:
        running.until(lambda health: health.partitions and health.partitions[0].blocked)
        done = len(ledger.seen)
        assert done < 1_500
        gate.set()
        ledger.count(3_000)
        running.until(lambda _: is_committed(memory, group, topic, 3_000))
    assert sorted(ledger.offsets()) == list(range(3_000))


@DELIVERIES
@pytest.mark.parametrize("limit", [40, 0])
def test_a_broker_that_keeps_less_of_a_map_gets_shorter_ones(
    group: str, ledger: Ledger, delivery: str, limit: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Its ``offset.metadata.max.bytes`` is less than 4,096."""
    memory = Memory(max_metadata_bytes=limit)
    topic, target = memory.topic(), memory.topic()
    memory.write(*[Output(topic, b"", partition=0)] * 600)
    stuck = [number for number in range(600) if pow(3, number, 65_537) % 2]
    first, again = Ledger(), Ledger()

    def work(ledger: Ledger, record: ConsumedRecord) -> Output:
        ledger.note(record)
        if ledger is first and record.offset in stuck:
            raise OSError("not now")
        return Output(target, b"%d" % record.offset)

    asked = options(topic, group, ordering=Ordering.UNORDERED, delivery=delivery, retry=NEVER, commit_interval_ms=1)
    with Running(memory, asked, partial(work, first)) as running:
        running.until(lambda health: health.partitions and health.partitions[0].blocked)
    assert running.failure is None
    assert "offset.metadata.max.bytes" in caplog.text
    (left,) = memory.committed(group, topic).values() or [CommittedOffset(0)]
    assert len(left.metadata) <= limit
    highest, incompletes = decode(left.metadata, left.offset)
    done = set(range(max(left.offset, highest + 1))) - set(incompletes)
    assert len(done) < len(first.seen)
    drained(memory, options(topic, group, delivery=delivery), again, partial(work, again), 600 - len(done))
    written = Counter(int(record.value or b"") for record in memory.read(target))
    assert set(written) == set(range(600))
    assert delivery == "at_least_once" or max(written.values()) == 1


# -- groups -----------------------------------------------------------------------------------------------------------


@DELIVERIES
def test_a_member_that_leaves_hands_over_without_a_loss_or_a_repetition(
    cluster: Cluster, group: str, ledger: Ledger, delivery: str
) -> None:
    """#777, #857: what is in flight is awaited, and who stays takes all."""
    topic, target = cluster.topic(4), cluster.topic()
    asked = options(topic, group, delivery=delivery)

    def work(record: ConsumedRecord) -> Output:
        ledger.enter((record.partition, record.key))
        ledger.leave((record.partition, record.key))
        ledger.note(record)
        return Output(target, b"%d/%d" % (record.partition, record.offset))

    def write(count: int) -> None:
        cluster.write(*(output for number in range(4) for output in numbered(topic, count, keys=3, partition=number)))

    with Running(cluster, asked, work) as first:
        write(20)
        ledger.count(80)
        with Running(cluster, asked, work) as second:
            second.until(lambda health: len(health.partitions) == 2)
            first.until(lambda health: len(health.partitions) == 2)
            write(20)
            ledger.count(160)
            first.stop(drain=False)
            second.until(lambda health: len(health.partitions) == 4)
            write(20)
            ledger.count(240)
            second.stop(drain=True)
    assert set(ledger.most.values()) == {1}
    for number in range(4):
        assert sorted(ledger.offsets(number)) == list(range(60))
    assert len({record.value for record in cluster.read(target)}) == len(cluster.read(target)) == 240
    assert {left.offset for left in cluster.committed(group, topic).values()} == {60}


def test_a_group_that_takes_everything_back_before_it_shares_anew_loses_and_repeats_nothing(
    real_cluster: Kafka, group: str, ledger: Ledger
) -> None:
    topic = real_cluster.topic(2)
    asked = options(topic, group, kafka={"partition.assignment.strategy": "range"})
    with Running(real_cluster, asked, ledger.note) as first:
        first.until(lambda health: len(health.partitions) == 2)
        with Running(real_cluster, asked, ledger.note) as second:
            second.until(lambda health: len(health.partitions) == 1)
            first.until(lambda health: len(health.partitions) == 1)
            real_cluster.write(*numbered(topic, 10, keys=3), *numbered(topic, 10, keys=3, partition=1))
            ledger.count(20)
        first.until(lambda health: len(health.partitions) == 2)
        real_cluster.write(*numbered(topic, 10, keys=3), *numbered(topic, 10, keys=3, partition=1))
        ledger.count(40)
    assert sorted(ledger.offsets(0)) == sorted(ledger.offsets(1)) == list(range(20))


def test_a_member_that_goes_while_the_group_shares_out_holds_nobody_up(
    real_cluster: Kafka, group: str, ledger: Ledger
) -> None:
    """Were it to go without leaving, commits would not be answered for as long as its session lasts: 45 s."""
    topic = real_cluster.topic(2)
    asked = options(topic, group, commit_interval_ms=50)

    def is_all_committed(offset: int, _: ConsumerHealth) -> bool:
        return [left.offset for left in real_cluster.committed(group, topic).values()] == [offset] * 2

    with Running(real_cluster, asked, ledger.note) as stays:
        stays.until(lambda health: len(health.partitions) == 2)
        for moment in range(10):
            with Running(real_cluster, asked, ledger.note) as goes:
                goes._thread.join(0.04 * moment)
            real_cluster.write(*numbered(topic, 1), *numbered(topic, 1, partition=1))
            ledger.count(2 * moment + 2)
            stays.until(partial(is_all_committed, moment + 1))
    assert ledger.offsets(0) == ledger.offsets(1) == list(range(10))


def test_a_partition_that_is_taken_away_waits_for_what_is_in_flight(
    memory: Memory, group: str, ledger: Ledger, gate: threading.Event
) -> None:
    """#777."""
    topic = memory.topic(2)
    memory.write(*numbered(topic, 1), *numbered(topic, 1, partition=1))

    def work(record: ConsumedRecord) -> None:
        ledger.note(record)
        gate.wait()

    with Running(memory, options(topic, group, revoke_wait_ms=60_000), work):
        ledger.count(2)
        with Running(memory, options(topic, group), work) as second:
            second.until(lambda health: health.state is State.RUNNING)
            gate.set()
            second.until(lambda health: len(health.partitions) == 1)
            memory.write(*numbered(topic, 1), *numbered(topic, 1, partition=1))
            ledger.count(4)
    assert sorted(ledger.offsets(0) + ledger.offsets(1)) == [0, 0, 1, 1]


def test_a_partition_that_comes_back_runs_no_key_twice_at_a_time_and_ignores_what_it_did_before(
    memory: Memory, group: str, ledger: Ledger, gate: threading.Event
) -> None:
    """#875, #909: a member is thrown out with a record in flight, which is somebody else's by then: its own, again."""
    topic = memory.topic()
    memory.write(*numbered(topic, 3, keys=1))

    def work(record: ConsumedRecord) -> None:
        ledger.enter(record.key)
        ledger.note(record)
        gate.wait()
        ledger.leave(record.key)

    asked = options(topic, group)
    with Running(memory, asked, work) as running:
        ledger.count(1)
        backend = running.consumer._backend
        backend.remove_from_group()  # type: ignore[union-attr]
        running.until(lambda health: health.partitions and health.partitions[0].queued == 3)
        gate.set()
        ledger.count(4)
        running.stop(drain=True)
    assert ledger.offsets() == [0, 0, 1, 2]
    assert set(ledger.most.values()) == {1}
    assert memory.committed(group, topic) == {TopicPartition(topic, 0): CommittedOffset(3, "")}


def test_a_broker_that_is_away_for_a_while_costs_nothing(memory: Memory, group: str, ledger: Ledger) -> None:
    """#809, #833: commits and outputs wait, and a record whose letter is not written yet is not done."""
    topic, target, letters = memory.topic(), memory.topic(), memory.topic()
    memory.write(*numbered(topic, 10, keys=10))
    asked = options(topic, group, commit_interval_ms=1, retry=ONCE, dead_letter_topic=letters)
    proceed = threading.Event()

    def work(record: ConsumedRecord) -> Output:
        proceed.wait(TIMEOUT_S)
        ledger.note(record)
        if record.offset == 9:
            raise ValueError("no JSON")
        return Output(target, record.value)

    with Running(memory, asked, work) as running:
        running.until(lambda health: health.partitions and health.partitions[0].incompletes == 10)
        with memory.cluster.unavailable():
            proceed.set()
            running.until(lambda health: health.counters.given_up == 1 and health.counters.records == 9)
            assert running.consumer.health().partitions[0].incompletes == 10
        running.until(lambda health: health.partitions[0].incompletes == 0)
    assert len(memory.read(target)) == 9
    assert len(memory.read(letters)) == 1
    assert memory.committed(group, topic) == {TopicPartition(topic, 0): CommittedOffset(10, "")}


@DELIVERIES
def test_a_partition_whose_progress_cannot_be_read_is_tried_again(
    memory: Memory, group: str, ledger: Ledger, delivery: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = memory.topic()
    memory.write(*numbered(topic, 5))
    memory.commit(group, {TopicPartition(topic, 0): CommittedOffset(2, "")})
    asked = options(topic, group, delivery=delivery)
    running = Running(memory, asked, ledger.note)
    source = running.consumer._backend.source  # type: ignore[union-attr]
    answer, asked_for = source.committed, []

    def committed(partitions: Any) -> Any:
        asked_for.append(partitions)
        if len(asked_for) < 3:
            raise BrokerUnavailable("away", bootstrap_servers="memory")
        return answer(partitions)

    monkeypatch.setattr(source, "committed", committed)
    with running:
        ledger.count(3)
        running.stop(drain=True)
    assert ledger.offsets() == [2, 3, 4]
    assert memory.committed(group, topic) == {TopicPartition(topic, 0): CommittedOffset(5, "")}


@DELIVERIES
def test_a_partition_whose_progress_is_held_by_a_transaction_holds_no_other_up(
    cluster: Cluster, group: str, ledger: Ledger, delivery: str
) -> None:
    timings = replace(PROMPT, request_timeout_s=2.0, transactions_open_timeout_s=2.0, retry_backoff_s=1.0)
    topic = cluster.topic(2)
    cluster.write(*numbered(topic, 5), *numbered(topic, 5, partition=1))
    cluster.commit(group, {TopicPartition(topic, 0): CommittedOffset(0)})
    stranger = cluster.writer(f"stranger-{group}")
    stranger.send_offsets(group, {TopicPartition(topic, 0): CommittedOffset(3)})
    asked = options(topic, group, delivery=delivery, commit_interval_ms=50)
    with Running(cluster, asked, ledger.note, timings=timings) as running:
        ledger.count(5)
        running.until(lambda health: [each.settled for each in health.partitions] == [5])
        assert {record.partition for record in ledger.seen} == {1}
        stranger.commit()
        ledger.count(7)
        running.stop(drain=True)
    assert ledger.offsets(0) == [3, 4]


def test_records_that_fail_for_ever_leave_room_for_all_others(memory: Memory, group: str, ledger: Ledger) -> None:
    """#487, #497: a tenant whose service is down, with more records than half of the buffer."""
    topic = memory.topic()
    memory.write(*numbered(topic, 1_200, keys=10))

    def work(record: ConsumedRecord) -> None:
        if record.key == b"key-0":
            raise OSError("the service is down")
        ledger.note(record)

    with Running(memory, options(topic, group, retry=NEVER, buffer_records=200), work):
        ledger.count(1_080)


def test_health_tells_of_a_buffer_that_is_full_of_records_that_wait_and_of_the_last_commit(
    cluster: Cluster, group: str, ledger: Ledger
) -> None:
    topic = cluster.topic()
    cluster.write(*numbered(topic, 5), *numbered(topic, 300, keys=1))

    def work(record: ConsumedRecord) -> None:
        if record.key == b"key-0":
            raise OSError("the service is down")

    began = time.time()
    with Running(cluster, options(topic, group, retry=NEVER, buffer_records=200, commit_interval_ms=10), work) as it:
        it.until(lambda health: any(each.stalled_seconds and each.counts.committed_at for each in health.partitions))
        (partition,) = it.consumer.health().partitions
    assert partition.paused
    assert partition.counts.committed_at is not None
    assert began <= partition.counts.committed_at <= time.time()


@pytest.mark.parametrize(
    "error",
    [UnsafeBroker("shows open offsets"), NotAuthorized("no"), InvalidKafkaConfig("no", key="transaction.timeout.ms")],
    ids=lambda error: type(error).__name__,
)
def test_what_another_try_does_not_mend_ends_the_consumer_at_its_start(
    memory: Memory, group: str, ledger: Ledger, error: WasmlineError, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = memory.topic()
    memory.write(*numbered(topic, 1))

    def refuse(partitions: Any) -> None:
        raise error

    asked = options(topic, group, delivery="exactly_once")
    running = Running(memory, asked, ledger.note)
    monkeypatch.setattr(running.consumer._backend.transactions, "open", refuse)  # type: ignore[union-attr]
    running._thread.start()
    running.join()
    assert running.failure is error
    assert ledger.seen == []


def test_exactly_once_is_refused_where_the_client_cannot_carry_maps(
    real_cluster: Kafka, group: str, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = real_cluster.topic()
    monkeypatch.setattr("confluent_kafka.libversion", lambda: ("1.0.0", 0x010000FF))
    running = ended(real_cluster, options(topic, group, delivery="exactly_once"), ledger.note)
    assert isinstance(running.failure, UnsafeBroker)


def test_a_transaction_timeout_that_the_broker_does_not_allow_ends_the_consumer(
    real_cluster: Kafka, group: str, ledger: Ledger
) -> None:
    topic = real_cluster.topic()
    asked = options(topic, group, delivery="exactly_once", kafka={"transaction.timeout.ms": "2000000000"})
    failure = ended(real_cluster, asked, ledger.note).failure
    assert isinstance(failure, InvalidKafkaConfig)
    assert failure.key == "transaction.timeout.ms"


def test_outputs_that_no_broker_took_in_time_are_made_again(
    memory: Memory, group: str, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An outage longer than ``delivery.timeout.ms``."""
    topic, target = memory.topic(), memory.topic()
    memory.write(*numbered(topic, 10, keys=10))
    running = Running(memory, options(topic, group, commit_interval_ms=50), lambda record: Output(target, record.value))
    sink = running.consumer._backend.sink  # type: ignore[union-attr]
    write = sink.write
    lost: list[Output] = []

    def lose(output: Output, done: Callable[[Exception | None], None], *, alone: bool = False) -> None:
        if len(lost) < 3:
            lost.append(output)
            done(BrokerUnavailable("not acknowledged in time", bootstrap_servers="memory"))
        else:
            write(output, done)

    monkeypatch.setattr(sink, "write", lose)
    with running:
        running.until(lambda _: is_committed(memory, group, topic, 10))
    assert {record.value for record in memory.read(target)} == {b"%d" % number for number in range(10)}


def test_a_client_that_reports_the_ends_of_partitions_reads_on(real_cluster: Kafka, group: str, ledger: Ledger) -> None:
    topic = real_cluster.topic()
    asked = options(topic, group, kafka={"enable.partition.eof": "true"})
    with Running(real_cluster, asked, ledger.note) as running:
        running.until(lambda health: health.partitions)
        real_cluster.write(*numbered(topic, 1))
        ledger.count(1)
        real_cluster.write(*numbered(topic, 1))
        ledger.count(2)
    assert running.failure is None


def test_what_waits_for_a_transaction_is_bounded_by_bytes(memory: Memory, group: str, ledger: Ledger) -> None:
    """#832: nothing is committed, and each record makes a hundred times its size."""
    topic, target = memory.topic(), memory.topic()
    memory.write(*numbered(topic, 2_000, keys=2_000))

    def work(record: ConsumedRecord) -> Output:
        ledger.note(record)
        return Output(target, b"x" * 1_000)

    asked = options(
        topic, group, delivery="exactly_once", buffer_bytes=100_000, commit_interval_ms=3_600_000, max_concurrency=4
    )
    with Running(memory, asked, work) as running:
        running.until(lambda health: health.counters.records >= 100)
        running.until(lambda health: health.partitions[0].in_flight == 0)
        assert len(ledger.seen) < 250


@DELIVERIES
def test_a_topic_that_is_deleted_with_something_of_it_uncommitted_ends_and_loses_nothing_else(
    real_cluster: Kafka, group: str, ledger: Ledger, delivery: str
) -> None:
    """Of topics by a regular expression one may go; the group hears of that at its next look for metadata."""
    prefix = f"test-{group}"
    gone, stays = (real_cluster.topic(name=f"{prefix}-{name}") for name in ("gone", "stays"))
    target = real_cluster.topic()

    def work(record: ConsumedRecord) -> Output:
        ledger.note(record)
        return Output(target, record.value, record.topic.encode())

    asked = options(f"^{prefix}-.*", group, delivery=delivery, commit_interval_ms=100)
    with Running(real_cluster, asked, work) as running:
        running.until(lambda health: len(health.partitions) == 2)
        running.consumer.pause()
        running.until(lambda health: health.state is State.PAUSED)
        real_cluster.write(*numbered(gone, 5), *numbered(stays, 5))
        running.until(lambda health: [each.queued for each in health.partitions] == [5, 5])
        real_cluster.delete(gone)
        running.consumer.resume()
        ledger.count(10)
        running.until(lambda health: [each.partition.topic for each in health.partitions] == [stays])
        real_cluster.write(*numbered(stays, 5))
        ledger.count(15)
        running.until(lambda _: is_committed(real_cluster, group, stays, 10))
    assert running.failure is None
    assert [record.value for record in real_cluster.read(target) if record.key == stays.encode()] == [
        b"%d" % number for number in [*range(5), *range(5)]
    ]


class Ambiguous:
    """Is neither true nor false, like an array of several numbers."""

    def __bool__(self) -> bool:
        raise RuntimeError("ambiguous")


NO_RECORDS: list[dict[str, Any]] = [
    {"value": {"amount": 1}},
    {"value": 5},
    {"value": Ambiguous()},
    {"value": "\ud800"},
    {"value": b"", "key": 5},
    {"value": b"", "headers": {"trace": b"1"}},
    {"value": b"", "headers": [("trace", 5)]},
    {"value": b"", "headers": 5},
    {"value": b"", "topic": 5},
    {"value": b"", "timestamp": "1"},
    {"value": b"", "timestamp": 1.5},
    {"value": b"", "timestamp": -1},
    {"value": b"", "timestamp": 2**63},
    {"value": b"", "partition": "1"},
    {"value": b"", "partition": -1},
    {"value": b"", "partition": -2},
    {"value": b"", "partition": 2**31},
]
"""What the client takes for no record."""


@DELIVERIES
def test_an_output_that_can_be_no_record_makes_a_dead_letter_of_its_input(
    cluster: Cluster, group: str, delivery: str
) -> None:
    topic, target, letters = cluster.topic(), cluster.topic(), cluster.topic()
    count = len(NO_RECORDS)
    cluster.write(*numbered(topic, count + 2, keys=count + 2))

    def work(record: ConsumedRecord) -> Output:
        if record.offset < count:
            return Output(**{"topic": target, **NO_RECORDS[record.offset]})
        return Output(target, "text", "key", [("name", "text")])  # type: ignore[arg-type, list-item]

    asked = options(topic, group, delivery=delivery, dead_letter_topic=letters, commit_interval_ms=20)
    with Running(cluster, asked, work) as running:
        running.until(lambda health: health.partitions and health.partitions[0].next_commit == count + 2)
        running.until(lambda _: is_committed(cluster, group, topic, count + 2))
    assert running.failure is None
    assert sorted(int(record.value or b"") for record in cluster.read(letters)) == list(range(count))
    assert {dict(record.headers)["wasmline.error"] for record in cluster.read(letters)} == {b"OutputRefused"}
    written = [(record.key, record.value, list(record.headers)) for record in cluster.read(target)]
    assert written == [(b"key", b"text", [("name", b"text")])] * 2


@DELIVERIES
def test_what_comes_from_no_record_in_particular_is_written_beside_a_failure(
    cluster: Cluster, group: str, delivery: str
) -> None:
    topic, target, letters = cluster.topic(), cluster.topic(), cluster.topic()
    cluster.write(*numbered(topic, 2, keys=2))
    calls = []

    def work(records: Sequence[ConsumedRecord]) -> Any:
        calls.append(len(records))
        failures = {place: ValueError("1") for place, record in enumerate(records) if record.value == b"1"}
        return BatchResult([Output(target, b"of nobody")], failures, rows=[None])

    asked = options(
        topic, group, delivery=delivery, dead_letter_topic=letters, batch_size=2, retry=RetryPolicy(max_attempts=1)
    )
    with Running(cluster, asked, work) as running:
        running.until(lambda _: is_committed(cluster, group, topic, 2))
    assert running.failure is None
    assert [record.value for record in cluster.read(letters)] == [b"1"]
    assert [record.value for record in cluster.read(target)] == [b"of nobody"] * len(calls)


def test_exactly_once_is_refused_where_the_process_may_not_open_the_files_of_its_producers(
    real_cluster: Kafka, group: str, ledger: Ledger
) -> None:
    topic = real_cluster.topic(40)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len([*DESCRIPTORS.iterdir()]) + 200, before[1]))
    try:
        failure = ended(real_cluster, options(topic, group, delivery="exactly_once"), ledger.note).failure
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert isinstance(failure, InvalidConsumerOption)
    assert "ulimit -n" in str(failure)
