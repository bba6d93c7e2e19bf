"""The work on leases without Spark: processes that die, freeze and come back, and who gives leases out."""

import signal
import threading
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import chain
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]

import lease_handlers
from support.leases.lease_harness import EXACTLY_ONCE, NOTHING, PATIENCE, LeaseRig, Rigs
from support.rounds import ROUNDS, rounds
from wasmline.consumer import ConsumerOptions, Output, ParallelConsumer
from wasmline.consumer.backends.kafka.lazy_offset_store import LazyOffsetStore
from wasmline.control import DeploymentSpec, ModuleStore
from wasmline.errors import (
    CommitFailed,
    Fenced,
    GroupInUse,
    HandlerStuck,
    InvalidJob,
    OutputRefused,
    ProducerFenced,
    ProgressLost,
)
from wasmline.job_offsets.catch_up import snapshot_end_offsets
from wasmline.kafka import ConsumerGroups
from wasmline.kafka.committed_offset_store import LibrdkafkaOffsetStore
from wasmline.leases.lease_worker import LeaseWorker
from wasmline.leases.manual_backend import ManualBackend, ManualSource, ManualTransactions, PartitionAssignment
from wasmline.leases.timings import LeaseTimings
from wasmline.pipeline.transform_handler import transform_handler
from wasmline.testing.guests import guest
from wasmline.testing.kafka import RunningKafka
from wasmline.topic_partitions import CommittedOffset, TopicPartition
from wasmline.transactional_ids import VIRTUAL_SHARDS, virtual_shard


class Silent(LibrdkafkaOffsetStore):
    """Offsets that are sent are not answered."""

    def __init__(self) -> None:
        super().__init__()
        self.over = threading.Event()

    def send_offsets(self, *args: Any, **options: Any) -> None:
        assert self.over.wait(PATIENCE)


def taken(
    rig: LeaseRig, *partitions: TopicPartition, offset_store: LibrdkafkaOffsetStore | None = None
) -> ManualTransactions:
    """Return the transactions of one who has just become the owner of some partitions."""
    options = ConsumerOptions(topics=(rig.topic,), group_id=rig.job.group, kafka=rig.config.properties)
    share = PartitionAssignment(progress=dict.fromkeys(partitions, 0), followed={}, follow=print, held=lambda: True)
    group = LazyOffsetStore(rig.config, rig.job.group, offset_store or LibrdkafkaOffsetStore())
    source = ManualSource(options, rig.config, group, share)
    transactions = ManualTransactions(rig.config, rig.job.group, source, group, share)
    transactions.open(partitions)
    return transactions


def test_outputs_are_seen_once_and_in_order_whatever_is_killed(rigs: Rigs) -> None:
    rig = rigs(**EXACTLY_ONCE)
    lessor = rig.lessor()
    rig.feed(500)
    leases = lessor.leases(lessor.next(NOTHING))
    for _ in rounds(3 * ROUNDS):
        tasks = rig.work(leases)
        before = rig.seen()
        rig.feed(1_500)
        rig.until(lambda before=before: rig.seen() > before + 200, "a task at work")  # type: ignore[misc]
        for task in tasks:
            task.kill()
    rig.work(leases)
    rig.finish()


@pytest.mark.parametrize("partitions", [3, 2 * VIRTUAL_SHARDS + 2], ids=["few partitions", "virtual shards"])
def test_a_frozen_task_whose_lease_another_took_over_wakes_writes_nothing_and_ends_quietly(
    rigs: Rigs, partitions: int
) -> None:
    rig = rigs(partitions=partitions, keys=8 * partitions, **EXACTLY_ONCE)
    lessor = rig.lessor()
    rig.feed(2_000)
    leases = lessor.leases(lessor.next(NOTHING))
    frozen = rig.work(leases)
    rig.until(lambda: rig.seen() > 100, "a task at work")
    for task in frozen:
        task.process.send_signal(signal.SIGSTOP)
    rig.work(leases)
    rig.feed(500)
    rig.finish()
    for task in frozen:
        task.process.send_signal(signal.SIGCONT)
    # Who slept for ten seconds knows by himself that it is over.
    assert any(word in task.reason() for task in frozen for word in ("taken over", "the lease has expired"))
    rig.finish()

    # Which of the two was the one to go on is for the next lease to find out.
    assert [task.reason() for task in rig.tasks[len(frozen) :]] == ["it was withdrawn"] * len(leases)


