from itertools import pairwise

import pytest

from wasmline.training.retrain_cooldown import RetrainCooldown
from wasmline.training.retrain_reasons import Condition, RetrainReason

MINUTE_MS = 60_000
DAY_MS = 86_400_000


def reason(condition: Condition) -> RetrainReason:
    return RetrainReason(condition=condition, text="", figures={})


def events(cooldown: RetrainCooldown, condition: Condition, *, days: int) -> list[int]:
    """Return the minutes of the events of a condition that stays met, with a kept champion and no new slice."""
    minutes = range(days * 24 * 60)
    return [
        minute
        for minute in minutes
        if cooldown.due([reason(condition)], slices=3, champion="1.0.0", now_ms=minute * MINUTE_MS)
    ]


@pytest.mark.parametrize("condition", ["new records", "drift", "live error"])
def test_a_condition_that_stays_met_waits_twice_as_long_each_time_up_to_a_day(condition: Condition) -> None:
    found = events(RetrainCooldown(600), condition, days=5)
    waits = [later - earlier for earlier, later in pairwise(found)]
    assert waits == [10, 20, 40, 80, 160, 320, 640, 1_280, 1_440, 1_440, 1_440]


def test_a_first_wait_above_a_day_stays_what_it_is() -> None:
    assert events(RetrainCooldown(2 * 86_400), "age", days=9) == [0, 2_880, 5_760, 8_640, 11_520]


def test_a_new_slice_ends_the_wait_for_new_records_and_a_new_champion_that_of_the_others() -> None:
    cooldown = RetrainCooldown(600)
    both = [reason("new records"), reason("drift")]

    def due(slices: int, champion: str, now_ms: int) -> list[str]:
        return [each.condition for each in cooldown.due(both, slices=slices, champion=champion, now_ms=now_ms)]

    assert due(1, "1.0.0", 0) == ["new records", "drift"]
    assert due(1, "1.0.0", 1) == []
    assert due(2, "1.0.0", 2) == ["new records"]
    assert due(2, "1.1.0", 3) == ["drift"]
    assert due(2, "1.1.0", 4) == []


def test_a_clock_that_is_set_back_ends_the_wait() -> None:
    cooldown = RetrainCooldown(600)
    assert cooldown.due([reason("age")], slices=0, champion=None, now_ms=30 * DAY_MS)
    assert cooldown.due([reason("age")], slices=0, champion=None, now_ms=0)


def test_without_a_cooldown_nothing_waits() -> None:
    assert len(events(RetrainCooldown(0), "drift", days=1)) == 1_440
