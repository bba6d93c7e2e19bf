"""Progress that somebody else moves between two runs: noticed in both directions, and taken where that is said."""

from __future__ import annotations

from unittest.mock import Mock

import pytest

from support.simulation import world
from support.simulation.bound_code import bound  # noqa: F401 - every test of this module uses it
from support.simulation.history import GROUP, INPUT, MODES, History, Place
from wasmline.consumer.backends.kafka.transactions import KafkaTransactions
from wasmline.errors import CommitFailed, HandlerBroken
from wasmline.topic_partitions import CommittedOffset, TopicPartition

PLAIN = "microbatch", "at_least_once"
EXACT = "microbatch", "exactly_once"
LEASES = "parallel", "at_least_once"
EXACT_LEASES = "parallel", "exactly_once"


@pytest.mark.parametrize("by", [-2, 2], ids=["back", "ahead"])
@pytest.mark.parametrize("mode", MODES, ids="-".join)
@pytest.mark.parametrize("before", MODES, ids="-".join)
def test_progress_that_is_moved_between_two_runs_ends_the_second(
    before: tuple[str, str], mode: tuple[str, str], by: int
) -> None:
    """After micro-batches at least once it is what they claimed that counts."""
    history = History(partitions=1)
    history.produce(0, 5)
    history.finish(history.start(*before))
    history.produce(0, 5)
    history.move(0, by)
    history.finish(history.start(*mode))
    if before == PLAIN:
        assert history.runs[-1].name_of_end == "succeeded"
        assert not history.missing()
        return
    assert history.runs[-1].name_of_end == "ProgressLost"
    history.finish(history.start(*mode))
    assert history.runs[-1].name_of_end == "ProgressLost"
    history.repair()
    history.finish(history.start(*mode))
    history.produce(0, 5)
    history.finish(history.start(*mode))
    assert [run.name_of_end for run in history.runs[-2:]] == ["succeeded"] * 2
    assert not history.missing()


@pytest.mark.parametrize("steps", range(0, 60, 4))
@pytest.mark.parametrize("by", [-1, 1], ids=["back", "ahead"])
def test_progress_that_is_moved_after_batches_exactly_once_were_killed_ends_the_next_run(steps: int, by: int) -> None:
    """Each partition is where the last batch began or where it ends, and nowhere between or beyond."""
    history = History(partitions=1)
    history.produce(0, 5)
    history.finish(history.start("microbatch", "exactly_once"))
    history.produce(0, 20)
    run = history.start("microbatch", "exactly_once")
    history.advance_into_task(run, steps)
    assert not run.is_over
    history.crash(run)
    history.move(0, by)
    history.finish(history.start("microbatch", "exactly_once"))
    assert history.runs[-1].name_of_end == "ProgressLost"


@pytest.mark.parametrize("mode", MODES, ids="-".join)
@pytest.mark.parametrize("before", MODES, ids="-".join)
@pytest.mark.parametrize("to", [2, 8], ids=["back", "ahead"])
def test_a_run_that_is_told_to_goes_on_where_somebody_set_the_group(
    before: tuple[str, str], mode: tuple[str, str], to: int
) -> None:
    history = History(partitions=1)
    history.produce(0, 5)
    history.finish(history.start(*before))
    history.produce(0, 5)
    history.move(0, to - 5)
    history.told.doubled |= {Place(0, offset, 0) for offset in range(to, 5)}
    history.told.lost |= {Place(0, offset, 0) for offset in range(5, to)}
    history.goes_on_after_move = True
    history.finish(history.start(*mode))
    history.finish(history.start(*mode))
    assert [run.name_of_end for run in history.runs] == ["succeeded"] * 3
    times = [history.times(Place(0, offset, 0)) for offset in range(10)]
    assert times == [1, 1, *([2] * 3 if to == 2 else [1] * 3), *([0] * 3 if to == 8 else [1] * 3), 1, 1]


@pytest.mark.parametrize("mode", MODES, ids=" ".join)
@pytest.mark.parametrize("before", MODES, ids=" ".join)
def test_what_others_commit_for_an_added_partition_is_noticed_or_set_right(
    before: tuple[str, str], mode: tuple[str, str]
) -> None:
    history = History(partitions=1)
    history.produce(0, 3)
    history.finish(history.start(*before))
    history.add_partition()
    history.produce(1, 5)
    history.move(1, 5)
    run = history.start(*mode)
    history.finish(run)
    assert run.name_of_end == ("succeeded" if before == PLAIN else "ProgressLost")
    assert len(history.missing()) == (0 if before == PLAIN else 5)


@pytest.mark.parametrize("mode", [EXACT, LEASES, EXACT_LEASES], ids=" ".join)
def test_what_others_commit_for_a_partition_that_a_run_does_not_know_yet_ends_it(mode: tuple[str, str]) -> None:
    history = History(partitions=1)
    history.produce(0, 3)
    run = history.start(*mode, is_endless=True)
    history.advance(run, 1_500)
    history.add_partition()
    history.produce(1, 5)
    history.cluster.commit(GROUP, {TopicPartition(INPUT, 1): CommittedOffset(5)})
    history._note("lose")
    history.advance(run, 3_000)
    assert run.name_of_end == "ProgressLost"


