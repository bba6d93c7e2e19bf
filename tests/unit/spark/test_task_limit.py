"""The number of tasks follows the slots: fewer where some are missing, more once they are back."""

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from wasmline.spark.parallel.task_limit import RoundSample, TaskLimit

SAMPLE_S = 5
TIMEOUT_S = 2 * SAMPLE_S


def sample(tasks: int, waiting: int = 0, slots: int = 3, wanted: int = 3, stage: int = 1) -> RoundSample:
    return RoundSample(tasks={stage: tasks}, waiting={stage: waiting}, slots=slots, wanted=wanted)


def limits(samples: Iterable[RoundSample]) -> list[int | None]:
    limit = TaskLimit(TIMEOUT_S)
    return [limit.changed(number * SAMPLE_S, each) for number, each in enumerate(samples)]


def test_tasks_that_wait_for_long_lower_the_limit_once() -> None:
    assert limits([sample(3, 1, slots=2)] * 6) == [None, None, None, None, 2, None]


def test_a_job_without_any_slot_waits() -> None:
    assert set(limits([sample(3, 3, slots=0)] * 20)) == {None}


def test_slots_that_are_back_for_long_raise_the_limit() -> None:
    assert limits([sample(2)] * 5) == [None, None, None, 3, None]


def test_slots_that_come_and_go_change_nothing() -> None:
    assert set(limits([sample(2, slots=3), sample(2, slots=2)] * 20)) == {None}


def test_more_slots_than_tasks_are_of_no_use() -> None:
    assert set(limits([sample(2, slots=9, wanted=2)] * 20)) == {None}


def test_between_two_rounds_nothing_is_decided() -> None:
    nothing = RoundSample(tasks={}, waiting={}, slots=3, wanted=3)
    assert set(limits([nothing] * 20)) == {None}


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(0, 4)), max_size=60))
def test_a_limit_is_at_least_one_and_at_most_what_runs_or_could(found: list[tuple[int, int, int]]) -> None:
    samples = [sample(tasks, min(tasks, waiting), slots) for tasks, waiting, slots in found]
    for each, limit in zip(samples, limits(samples), strict=True):
        if limit is not None:
            running = each.tasks[1] - each.waiting[1]
            assert 1 <= limit <= max(running, each.slots)
