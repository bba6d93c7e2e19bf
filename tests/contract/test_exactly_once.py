"""Exactly-once at its edges: what is committed has its outputs, each once, whatever ended a round or the consumer."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, though not in its __all__
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from support.consumers.clusters import Cluster, Kafka, Memory, numbered
from support.consumers.running_consumer import TIMEOUT_S, Ledger, Running, drained, ended
from wasmline.background_call import BackgroundCall
from wasmline.consumer import ConsumedRecord, ConsumerOptions, Delivery, Ordering, Output, RetryPolicy
from wasmline.consumer.backends.kafka.producer_batch_limiter import ProducerBatchLimiter
from wasmline.consumer.runtime import committer
from wasmline.errors import BrokerUnavailable, NotAuthorized, OutputRefused, RecordGivenUp, TopicNotFound
from wasmline.kafka import KafkaConfig
from wasmline.local import LocalKafka
from wasmline.local.server_properties import SMALL
from wasmline.offset_maps import OffsetMapLimits, decode
from wasmline.testing.kafka import RunningKafka
from wasmline.topic_partitions import CommittedOffset, TopicPartition

RECORDS = 20
LARGE = 13
"""The record whose output is too large for its topic."""

NEVER = RetryPolicy(delay_ms=3_600_000, max_delay_ms=3_600_000)


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


DELIVERIES = pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])


@DELIVERIES
def test_an_output_for_a_partition_that_is_not_there_is_a_dead_letter(
    cluster: Cluster, group: str, delivery: str
) -> None:
    topic, target, dead = cluster.topic(), cluster.topic(2), cluster.topic()
    cluster.write(*numbered(topic, RECORDS, keys=RECORDS))

    def one(record: ConsumedRecord) -> Output:
        return Output(target, b"", b"%d" % record.offset, partition=2 if record.offset == LARGE else 1)

    asked = replace(options(topic, group, commit_interval_ms=50, dead_letter_topic=dead), delivery=delivery)  # type: ignore[arg-type]
    with Running(cluster, asked, one) as running:
        running.until(lambda _: done(cluster, group, topic) == set(range(RECORDS)))
    assert running.failure is None
    assert [record.value for record in cluster.read(dead)] == [b"%d" % LARGE]
    assert written(cluster, target) == [number for number in range(RECORDS) if number != LARGE]


def test_a_partition_that_the_client_does_not_know_is_no_refusal_unless_its_topic_has_none_of_that_number(
    kafka: RunningKafka,
) -> None:
    batches, unknown = ProducerBatchLimiter(kafka.config), KafkaError(KafkaError._UNKNOWN_PARTITION)
    topic = kafka.topic(2)
    named = {
        partition: batches.missing_partition(Output(topic, b"", partition=partition), unknown) for partition in (1, 2)
    }
    assert isinstance(named[1], BrokerUnavailable)
    assert isinstance(named[2], OutputRefused)
    for partition in (0, None):
        assert isinstance(
            batches.missing_partition(Output("missing", b"", partition=partition), unknown), TopicNotFound
        )
    assert isinstance(batches.missing_partition(Output(topic, b""), unknown), BrokerUnavailable)


@DELIVERIES
def test_outputs_of_a_topic_whose_limit_is_lowered_are_written_in_smaller_batches(
    real_cluster: Kafka, group: str, delivery: str
) -> None:
    topic, target, dead = real_cluster.topic(), real_cluster.topic(), real_cluster.topic()
    gate, first = threading.Event(), 10

    def one(record: ConsumedRecord) -> Output:
        if record.offset >= first:
            assert gate.wait(TIMEOUT_S)
        return Output(target, b"x" * 300, b"%d" % record.offset)

    many = range(3_000)
    asked = options(topic, group, commit_interval_ms=200, dead_letter_topic=dead, ordering=Ordering.PARTITION)
    with Running(real_cluster, replace(asked, delivery=delivery), one) as running:  # type: ignore[arg-type]
        real_cluster.write(*numbered(topic, first))
        running.until(lambda _: done(real_cluster, group, topic) == set(range(first)))
        real_cluster.limit(target, 4_000)
        real_cluster.write(*numbered(topic, len(many) - first))
        gate.set()
        running.until(lambda _: done(real_cluster, group, topic) == set(many))
    assert running.failure is None
    assert real_cluster.read(dead) == []
    assert set(written(real_cluster, target)) == set(many)
    assert delivery == "at_least_once" or written(real_cluster, target) == list(many)


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


@pytest.mark.parametrize("delivery", ["exactly_once", pytest.param("at_least_once", marks=pytest.mark.long)])
def test_a_permission_of_the_group_that_is_taken_away_ends_the_consumer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, group: str, delivery: str
) -> None:
    monkeypatch.setitem(SMALL, "authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer")
    monkeypatch.setitem(SMALL, "allow.everyone.if.no.acl.found", "true")
    denied = AclBinding(
        ResourceType.GROUP, group, ResourcePatternType.LITERAL,
        "User:ANONYMOUS", "*", AclOperation.READ, AclPermissionType.DENY,
    )  # fmt: skip
    with LocalKafka(tmp_path) as local:
        cluster = Kafka(RunningKafka(local=local, config=KafkaConfig({"bootstrap.servers": local.bootstrap_servers})))
        admin = AdminClient({"bootstrap.servers": local.bootstrap_servers})
        topic, target = cluster.topic(), cluster.topic()
        asked = replace(options(topic, group, commit_interval_ms=50), delivery=Delivery(delivery))
        with Running(cluster, asked, partial(output, target)) as running:
            cluster.write(*numbered(topic, RECORDS))
            running.until(lambda _: done(cluster, group, topic) == set(range(RECORDS)))
            (made,) = admin.create_acls([denied]).values()
            made.result(TIMEOUT_S)
            cluster.write(*numbered(topic, RECORDS))
            running.join()
        assert isinstance(running.failure, NotAuthorized)


class _Interrupted(BackgroundCall[Any]):
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
            assert self.wait(TIMEOUT_S)
        raise KeyboardInterrupt


@pytest.mark.parametrize("late", [False, True], ids=["before it is carried out", "after"])
def test_an_interrupt_as_a_round_begins_neither_loses_nor_doubles(
    cluster: Cluster, group: str, ledger: Ledger, late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, target = cluster.topic(), cluster.topic()
    cluster.write(*numbered(topic, RECORDS, keys=RECORDS))
    monkeypatch.setattr(_Interrupted, "late", late)
    monkeypatch.setattr(_Interrupted, "count", 0)
    monkeypatch.setattr(committer, "BackgroundCall", _Interrupted)

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
    from wasmline.consumer.runtime.transactional_committer import TransactionalCommitter, _Outputs
    from wasmline.consumer.state.work_manager import WorkManager

    topic, target = memory.topic(), memory.topic()
    memory.write(*numbered(topic, RECORDS, keys=RECORDS))
    owner, name = {
        "complete": (WorkManager, "complete"),
        "moment": (_Outputs, "add"),
        "settle": (TransactionalCommitter, "_handle_failures"),
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


def test_outputs_whose_map_does_not_fit_wait_and_are_not_written_again_after_a_restart(
    cluster: Cluster, group: str, ledger: Ledger
) -> None:
    """More finishes out of order between two commits than a broker keeps."""
    limits = OffsetMapLimits(back_pressure_length=40, max_metadata_length=60, measured_calls=4, long_range_offsets=20)
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
    with Running(cluster, asked, work, map_limits=limits) as running:
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
    drained(cluster, asked, again, finish, 400 - len(first), map_limits=limits)
    assert written(cluster, target) == list(range(400))


def test_outputs_that_cannot_be_committed_yet_do_not_hold_up_what_lets_them_go(
    memory: Memory, group: str, ledger: Ledger, gate: threading.Event
) -> None:
    """The buffer is full of outputs whose map does not fit, and only the records below would make it smaller."""
    limits = OffsetMapLimits(back_pressure_length=10, max_metadata_length=12)
    topic, target = memory.topic(), memory.topic()
    memory.write(*numbered(topic, 60, keys=60))

    def work(record: ConsumedRecord) -> list[Output]:
        ledger.note(record)
        if record.offset % 2 == 0 and record.attempt == 1:
            raise OSError("not now")
        return [output(target, record, large=-1)] * 5

    asked = options(topic, group, retry=RetryPolicy(delay_ms=200), buffer_records=60, commit_interval_ms=1)
    drained(memory, asked, ledger, work, 90, map_limits=limits)
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


def test_a_log_that_is_cut_between_two_commits_loses_no_output(cluster: Cluster, group: str, ledger: Ledger) -> None:
    """What was done since the last commit has no outputs yet."""
    topic, target = cluster.topic(), cluster.topic()
    cluster.write(*numbered(topic, 10, keys=10))
    cluster.commit(group, {TopicPartition(topic, 0): CommittedOffset(0)})

    def work(record: ConsumedRecord) -> Output:
        ledger.note(record)
        return Output(target, record.value)

    asked = options(topic, group, commit_interval_ms=3_600_000, fail_on_data_loss=False)
    with Running(cluster, asked, work) as running:
        ledger.count(10)
        running.until(lambda health: health.counters.records == 10)
        cluster.truncate(topic, 5)
        written = [b"new %d" % number for number in range(3)]
        cluster.write(*[Output(topic, value, partition=0) for value in written])
        ledger.until(lambda seen: seen[-1].value == written[-1])
        running.stop(drain=True)
    assert running.failure is None
    outputs = Counter(record.value for record in cluster.read(target))
    assert outputs == Counter([*(b"%d" % number for number in range(5)), *written])


def test_of_a_log_that_is_cut_below_what_is_committed_nothing_is_lost_or_doubled(
    memory: Memory, group: str, ledger: Ledger
) -> None:
    """Records 2 and 7 are not done, and 7 is cut off; what the map says of the others below still holds."""
    topic, target = memory.topic(), memory.topic()
    memory.write(*numbered(topic, 10, keys=10))

    def work(record: ConsumedRecord) -> Output:
        ledger.note(record)
        if record.value in (b"2", b"7"):
            raise OSError("not now")
        return Output(target, record.value)

    asked = options(topic, group, commit_interval_ms=1, retry=NEVER, fail_on_data_loss=False)
    with Running(memory, asked, work) as running:
        running.until(lambda _: done(memory, group, topic) == {0, 1, 3, 4, 5, 6, 8, 9})
        with memory.cluster.atomic():
            memory.cluster.truncate(TopicPartition(topic, 0), 5)
            memory.write(*[Output(topic, b"new %d" % number, partition=0) for number in range(3)])
        running.until(lambda _: done(memory, group, topic) == {0, 1, 3, 4, 5, 6, 7})
    assert Counter(record.value for record in memory.read(target)) == Counter(
        [b"0", b"1", b"3", b"4", b"5", b"6", b"8", b"9", b"new 0", b"new 1", b"new 2"]
    )
