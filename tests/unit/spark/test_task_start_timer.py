"""Tasks that wait for a slot are told from tasks that have just been started."""

from wasmline.spark.parallel.task_start_timer import TaskStartTimer

SAMPLE_S = 5


def over(samples: list[dict[int, int]]) -> list[bool]:
    timer = TaskStartTimer(2 * SAMPLE_S)
    return [timer.is_over(number * SAMPLE_S, waiting) for number, waiting in enumerate(samples)]


def test_a_task_that_waits_in_one_stage_is_over_its_time() -> None:
    assert over([{1: 1}] * 5) == [False, False, False, False, True]


def test_leases_that_end_in_a_row_are_never_over_though_each_sample_finds_one_that_begins() -> None:
    assert not any(over([{number: 1} for number in range(50)]))


def test_a_stage_that_begins_after_many_short_ones_has_its_whole_time() -> None:
    samples = [{number: 1} for number in range(50)]
    assert not any(over([*samples, {99: 1}, {99: 1}, {99: 1}, {99: 0}]))


def test_waiting_in_leases_of_a_few_samples_each_adds_up() -> None:
    assert any(over([{number // 3: 1} for number in range(12)]))


def test_a_task_that_gets_a_slot_in_time_ends_the_waiting() -> None:
    assert not any(over([{1: 1}, {1: 1}, {1: 0}] * 5))


def test_a_task_that_waits_is_over_its_time_though_other_stages_come_and_go() -> None:
    assert over([{1: 1}, {1: 1, 2: 0}, {1: 1}, {1: 1, 3: 0}, {1: 1, 3: 0}]) == [False, False, False, False, True]


def test_stages_that_begin_in_a_row_beside_one_whose_tasks_run_are_never_over() -> None:
    assert not any(over([{0: 0, number: 1} for number in range(1, 50)]))
