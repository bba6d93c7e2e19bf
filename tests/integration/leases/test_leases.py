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
from support.leases.lease_harness import EXACTLY_ONCE, NOTHING, TIMEOUT_S, Harnesses, LeaseHarness
from support.rounds import ROUNDS, rounds
from wasmline.consumer import ConsumerOptions, Output, ParallelConsumer
from wasmline.consumer.backends.kafka.lazy_offset_store import LazyOffsetStore
from wasmline.control import Deployment, DeploymentSpec, LeaseWithdrawal, ModuleStore
from wasmline.errors import (
    BrokerUnavailable,
    CommitFailed,
    Fenced,
    GroupInUse,
    HandlerStuck,
    OutputRefused,
    ProducerFenced,
    ProgressLost,
)
from wasmline.job_offsets.catch_up import snapshot_bounds
from wasmline.job_specs import stream_of
from wasmline.kafka import ConsumerGroups
from wasmline.kafka.committed_offset_store import LibrdkafkaOffsetStore
from wasmline.leases.lease_worker import LeaseWorker
from wasmline.leases.manual_backend import ManualBackend, ManualSource, ManualTransactions, PartitionAssignment
from wasmline.leases.timings import LeaseTimings
from wasmline.local.process import wait_until
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
        assert self.over.wait(TIMEOUT_S)


def taken(
    harness: LeaseHarness, *partitions: TopicPartition, offset_store: LibrdkafkaOffsetStore | None = None
) -> ManualTransactions:
    """Return the transactions of one who has just become the owner of some partitions."""
    options = ConsumerOptions(topics=(harness.topic,), group_id=harness.job.group, kafka=harness.config.properties)
    share = PartitionAssignment(
        progress=dict.fromkeys(partitions, 0),
        followed={},
        follow=print,
        held=lambda: True,
        require_owner=lambda: None,
    )
    group = LazyOffsetStore(harness.config, harness.job.group, offset_store or LibrdkafkaOffsetStore())
    source = ManualSource(options, harness.config, group, share)
    transactions = ManualTransactions(harness.config, harness.job.group, source, group, share)
    transactions.open(partitions)
    return transactions


def test_outputs_are_seen_once_and_in_order_whatever_is_killed(harnesses: Harnesses) -> None:
    harness = harnesses(**EXACTLY_ONCE)
    lessor = harness.lessor()
    harness.produce(500)
    leases = lessor.leases(lessor.next(NOTHING))
    for _ in rounds(3 * ROUNDS):
        tasks = harness.work(leases)
        before = harness.seen()
        harness.produce(1_500)
        harness.until(lambda before=before: harness.seen() > before + 200, "a task at work")  # type: ignore[misc]
        for task in tasks:
            task.kill()
    harness.work(leases)
    harness.finish()


@pytest.mark.parametrize(
    "partitions",
    [
        pytest.param(3, id="few partitions"),
        pytest.param(2 * VIRTUAL_SHARDS + 2, id="virtual shards", marks=pytest.mark.long),
    ],
)
def test_a_frozen_task_whose_lease_another_took_over_wakes_writes_nothing_and_ends_quietly(
    harnesses: Harnesses, partitions: int
) -> None:
    harness = harnesses(partitions=partitions, keys=8 * partitions, **EXACTLY_ONCE)
    lessor = harness.lessor()
    harness.produce(2_000)
    leases = lessor.leases(lessor.next(NOTHING))
    frozen = harness.work(leases)
    harness.until(lambda: harness.seen() > 100, "a task at work")
    for task in frozen:
        task.process.send_signal(signal.SIGSTOP)
    harness.work(leases)
    harness.produce(500)
    harness.finish()
    for task in frozen:
        task.process.send_signal(signal.SIGCONT)
    # Who slept for ten seconds knows by himself that it is over.
    assert any(word in task.reason() for task in frozen for word in ("taken over", "the lease has expired"))
    harness.finish()

    # Which of the two was the one to go on is for the next lease to find out.
    assert [task.reason() for task in harness.tasks[len(frozen) :]] == ["it was withdrawn"] * len(leases)


