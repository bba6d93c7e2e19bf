"""Attempts at a lease that another one has replaced: what they say and do last is not the job's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest

from support.simulation import spark_model, world
from support.simulation.bound_code import bound  # noqa: F401 - every test of this module uses it
from support.simulation.history import CONFIG, GROUP, INPUT, History, Run
from support.simulation.virtual import Process
from wasmline.consumer.backends.kafka.transactions import KafkaTransactions
from wasmline.control import DeploymentTopic, StatusTopic
from wasmline.control.control_topics import STATUS
from wasmline.documents import decode
from wasmline.errors import BrokerUnavailable, CommitFailed, HandlerBroken, WasmlineError
from wasmline.leases.lease_status_reporter import LeaseStatusReporter
from wasmline.leases.manual_backend import ManualSource
from wasmline.partition_status import PartitionStatus
from wasmline.topic_partitions import CommittedOffset, TopicPartition

LEASES = "parallel", "at_least_once"
EXACT_LEASES = "parallel", "exactly_once"

either_delivery = pytest.mark.parametrize("mode", [LEASES, EXACT_LEASES], ids=" ".join)


def replace_idle_attempt(history: History, mode: tuple[str, str]) -> Run:
    """Let an attempt stand still before there is a record, and another one do three; return their run."""
    run = history.start(*mode, is_endless=True)
    history.advance(run, 400)
    history.freeze_worker(run)
    history.produce(0, 3)
    history.advance(run, 400)
    return run


def end_lease_in_outage(history: History, run: Run, steps: int, later: int) -> None:
    """Let a lease end with a record in its handler; replaced attempts do so first, and then no broker answers."""
    history.produce(0, 1, is_slow=True)
    history.advance(run, steps)
    history.redeploy()
    for zombie in history.zombies:
        history.wake(zombie, 300)
    history.advance(run, later)
    history.lose_brokers(run, 40.0, 800)
    history.advance(run, 1_500)
    history.check()


def hang_transactions(history: History) -> Callable[..., tuple[WasmlineError, bool]]:
    """Return what each transaction does meanwhile: no broker answers, and it is not committed."""

    def hang(*_: Any) -> tuple[WasmlineError, bool]:
        history.runtime.sleep(14.0)
        return CommitFailed("aborted"), False

    return hang


def begin_with_killed_attempt(history: History, monkeypatch: pytest.MonkeyPatch, *, is_paused: bool) -> Run:
    """Let an attempt commit 5 records, do 3 more that it does not commit, and be killed; return its run."""
    run = history.start(*EXACT_LEASES, is_endless=True)
    history.advance(run, 400)
    history.produce(0, 5)
    history.advance(run, 400)
    with monkeypatch.context() as patch:
        patch.setattr(KafkaTransactions, "_run_transaction", hang_transactions(history))
        history.produce(0, 3, is_slow=not is_paused)
        advance_for(history, run, 5)
        if is_paused:
            history.pause()
        history.lose_worker(run)
    return run


def move_progress(history: History, to: int) -> None:
    history.cluster.group(GROUP).record({TopicPartition(INPUT, 0): CommittedOffset(to)})
    history._note("lose")


def statuses(history: History) -> list[PartitionStatus]:
    return [decode(PartitionStatus, each.value or b"") for each in history.cluster.records(STATUS, committed=False)]


def compact_statuses(history: History) -> None:
    """Leave the last status of a partition, as a broker does after a while."""
    entries = history.cluster.log(TopicPartition(STATUS, 0))._entries
    last = {entry.output.key: entry for entry in entries if entry.output is not None}
    entries[:] = [entry for entry in entries if entry.output is None or last[entry.output.key] is entry]


def begin_with_late_commit(history: History) -> Run:
    """At least once, let an attempt ask for a commit of three records and stand still, and another one do two more."""
    run = history.start(*LEASES, is_endless=True)
    history.advance(run, 400)
    history.produce(0, 3)
    history.advance_to(run, "commit")
    history.freeze_worker(run)
    history.advance(run, 300)
    history.produce(0, 2)
    history.advance(run, 600)
    return run


def begin_with_late_statuses(history: History, mode: tuple[str, str]) -> Run:
    """Let a replaced attempt wake after the newer one has ended its lease, and only last statuses stay."""
    run = replace_idle_attempt(history, mode)
    history.pause()
    history.advance(run, 600)
    history.wake(history.zombies[0], 400)
    compact_statuses(history)
    return run


def name_of_end_after_move(
    history: History, run: Run, to: int, go_on: Callable[[], object], *, is_same_run: bool
) -> str:
    """Move a partition's progress before the next round or the next run, exactly once; return how that ends."""
    if not is_same_run:
        history.stop(run)
        history.finish(run)
    move_progress(history, to)
    go_on()
    if not is_same_run:
        run = history.start(*EXACT_LEASES)
    history.advance(run, 1_500)
    return run.name_of_end


