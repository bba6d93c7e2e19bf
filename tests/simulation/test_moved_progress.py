"""Progress that somebody else moves between two runs: noticed in both directions, and taken where that is said."""

from __future__ import annotations

import pytest

from support.simulation.bound_code import bound  # noqa: F401 - every test of this module uses it
from support.simulation.history import MODES, History, Place

PLAIN = "microbatch", "at_least_once"


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


def test_progress_that_is_moved_back_while_leases_are_at_work_ends_the_run_and_repeats_nothing() -> None:
    """A task reads it for a new producer, and the next round tells."""
    history = History(partitions=3)
    history.produce_everywhere(2)
    history.advance_to(history.start(*PLAIN, is_endless=True), "done", 2)
    history.produce_everywhere(8)
    history.finish(history.start("parallel", "exactly_once"))
    history.produce_everywhere(4)
    run = history.start("parallel", "exactly_once", is_endless=True)
    history.advance_to(run, "done")
    history.advance(run, 30)
    history.move(1, -3)
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