def test_partitions_of_a_virtual_shard_have_one_owner_and_share_its_transactions(harnesses: Harnesses) -> None:
    harness = harnesses(partitions=VIRTUAL_SHARDS + 2, tasks=3, **EXACTLY_ONCE)
    lessor = harness.lessor(slots=3)
    leases = lessor.leases(lessor.next(NOTHING))
    owners = [lease.partitions for lease in leases]
    assert sorted(chain(*owners)) == list(range(VIRTUAL_SHARDS + 2))
    assert tuple(each for each in owners[0] if virtual_shard(each) == 0) == (0, VIRTUAL_SHARDS)
    assert tuple(each for each in owners[1] if virtual_shard(each) == 1) == (1, VIRTUAL_SHARDS + 1)

    one, other, alone = (TopicPartition(harness.topic, each) for each in (0, VIRTUAL_SHARDS, 1))
    transactions = taken(harness, one, other, alone)
    fits, bulky = Output(harness.output, b"fits"), Output(harness.output, b"x" * 40_000_000)
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
    assert harness.seen() == 1

    transactions.close([other])
    assert isinstance(transactions.begin({one: ([fits], CommittedOffset(1))})()[one], CommitFailed)
    transactions.open([other])
    assert transactions.begin({one: ([fits], CommittedOffset(1)), other: ([], CommittedOffset(2))})() == {}
    assert harness.seen() == 2
    committed = ConsumerGroups(harness.config).committed(harness.job.group, harness.topic)
    assert (committed[0], committed[VIRTUAL_SHARDS], committed[1]) == (1, 2, 3)
    transactions.close()


def test_an_owner_that_finds_the_progress_moved_when_it_replaces_a_client_has_lost_its_share(
    harnesses: Harnesses,
) -> None:
    harness = harnesses(partitions=VIRTUAL_SHARDS + 1, **EXACTLY_ONCE)
    one, other = (TopicPartition(harness.topic, each) for each in (0, VIRTUAL_SHARDS))
    silent = Silent()
    slow, absent = taken(harness, one, offset_store=silent), taken(harness, one, other)
    work = {one: ([Output(harness.output, b"done")], CommittedOffset(1))}
    assert taken(harness, one).begin(work)() == {}
    try:
        assert isinstance(slow.begin({one: ([], CommittedOffset(1))})()[one], CommitFailed)
        with pytest.raises(ProducerFenced, match="another producer"):
            slow.begin({one: ([], CommittedOffset(1))})()
    finally:
        silent.over.set()
    absent.close([other])
    with pytest.raises(ProducerFenced, match="another producer"):
        absent.open([other])
    assert harness.seen() == 1