def test_partitions_of_a_virtual_shard_have_one_owner_and_share_its_transactions(rigs: Rigs) -> None:
    rig = rigs(partitions=VIRTUAL_SHARDS + 2, tasks=3, **EXACTLY_ONCE)
    lessor = rig.lessor(slots=3)
    leases = lessor.leases(lessor.next(NOTHING))
    owners = [lease.partitions for lease in leases]
    assert sorted(chain(*owners)) == list(range(VIRTUAL_SHARDS + 2))
    assert tuple(each for each in owners[0] if virtual_shard(each) == 0) == (0, VIRTUAL_SHARDS)
    assert tuple(each for each in owners[1] if virtual_shard(each) == 1) == (1, VIRTUAL_SHARDS + 1)

    one, other, alone = (TopicPartition(rig.topic, each) for each in (0, VIRTUAL_SHARDS, 1))
    transactions = taken(rig, one, other, alone)
    fits, bulky = Output(rig.output, b"fits"), Output(rig.output, b"x" * 40_000_000)
    failures = transactions.begin(
        {
            one: ([fits], CommittedOffset(1)),
            other: ([fits, bulky], CommittedOffset(2)),
            alone: ([fits], CommittedOffset(3)),
        }
    )()
    assert set(failures) == {one, other}
    assert isinstance(failures[one], CommitFailed)
    refused = failures[other]
    assert isinstance(refused, OutputRefused)
    assert refused.place == 1
    assert rig.seen() == 1

    transactions.close([other])
    assert isinstance(transactions.begin({one: ([fits], CommittedOffset(1))})()[one], CommitFailed)
    transactions.open([other])
    assert transactions.begin({one: ([fits], CommittedOffset(1)), other: ([], CommittedOffset(2))})() == {}
    assert rig.seen() == 2
    committed = ConsumerGroups(rig.config).committed(rig.job.group, rig.topic)
    assert (committed[0], committed[VIRTUAL_SHARDS], committed[1]) == (1, 2, 3)
    transactions.close()


def test_an_owner_that_finds_the_progress_moved_when_it_replaces_a_client_has_lost_its_share(rigs: Rigs) -> None:
    rig = rigs(partitions=VIRTUAL_SHARDS + 1, **EXACTLY_ONCE)
    one, other = (TopicPartition(rig.topic, each) for each in (0, VIRTUAL_SHARDS))
    silent = Silent()
    slow, absent = taken(rig, one, offset_store=silent), taken(rig, one, other)
    work = {one: ([Output(rig.output, b"done")], CommittedOffset(1))}
    assert taken(rig, one).begin(work)() == {}
    try:
        assert isinstance(slow.begin({one: ([], CommittedOffset(1))})()[one], CommitFailed)
        with pytest.raises(ProducerFenced, match="another producer"):
            slow.begin({one: ([], CommittedOffset(1))})()
    finally:
        silent.over.set()
    absent.close([other])
    with pytest.raises(ProducerFenced, match="another producer"):
        absent.open([other])
    assert rig.seen() == 1