def advance_for(history: History, run: Run, seconds: float, steps: int = 1) -> None:
    """Let a run go on for so long, in so many steps at a time."""
    until = history.runtime.seconds + seconds
    while history.runtime.seconds < until:
        history.advance(run, steps)


@either_delivery
@pytest.mark.parametrize("end", [History.redeploy, History.pause], ids=["redeploy", "pause"])
def test_the_next_round_goes_on_where_the_newer_attempt_ended(
    mode: tuple[str, str], end: Callable[[History], None]
) -> None:
    """The older one is the last to say where the lease ended: that it has done nothing."""
    history = History(partitions=1)
    run = replace_idle_attempt(history, mode)
    history.freeze_or_thaw_driver(run)
    end(history)
    history.advance(run, 400)
    history.wake(history.zombies[0], 400)
    history.freeze_or_thaw_driver(run)
    history.resume()
    history.produce(0, 4)
    history.advance(run, 1_500)
    history.check()
    assert (run.name_of_end, history.missing()) == ("running", set())


@either_delivery
@pytest.mark.parametrize("steps", range(0, 200, 8))
def test_the_next_run_goes_on_where_the_newer_attempt_ended(mode: tuple[str, str], steps: int) -> None:
    history = History(partitions=1)
    run = replace_idle_attempt(history, mode)
    history.stop(run)
    history.advance(run, steps)
    history.wake(history.zombies[0], 300)
    history.finish(run)
    history.finish(history.start(*mode))
    history.check()
    assert [each.name_of_end for each in history.runs] == ["stopped", "succeeded"]
    assert not history.missing()


@either_delivery
@pytest.mark.parametrize("steps", [10, 30])
@pytest.mark.parametrize("later", [0, 10, 20, 30])
def test_a_newer_attempt_that_cannot_say_where_it_ended_leaves_that_open(
    mode: tuple[str, str], steps: int, later: int
) -> None:
    """The older one says that it has done nothing, and no broker answers as the newer one ends."""
    history = History(partitions=1)
    run = replace_idle_attempt(history, mode)
    end_lease_in_outage(history, run, steps, later)
    assert run.name_of_end == "running"


@either_delivery
@pytest.mark.parametrize("steps", [10, 30])
@pytest.mark.parametrize("later", [0, 10, 20, 30])
def test_a_lease_says_what_it_has_committed_at_the_very_end(mode: tuple[str, str], steps: int, later: int) -> None:
    """No broker answers while it ends, and what was done meanwhile is committed as it closes."""
    history = History(partitions=1)
    history.produce(0, 3)
    run = history.start(*mode, is_endless=True)
    history.advance(run, 800)
    end_lease_in_outage(history, run, steps, later)
    assert run.name_of_end == "running"