def test_a_round_whose_partition_is_let_go_while_it_replaces_its_client_writes_nothing(
    harnesses: Harnesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = harnesses(**EXACTLY_ONCE)
    one = TopicPartition(harness.topic, 0)
    silent = Silent()
    owner = taken(harness, one, offset_store=silent)
    work = {one: ([Output(harness.output, b"late")], CommittedOffset(1))}
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
    assert harness.seen() == 0


@pytest.mark.parametrize(
    "delivery",
    [pytest.param(EXACTLY_ONCE, id="exactly once"), pytest.param({}, id="at least once", marks=pytest.mark.long)],
)
def test_leases_follow_each_other_under_load_whatever_their_number(
    harnesses: Harnesses, delivery: dict[str, Any]
) -> None:
    harness = harnesses(function="lease_handlers:copy_async", **delivery)
    lessor = harness.lessor(slots=3)
    grant = NOTHING
    for number in rounds(4 * ROUNDS):
        grant = lessor.next(grant)
        tasks = harness.work(lessor.leases(grant))
        harness.produce(700)
        harness.until(lambda: harness.seen() > len(harness.written) - 600, "a task at work")
        if number % 2:
            harness.jobs.withdraw(harness.job.job)
        else:
            harness.order(tasks=1 + number % 3)
        assert {task.reason() for task in tasks} == {"it was withdrawn" if number % 2 else "the order was changed"}
    harness.work(lessor.leases(lessor.next(grant)))
    harness.finish()
    harness.until(lambda: harness.committed() == len(harness.written), "the last commit")
    harness.until(
        lambda: sum(each.records_in for each in harness.statuses()) == len(harness.written), "the last status"
    )
    harness.stop()
    assert {task.reason() for task in harness.tasks[-grant.tasks :]} == {"a stop is wanted"}
    assert lessor.next(grant) is grant


def test_a_job_that_is_to_catch_up_ends_its_leases_there(harnesses: Harnesses) -> None:
    harness = harnesses(function="lease_handlers:fussy")
    harness.produce(300)
    harness.produce(2, value=b"poison")
    bounds = {each.partition: found for each, found in snapshot_bounds(harness.config, [harness.topic]).items()}
    lessor = harness.lessor(bounds=bounds, slots=1)
    grant = lessor.next(NOTHING)
    (task,) = harness.work(lessor.leases(grant))
    assert task.reason() == "it has caught up"
    assert lessor.next(grant) == grant
    assert harness.seen() == 300
    statuses = harness.statuses()
    assert sum(status.records_in for status in statuses) == 302
    assert sum(status.records_out for status in statuses) == 300
    assert sum(status.dead_letters.get("TerminalFailure", 0) for status in statuses) == 2
    assert {(status.lag, status.in_flight, status.stuck_keys) for status in statuses} == {(0, 0, 0)}


def test_the_grants_of_an_earlier_driver_have_nothing_left_to_do(harnesses: Harnesses) -> None:
    harness = harnesses()
    first = harness.lessor("first")
    grant = first.next(NOTHING)
    second = harness.lessor("second")
    assert second.leases(grant) == []
    assert [lease.epoch for lease in second.leases(second.next(grant))] == [2, 2]
    with pytest.raises(Fenced):
        first.next(grant)
    assert second.next(second.next(grant)).epoch == 3


def test_a_driver_whose_claim_is_the_newest_goes_on_whoever_fenced_it(harnesses: Harnesses) -> None:
    harness = harnesses()
    late, newest = harness.lessor("late"), harness.lessor("newest")
    grant = newest.next(NOTHING)
    with pytest.raises(Fenced):
        late.next(NOTHING)  # it looks at the claims only once it has fenced the other
    assert newest.next(grant).epoch == 2


def test_a_round_has_as_many_tasks_as_there_are_slots_until_the_driver_says_otherwise(harnesses: Harnesses) -> None:
    harness = harnesses(tasks=3)
    lessor = harness.lessor("driver", slots=2)
    grant = lessor.next(NOTHING)
    assert len(lessor.leases(grant)) == 2

    def limited(driver: str, limit: int | None, tasks: int) -> bool:
        """Return whether rounds have so many tasks once the limit has been read."""
        withdrawal = LeaseWithdrawal(driver=driver, epoch=grant.epoch, max_tasks=limit)
        harness.jobs.write_withdrawal(harness.job.job, withdrawal)
        return wait_until(lambda: len(lessor.leases(lessor.next(grant))) == tasks, 30)

    assert limited("driver", 1, 1)
    assert limited("driver", None, 1)
    assert limited("another", 2, 1)
    assert limited("driver", 3, 3)
    assert limited("driver", 9, 3)
    end = LeaseWithdrawal(driver="driver", epoch=grant.epoch, max_tasks=0)
    harness.jobs.write_withdrawal(harness.job.job, end)
    assert wait_until(lambda: lessor.next(grant) == grant, 30), "no more rounds"


def test_an_order_that_is_changed_in_mid_run_ends_the_leases_and_holds_for_the_next_ones(harnesses: Harnesses) -> None:
    harness = harnesses(tasks=1, max_concurrency=4, **EXACTLY_ONCE)
    changes: list[dict[str, Any]] = [
        {"max_concurrency": 8, "ordering": "partition"},
        {"max_concurrency": 2, "ordering": "key", "commit_interval_ms": 100, "lease_seconds": 30.0},
    ]

    def epoch() -> int:
        claim = harness.jobs.last_claim(harness.job.job)
        return claim.batch_id if claim is not None else 0

    with harness.letting(slots=1):
        for change in changes:
            harness.produce(300)
            harness.until(lambda: harness.seen() > 100, "the first outputs")
            order, before = harness.jobs.order(harness.job.job), epoch()
            harness.jobs.update(order, replace(stream_of(order.spec), **change))
            harness.until(lambda: epoch() > before, "a lease of the changed order")  # noqa: B023
        harness.produce(300)
        harness.finish()


def test_a_group_with_members_is_left_alone(harnesses: Harnesses) -> None:
    harness = harnesses()
    lessor = harness.lessor()
    member = Consumer(harness.config.client(**{"group.id": harness.job.group}))
    member.subscribe([harness.topic])
    while not member.assignment():
        member.poll(0.1)
    with pytest.raises(GroupInUse):
        lessor.next(NOTHING)
    member.close()
    assert lessor.next(NOTHING).epoch == 1


def test_progress_that_went_back_ends_the_job(harnesses: Harnesses) -> None:
    harness = harnesses()
    lessor = harness.lessor(offsets={0: 20})
    groups, first = ConsumerGroups(harness.config), TopicPartition(harness.topic, 0)
    harness.produce(100)
    groups.commit_offsets(harness.job.group, {first: 20})
    grant = lessor.next(NOTHING)
    groups.commit_offsets(harness.job.group, {first: 5})
    with pytest.raises(ProgressLost, match="has 5 committed"):
        lessor.next(grant)


def test_a_lease_whose_withdrawal_is_not_written_ends_all_the_same(
    harnesses: Harnesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task that failed would be run again, and take its partitions back from their new owner."""

    def unavailable(*_: object) -> None:
        raise BrokerUnavailable("no answer", bootstrap_servers="b:1")

    monkeypatch.setattr("wasmline.leases.lease_worker.withdraw_lease", unavailable)
    harness = harnesses(partitions=1)
    lessor = harness.lessor(slots=1, offsets={0: 20})
    groups, first = ConsumerGroups(harness.config), TopicPartition(harness.topic, 0)
    harness.produce(100)
    groups.commit_offsets(harness.job.group, {first: 20})
    (lease,) = lessor.leases(lessor.next(NOTHING))
    groups.commit_offsets(harness.job.group, {first: 5})
    worker = LeaseWorker(harness.config, lease)
    deque(worker.run(), 0)
    assert "has 5 committed" in worker.reason


@pytest.mark.parametrize("to", [100, 500], ids=["back", "ahead"])
@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_progress_that_is_moved_between_two_leases_ends_the_run(harnesses: Harnesses, delivery: str, to: int) -> None:
    """The records between would be done twice, or never, and nothing would say so."""
    harness = harnesses(partitions=1, delivery=delivery, commit_interval_ms=50)
    lessor = harness.lessor(slots=1)
    harness.produce(300)
    grant = lessor.next(NOTHING)
    (lease,) = lessor.leases(grant)
    with ThreadPoolExecutor(1) as thread:
        ended = thread.submit(deque, LeaseWorker(harness.config, lease).run(), 0)
        harness.until(lambda: harness.committed() == 300, "all records")
        harness.jobs.withdraw(harness.job.job)
        ended.result(TIMEOUT_S)
    ConsumerGroups(harness.config).commit_offsets(harness.job.group, {TopicPartition(harness.topic, 0): to})
    with pytest.raises(ProgressLost, match=rf"has {to} committed .* got to 300"):
        lessor.next(grant)


def test_a_clock_that_is_ahead_by_more_than_a_lease_costs_time_only(harnesses: Harnesses) -> None:
    """By its clock the lease was over before it was given out: it is worked on all the same, if not for long."""
    harness = harnesses(partitions=1, **EXACTLY_ONCE)
    harness.produce(50)
    lessor = harness.lessor(slots=1)
    (lease,) = lessor.leases(lessor.next(NOTHING))
    worker = LeaseWorker(
        harness.config, replace(lease, until=time.time() - 3_600), timings=LeaseTimings(min_lease_s=60.0)
    )
    with ThreadPoolExecutor(1) as thread:
        ended = thread.submit(deque, worker.run(), 0)
        harness.finish()
        harness.jobs.withdraw(harness.job.job)
        ended.result(TIMEOUT_S)
    assert worker.reason == "it was withdrawn"


def test_a_clock_that_is_behind_keeps_nobody_waiting(harnesses: Harnesses) -> None:
    harness = harnesses(partitions=1, lease_seconds=1.0)
    lessor = harness.lessor(slots=1)
    (lease,) = lessor.leases(lessor.next(NOTHING))
    worker = LeaseWorker(harness.config, replace(lease, until=time.time() + 3_600))
    deque(worker.run(), 0)
    assert worker.reason == "its time is over"


def test_a_task_whose_rows_nobody_takes_for_a_while_is_alive(harnesses: Harnesses) -> None:
    """As while the JVM of its executor collects garbage: its process is well."""
    harness = harnesses(partitions=1, **EXACTLY_ONCE)
    harness.produce(50)
    lessor = harness.lessor(slots=1)
    (lease,) = lessor.leases(lessor.next(NOTHING))
    signs: list[float] = []
    worker = LeaseWorker(harness.config, lease, signs.append)
    rows = worker.run()
    next(rows)
    seen = len(signs)
    harness.until(lambda: len(signs) > seen + 2, "signs of life")
    assert worker._validity.held()
    harness.finish()
    harness.jobs.withdraw(harness.job.job)
    deque(rows, 0)
    assert worker.reason == "it was withdrawn"


def test_a_handler_that_does_not_return_ends_its_lease_and_is_told_of(harnesses: Harnesses) -> None:
    """Its process takes no other lease: the error is for Spark, which tries the task again in another one."""
    harness = harnesses(partitions=1, keys=1, function="lease_handlers:wait_for_ever")
    harness.produce(1)
    lessor = harness.lessor(slots=1)
    (lease,) = lessor.leases(lessor.next(NOTHING))
    rows = LeaseWorker(harness.config, lease, timings=LeaseTimings(drain_timeout_s=0.5)).run()
    harness.until(lambda: next(rows).in_flight == 1, "a record in its handler")
    harness.jobs.withdraw(harness.job.job)
    with pytest.raises(HandlerStuck, match="1 handlers did not return"):
        deque(rows, 0)
    lease_handlers.released.set()
    assert harness.committed() == 0


def test_a_partition_that_is_added_is_part_of_the_next_lease(harnesses: Harnesses) -> None:
    harness = harnesses(partitions=2)
    lessor = harness.lessor()
    grant = lessor.next(NOTHING)
    admin = AdminClient(harness.config.client())
    admin.create_partitions([NewPartitions(harness.topic, 3)])[harness.topic].result(TIMEOUT_S)
    assert [lease.partitions for lease in lessor.leases(lessor.next(grant))] == [(0, 2), (1,)]


def test_whoever_asks_for_the_handler_of_a_deployment_while_it_is_made_gets_that_one(kafka: RunningKafka) -> None:
    """A lease that a new generation ends has its module made, for the next lease of the process to begin with."""
    stored = ModuleStore(kafka.config).put(guest())
    source, target = kafka.topic(), kafka.topic()
    spec = DeploymentSpec(name="t", version="1.0.0", digest=stored.digest, input_topic=source, output_topics=(target,))
    deployment = Deployment(spec=spec, generation=1, state="running", updated_ms=0, module_offsets=stored.offsets)
    with ThreadPoolExecutor(2) as threads:
        first, second = threads.map(transform_handler, (kafka.config,) * 2, (deployment,) * 2)
    assert first is second


def test_whose_time_is_over_commits_nothing(harnesses: Harnesses) -> None:
    harness = harnesses()
    harness.produce(50)
    held = True

    def work(record: object) -> None:
        nonlocal held
        held = False

    options = ConsumerOptions(
        topics=(harness.topic,), group_id=harness.job.group, commit_interval_ms=1, kafka=harness.config.properties
    )
    partition, groups = TopicPartition(harness.topic, 0), ConsumerGroups(harness.config)
    groups.commit_offsets(harness.job.group, {partition: 0})
    share = PartitionAssignment(
        progress={partition: 0},
        followed={},
        follow=lambda record: None,
        held=lambda: held,
        require_owner=lambda: None,
    )
    with pytest.raises(ProducerFenced):
        ParallelConsumer(options, ManualBackend(options, share)).run(work)
    assert groups.committed(harness.job.group, harness.topic) == {0: 0}