@pytest.mark.parametrize("mode", [LEASES, EXACT_LEASES], ids=" ".join)
@pytest.mark.parametrize("to", [1, 5])
def test_progress_that_is_moved_after_a_lease_has_paused_its_deployment_is_noticed(
    mode: tuple[str, str], to: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = History(partitions=1)
    run = history.start(*mode, is_endless=True)
    history.advance(run, 400)
    history.produce(0, 3)
    history.advance(run, 600)
    with monkeypatch.context() as patch:
        patch.setattr(world.Guest, "parts", Mock(side_effect=HandlerBroken("broken")))
        history.produce(0, 3)
        history.advance(run, 600)
    history.cluster.commit(GROUP, {TopicPartition(INPUT, 0): CommittedOffset(to)})
    history._note("lose")
    history.redeploy()
    history.advance(run, 1_500)
    assert run.name_of_end == "ProgressLost"


def test_progress_that_is_lost_is_told_as_it_was_last() -> None:
    """Not as it was when the run was planned, or the last round began."""
    history = History(partitions=1)
    history.produce(0, 3)
    run = history.start(*EXACT_LEASES, is_endless=True)
    history.advance(run, 1_500)
    history.forget_group()
    history.redeploy()
    history.advance(run, 3_000)
    assert run.report is not None
    assert run.name_of_end == "ProgressLost"
    assert "--topic in:0 --to-offset 3)" in run.report.message


@pytest.mark.parametrize("mode", [EXACT, LEASES, EXACT_LEASES], ids=" ".join)
@pytest.mark.parametrize("moment", ["write", "send", "commit"])
@pytest.mark.parametrize("is_known", [False, True])
def test_a_task_of_an_older_topic_commits_nothing_for_a_partition_that_is_added_to_the_newer_one(
    mode: tuple[str, str], moment: str, is_known: bool
) -> None:
    """It stands still in a transaction while the topic is recreated with fewer partitions, and one is added."""
    history = History(partitions=2)
    history.produce(0, 3)
    history.finish(history.start(*EXACT))
    history.produce(1, 5)
    older = history.start(*EXACT)
    history.advance_into_task(older, 0)
    history.advance_to(older, moment)
    history.freeze_worker(older)
    history.crash(older)
    history.recreate_topic(partitions=1)
    history.produce(0, 3)
    newer = history.start(*mode, is_endless=True)
    history.advance(newer, 1_500)
    history.add_partition()
    history.produce(1, 5)
    if is_known:
        history.advance(newer, 1_500)
    history.wake(history.zombies[0], 200)
    history.advance(newer, 3_000)
    history.check()
    assert (newer.name_of_end, history.missing()) == ("running", set())


def test_progress_that_is_moved_back_while_leases_are_at_work_ends_the_run_and_repeats_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A task reads it for a new producer, after a transaction that was aborted, and the next round tells."""
    history = History(partitions=3)
    history.produce_everywhere(2)
    history.advance_to(history.start(*PLAIN, is_endless=True), "done", 2)
    history.produce_everywhere(8)
    history.finish(history.start(*EXACT_LEASES))
    history.produce_everywhere(4)
    run = history.start(*EXACT_LEASES, is_endless=True)
    history.advance_to(run, "done")
    history.advance(run, 30)
    aborted = Mock(side_effect=lambda *_: (CommitFailed("the transaction was aborted"), False))
    with monkeypatch.context() as patch:
        patch.setattr(KafkaTransactions, "_run_transaction", aborted)
        history.move(1, -3)
        history.produce_everywhere(1)
        while not aborted.called:
            history.advance(run, 1)
    for _ in range(3):
        history.produce_everywhere(1)
        history.advance(run, 150)
        history.check()
    assert run.name_of_end == "ProgressLost"


@pytest.mark.parametrize("steps", range(0, 40, 2))
def test_a_run_that_was_replaced_does_not_take_what_the_newer_one_did_for_a_strangers_work(steps: int) -> None:
    history = History(partitions=1)
    history.produce(0, 5)
    replaced = history.start("microbatch", "exactly_once", is_endless=True)
    while history.missing():
        history.advance(replaced, 5)
        history.check()
    history.produce(0, 5)
    history.advance(replaced, steps)
    history.finish(history.start("microbatch", "exactly_once"))
    history.produce(0, 5)
    history.finish(replaced)
    assert replaced.name_of_end in ("Fenced", "stopped")


@pytest.mark.parametrize("steps", range(12))
@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_retention_that_overtakes_a_batch_at_work_is_named(delivery: str, steps: int) -> None:
    """Spark says that some data may have been lost, and nothing of where to go on."""
    history = History(partitions=1)
    history.produce(0, 5)
    history.finish(history.start("microbatch", delivery))
    history.produce(0, 5)
    run = history.start("microbatch", delivery)
    history.advance_into_task(run, steps)
    history.apply_retention(0, 1.0)
    if not run.is_over:
        history.finish(run)
    assert run.name_of_end in ("succeeded", "OffsetOutOfRange")