@either_delivery
def test_an_attempt_whose_lease_is_lost_pauses_no_deployment(
    mode: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stood still in a call, for longer than the module may take."""
    history = History(partitions=1)
    history.produce(0, 3, is_slow=True)
    run = history.start(*mode, is_endless=True)
    history.advance_into_task(run, 20)
    history.freeze_worker(run)
    older, parts = history.zombies[0], world.Guest.parts

    def late_parts(guest: world.Guest, batch: Any) -> Iterator[Any]:
        for each in parts(guest, batch):
            if history.runtime.process is older:
                raise HandlerBroken("a call took longer than 30 s")
            yield each

    monkeypatch.setattr(world.Guest, "parts", late_parts)
    history.advance(run, 2_000)
    history.wake(older, 300)
    deployments = DeploymentTopic(CONFIG)
    assert deployments.get("t").state == "running"
    deployments.close()


@pytest.mark.parametrize("to", [2, 7])
@pytest.mark.parametrize("is_same_run", [True, False])
def test_a_move_is_noticed_after_a_lease_whose_status_told_of_more_than_was_committed(
    is_same_run: bool, to: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its transaction was lost, it went on where that began, and then its deployment was paused."""
    history = History(partitions=1)
    run = history.start(*EXACT_LEASES, is_endless=True)
    history.advance(run, 400)
    history.produce(0, 5)
    history.advance(run, 300)
    lost: list[None] = []

    def lose(*_: Any) -> tuple[WasmlineError, bool]:
        history.runtime.sleep(3.0)
        lost.append(None)
        return BrokerUnavailable("no answer"), False

    def break_handler(*_: Any) -> None:
        history.runtime.sleep(2.5)
        raise HandlerBroken("broken")

    with monkeypatch.context() as patch:
        patch.setattr(KafkaTransactions, "_run_transaction", lose)
        history.produce(0, 3)
        while not lost:
            history.advance(run, 1)
    with monkeypatch.context() as patch:
        patch.setattr(world.Guest, "parts", break_handler)
        advance_for(history, run, 6)
    assert name_of_end_after_move(history, run, to, history.redeploy, is_same_run=is_same_run) == "ProgressLost"


@either_delivery
def test_a_module_that_fails_as_its_process_wakes_gives_its_partition_to_the_next_round(
    mode: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One process of two stood still in a call for 15 s, of which Spark has not heard."""
    monkeypatch.setattr(spark_model.Attempt, "is_lost", property(lambda attempt: not attempt.process.is_alive))
    history = History(partitions=2)
    history.produce(0, 2, is_slow=True)
    run = history.start(*mode, is_endless=True)
    parts, calling, broken = world.Guest.parts, list[Process](), list[Process]()

    def parts_of_awake_process(guest: world.Guest, batch: Any) -> Iterator[Any]:
        process = history.runtime.process
        calling.append(process)
        for each in parts(guest, batch):
            if process.slept_s > 10 and not broken:
                broken.append(process)
                raise HandlerBroken("a call took longer than 10 s")
            yield each

    monkeypatch.setattr(world.Guest, "parts", parts_of_awake_process)
    while not calling:
        history.advance(run, 1)
    run.is_torn = run.is_disturbed = True
    calling[0].freeze(history.runtime.seconds)
    advance_for(history, run, 15)
    calling[0].thaw(history.runtime.seconds)
    history.produce(0, 2)
    advance_for(history, run, 60, steps=20)
    history.check()
    assert broken
    assert (run.name_of_end, history.missing()) == ("running", set())


@pytest.mark.parametrize("to", [2, 7])
@pytest.mark.parametrize("is_same_run", [True, False])
def test_a_move_is_noticed_after_a_killed_attempt_that_told_of_more_than_the_next_one_left(
    is_same_run: bool, to: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = History(partitions=1)
    run = begin_with_killed_attempt(history, monkeypatch, is_paused=True)
    history.advance(run, 800)
    assert name_of_end_after_move(history, run, to, history.resume, is_same_run=is_same_run) == "ProgressLost"


@pytest.mark.parametrize("commits", [0, 1])
def test_progress_that_is_set_back_below_what_a_repeated_attempt_had_ends_the_run(
    commits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reads its progress again for a new producer, after a killed attempt that told of more than it committed."""
    history = History(partitions=1)
    run = begin_with_killed_attempt(history, monkeypatch, is_paused=False)
    commit, aborted = KafkaTransactions._run_transaction, list[None]()
    left = commits

    def abort_after_commits(*given: Any) -> Any:
        nonlocal left
        if left:
            left -= 1
            history.produce(0, 2)
            return commit(*given)
        if not aborted:
            move_progress(history, 2)
        aborted.append(None)
        return CommitFailed("aborted"), False

    with monkeypatch.context() as patch:
        patch.setattr(KafkaTransactions, "_run_transaction", abort_after_commits)
        while not aborted:
            history.advance(run, 1)
    history.advance(run, 3_000)
    assert run.name_of_end == "ProgressLost"


@either_delivery
def test_an_attempt_whose_lease_is_lost_tells_nothing_to_the_next_round(mode: tuple[str, str]) -> None:
    """Of the newer one, its last status would be gone, while the deployment is paused for longer."""
    history = History(partitions=1)
    run = begin_with_late_statuses(history, mode)
    history.resume()
    history.produce(0, 4)
    history.advance(run, 1_500)
    history.check()
    assert (run.name_of_end, history.missing()) == ("running", set())


@either_delivery
def test_an_attempt_whose_lease_is_lost_tells_nothing_to_the_next_run(mode: tuple[str, str]) -> None:
    history = History(partitions=1)
    run = begin_with_late_statuses(history, mode)
    history.stop(run)
    history.finish(run)
    history.resume()
    history.produce(0, 4)
    history.finish(history.start(*mode))
    history.check()
    assert [each.name_of_end for each in history.runs] == ["stopped", "succeeded"]
    assert not history.missing()


@pytest.mark.parametrize("to", [2, 7])
def test_an_attempt_whose_lease_is_lost_does_not_hide_where_the_newer_one_ended(
    to: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stood still before its first status."""
    history = History(partitions=1)
    run = history.start(*EXACT_LEASES, is_endless=True)
    begun, begin = list[None](), LeaseStatusReporter.begin

    def begin_noted(reporter: LeaseStatusReporter) -> None:
        begun.append(None)
        begin(reporter)

    monkeypatch.setattr(LeaseStatusReporter, "begin", begin_noted)
    while not begun:
        history.advance(run, 1)
    history.advance(run, 3)
    history.freeze_worker(run)
    history.advance(run, 200)
    history.produce(0, 5)
    history.advance(run, 600)
    history.pause()
    history.advance(run, 400)
    told = len(statuses(history))
    for _ in range(200):
        if len(statuses(history)) == told:  # otherwise it is killed
            history.wake(history.zombies[0], 1)
    move_progress(history, to)
    history.produce(0, 5)
    history.resume()
    history.advance(run, 1_500)
    assert run.name_of_end == "ProgressLost"


@either_delivery
def test_statuses_are_written_once_a_topic_that_could_not_be_read_can_be(
    mode: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    history = History(partitions=1)
    tries, read = list[None](), StatusTopic.of

    def read_at_second_try(topic: StatusTopic, job: str) -> list[PartitionStatus]:
        if "worker" in history.runtime.process.name:
            tries.append(None)
            if len(tries) == 1:
                raise BrokerUnavailable("no answer")
        return read(topic, job)

    monkeypatch.setattr(StatusTopic, "of", read_at_second_try)
    run = history.start(*mode, is_endless=True)
    history.produce(0, 3)
    history.advance(run, 800)
    assert len(tries) > 1
    assert any(each.attempt and each.offset == 3 for each in statuses(history))


def test_a_commit_that_a_frozen_attempt_had_asked_for_ends_no_run_at_least_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It arrives as the third attempt works, which had found more, and reads its progress again after an error."""
    history = History(partitions=1)
    run = begin_with_late_commit(history)
    history.lose_worker(run)
    history.advance(run, 300)
    history.wake(history.zombies[0], 30)
    poll, failed = ManualSource.poll, list[None]()

    def poll_after_error(source: ManualSource, limit: int, timeout: float) -> Any:
        if not failed and history.runtime.process not in history.zombies:
            failed.append(None)
            raise BrokerUnavailable("no answer")
        return poll(source, limit, timeout)

    monkeypatch.setattr(ManualSource, "poll", poll_after_error)
    history.advance(run, 1_500)
    history.check()
    assert failed
    assert run.name_of_end == "running"


@pytest.mark.parametrize("end", [History.redeploy, History.pause], ids=["redeploy", "pause"])
def test_a_commit_that_arrives_after_the_newer_attempt_has_ended_ends_no_run_at_least_once(
    end: Callable[[History], None],
) -> None:
    """The older one had told of less than it had asked to be committed; the driver looks only then."""
    history = History(partitions=1)
    run = begin_with_late_commit(history)
    history.freeze_or_thaw_driver(run)
    end(history)
    history.advance(run, 300)
    history.wake(history.zombies[0], 30)
    assert history.cluster.group(GROUP).committed[TopicPartition(INPUT, 0)].offset == 3
    history.freeze_or_thaw_driver(run)
    history.resume()
    history.advance(run, 1_500)
    history.check()
    assert run.name_of_end == "running"


@pytest.mark.parametrize("seed", [1, 4, 15, 29, 37, 94, 113, 124])
def test_two_attempts_that_both_live_end_no_run_at_least_once(seed: int) -> None:
    """The older one is cut off from its driver only: both work, commit and say where they end."""
    random, history = Random(seed), History(partitions=1)
    run = history.start(*LEASES, is_endless=True)
    history.advance(run, 400)
    history.freeze_worker(run)
    older = history.zombies[0]
    history.advance(run, random.randrange(40, 250))
    older.thaw(history.runtime.seconds)

    def advance_both(steps: int) -> None:
        for _ in range(0, steps, 6):
            history.runtime.advance(random.choice([[older.run, run.name], [older.run], [run.name]]), 6)
        run.seen_s = history.runtime.seconds

    for most in (300, 40):
        history.produce(0, random.randrange(1, 6), is_slow=random.random() < 0.3)
        advance_both(random.randrange(most))
    history.redeploy()
    advance_both(random.randrange(200, 700))
    history.advance(run, 800)
    history.check()
    assert run.name_of_end == "running"