def test_a_round_whose_partition_is_let_go_while_it_replaces_its_client_writes_nothing(
    rigs: Rigs, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = rigs(**EXACTLY_ONCE)
    one = TopicPartition(rig.topic, 0)
    silent = Silent()
    owner = taken(rig, one, offset_store=silent)
    work = {one: ([Output(rig.output, b"late")], CommittedOffset(1))}
    fence = owner._fence

    def let_go_meanwhile(name: str, deadline: float) -> Producer:
        client = fence(name, deadline)
        owner.close([one])
        return client

    try:
        assert isinstance(owner.begin(work)()[one], CommitFailed)
        monkeypatch.setattr(owner, "_fence", let_go_meanwhile)
        assert isinstance(owner.begin(work)()[one], CommitFailed)
    finally:
        silent.over.set()
    assert rig.seen() == 0


@pytest.mark.parametrize("delivery", [EXACTLY_ONCE, {}], ids=["exactly once", "at least once"])
def test_leases_follow_each_other_under_load_whatever_their_number(rigs: Rigs, delivery: dict[str, Any]) -> None:
    rig = rigs(function="lease_handlers:copy_async", **delivery)
    lessor = rig.lessor(slots=3)
    grant = NOTHING
    for number in rounds(4 * ROUNDS):
        grant = lessor.next(grant)
        tasks = rig.work(lessor.leases(grant))
        rig.feed(700)
        rig.until(lambda: rig.seen() > len(rig.written) - 600, "a task at work")
        if number % 2:
            rig.jobs.withdraw(rig.job.job)
        else:
            rig.order(tasks=1 + number % 3)
        assert {task.reason() for task in tasks} == {"it was withdrawn" if number % 2 else "the order was changed"}
    rig.work(lessor.leases(lessor.next(grant)))
    rig.finish()
    rig.until(lambda: rig.committed() == len(rig.written), "the last commit")
    rig.until(lambda: sum(each.records_in for each in rig.statuses()) == len(rig.written), "the last status")
    rig.stop()
    assert {task.reason() for task in rig.tasks[-grant.tasks :]} == {"a stop is wanted"}
    assert lessor.next(grant) is grant


def test_a_job_that_is_to_catch_up_ends_its_leases_there(rigs: Rigs) -> None:
    rig = rigs(function="lease_handlers:fussy")
    rig.feed(300)
    rig.feed(2, value=b"poison")
    ends = {each.partition: bounds for each, bounds in snapshot_end_offsets(rig.config, [rig.topic]).items()}
    lessor = rig.lessor(ends=ends, slots=1)
    grant = lessor.next(NOTHING)
    (task,) = rig.work(lessor.leases(grant))
    assert task.reason() == "it has caught up"
    assert lessor.next(grant) == grant
    assert rig.seen() == 300
    statuses = rig.statuses()
    assert sum(status.records_in for status in statuses) == 302
    assert sum(status.records_out for status in statuses) == 300
    assert sum(status.dead_letters.get("TerminalFailure", 0) for status in statuses) == 2
    assert {(status.lag, status.in_flight, status.stuck_keys) for status in statuses} == {(0, 0, 0)}


def test_the_grants_of_an_earlier_driver_have_nothing_left_to_do(rigs: Rigs) -> None:
    rig = rigs()
    first = rig.lessor("first")
    grant = first.next(NOTHING)
    second = rig.lessor("second")
    assert second.leases(grant) == []
    assert [lease.epoch for lease in second.leases(second.next(grant))] == [2, 2]
    with pytest.raises(Fenced):
        first.next(grant)
    assert second.next(second.next(grant)).epoch == 3


def test_a_driver_whose_claim_is_the_newest_goes_on_whoever_fenced_it(rigs: Rigs) -> None:
    rig = rigs()
    late, newest = rig.lessor("late"), rig.lessor("newest")
    grant = newest.next(NOTHING)
    with pytest.raises(Fenced):
        late.next(NOTHING)  # it looks at the claims only once it has fenced the other
    assert newest.next(grant).epoch == 2


def test_more_tasks_than_can_run_at_once_are_refused(rigs: Rigs) -> None:
    rig = rigs(tasks=3)
    lessor = rig.lessor(slots=2)
    with pytest.raises(InvalidJob, match="set tasks to 2 or less"):
        lessor.leases(lessor.next(NOTHING))


def test_a_group_with_members_is_left_alone(rigs: Rigs) -> None:
    rig = rigs()
    lessor = rig.lessor()
    member = Consumer(rig.config.client(**{"group.id": rig.job.group}))
    member.subscribe([rig.topic])
    while not member.assignment():
        member.poll(0.1)
    with pytest.raises(GroupInUse):
        lessor.next(NOTHING)
    member.close()
    assert lessor.next(NOTHING).epoch == 1


def test_progress_that_went_back_ends_the_job(rigs: Rigs) -> None:
    rig = rigs()
    lessor = rig.lessor()
    groups, first = ConsumerGroups(rig.config), TopicPartition(rig.topic, 0)
    rig.feed(100)
    groups.commit_offsets(rig.job.group, {first: 20})
    grant = lessor.next(NOTHING)
    groups.commit_offsets(rig.job.group, {first: 5})
    with pytest.raises(ProgressLost, match="has 5 committed"):
        lessor.next(grant)


@pytest.mark.parametrize("to", [100, 500], ids=["back", "ahead"])
@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_progress_that_is_moved_between_two_leases_ends_the_run(rigs: Rigs, delivery: str, to: int) -> None:
    """The records between would be done twice, or never, and nothing would say so."""
    rig = rigs(partitions=1, delivery=delivery, commit_interval_ms=50)
    lessor = rig.lessor(slots=1)
    rig.feed(300)
    grant = lessor.next(NOTHING)
    (lease,) = lessor.leases(grant)
    with ThreadPoolExecutor(1) as thread:
        ended = thread.submit(deque, LeaseWorker(rig.config, lease).run(), 0)
        rig.until(lambda: rig.committed() == 300, "all records")
        rig.jobs.withdraw(rig.job.job)
        ended.result(PATIENCE)
    ConsumerGroups(rig.config).commit_offsets(rig.job.group, {TopicPartition(rig.topic, 0): to})
    with pytest.raises(ProgressLost, match=rf"has {to} committed .* got to 300"):
        lessor.next(grant)


def test_a_clock_that_is_ahead_by_more_than_a_lease_costs_time_only(rigs: Rigs) -> None:
    """By its clock the lease was over before it was given out: it is worked on all the same, if not for long."""
    rig = rigs(partitions=1, **EXACTLY_ONCE)
    rig.feed(50)
    lessor = rig.lessor(slots=1)
    (lease,) = lessor.leases(lessor.next(NOTHING))
    worker = LeaseWorker(rig.config, replace(lease, until=time.time() - 3_600), timings=LeaseTimings(min_lease_s=60.0))
    with ThreadPoolExecutor(1) as thread:
        ended = thread.submit(deque, worker.run(), 0)
        rig.finish()
        rig.jobs.withdraw(rig.job.job)
        ended.result(PATIENCE)
    assert worker.reason == "it was withdrawn"


def test_a_clock_that_is_behind_keeps_nobody_waiting(rigs: Rigs) -> None:
    rig = rigs(partitions=1, lease_seconds=1.0)
    lessor = rig.lessor(slots=1)
    (lease,) = lessor.leases(lessor.next(NOTHING))
    worker = LeaseWorker(rig.config, replace(lease, until=time.time() + 3_600))
    deque(worker.run(), 0)
    assert worker.reason == "its time is over"


def test_a_task_whose_rows_nobody_takes_for_a_while_is_alive(rigs: Rigs) -> None:
    """As while the JVM of its executor collects garbage: its process is well."""
    rig = rigs(partitions=1, **EXACTLY_ONCE)
    rig.feed(50)
    lessor = rig.lessor(slots=1)
    (lease,) = lessor.leases(lessor.next(NOTHING))
    signs: list[float] = []
    worker = LeaseWorker(rig.config, lease, signs.append)
    rows = worker.run()
    next(rows)
    seen = len(signs)
    rig.until(lambda: len(signs) > seen + 2, "signs of life")
    assert worker._validity.held()
    rig.finish()
    rig.jobs.withdraw(rig.job.job)
    deque(rows, 0)
    assert worker.reason == "it was withdrawn"


def test_a_handler_that_does_not_return_ends_its_lease_and_is_told_of(rigs: Rigs) -> None:
    """Its process takes no other lease: the error is for Spark, which tries the task again in another one."""
    rig = rigs(partitions=1, keys=1, function="lease_handlers:wait_for_ever")
    rig.feed(1)
    lessor = rig.lessor(slots=1)
    (lease,) = lessor.leases(lessor.next(NOTHING))
    rows = LeaseWorker(rig.config, lease, timings=LeaseTimings(drain_timeout_s=0.5)).run()
    rig.until(lambda: next(rows).in_flight == 1, "a record in its handler")
    rig.jobs.withdraw(rig.job.job)
    with pytest.raises(HandlerStuck, match="1 handlers did not return"):
        deque(rows, 0)
    lease_handlers.released.set()
    assert rig.committed() == 0


def test_a_partition_that_is_added_is_part_of_the_next_lease(rigs: Rigs) -> None:
    rig = rigs(partitions=2)
    lessor = rig.lessor()
    grant = lessor.next(NOTHING)
    admin = AdminClient(rig.config.client())
    admin.create_partitions([NewPartitions(rig.topic, 3)])[rig.topic].result(PATIENCE)
    assert [lease.partitions for lease in lessor.leases(lessor.next(grant))] == [(0, 2), (1,)]


def test_whoever_asks_for_the_handler_of_a_deployment_while_it_is_made_gets_that_one(kafka: RunningKafka) -> None:
    """A lease that a new generation ends has its module made, for the next lease of the process to begin with."""
    digest = ModuleStore(kafka.config).put(guest())
    spec = DeploymentSpec(name="t", version="1.0.0", digest=digest, input_topic="in", output_topics=("out",))
    with ThreadPoolExecutor(2) as threads:
        first, second = threads.map(transform_handler, (kafka.config,) * 2, (spec,) * 2)
    assert first is second


def test_whose_time_is_over_commits_nothing(rigs: Rigs) -> None:
    rig = rigs()
    rig.feed(50)
    held = True

    def work(record: object) -> None:
        nonlocal held
        held = False

    options = ConsumerOptions(
        topics=(rig.topic,), group_id=rig.job.group, commit_interval_ms=1, kafka=rig.config.properties
    )
    partition, groups = TopicPartition(rig.topic, 0), ConsumerGroups(rig.config)
    groups.commit_offsets(rig.job.group, {partition: 0})
    share = PartitionAssignment(progress={partition: 0}, followed={}, follow=lambda record: None, held=lambda: held)
    with pytest.raises(ProducerFenced):
        ParallelConsumer(options, ManualBackend(options, share)).run(work)
    assert groups.committed(rig.job.group, rig.topic) == {0: 0}
