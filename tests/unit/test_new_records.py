import pytest

from wasmline.errors import InvalidJob
from wasmline.new_records import EventThresholds, TopicEnds, new_offsets

LAST = TopicEnds(topic_id="t1", ends={"0": 10, "1": 5}, at_ms=1_000)


def now(*ends: int, at_ms: int = 1_000, topic_id: str = "t1") -> TopicEnds:
    return TopicEnds(topic_id=topic_id, ends={str(p): end for p, end in enumerate(ends)}, at_ms=at_ms)


def test_the_new_offsets_are_those_that_each_partition_has_grown_by_and_new_partitions_are_new() -> None:
    assert new_offsets(LAST, now(10, 5)) == {}
    assert new_offsets(LAST, now(12, 5, 3)) == {"0": (10, 12), "2": (0, 3)}


def test_a_recreated_topic_is_new_from_its_beginning() -> None:
    assert new_offsets(LAST, now(4, 0, topic_id="t2")) == {"0": (0, 4)}


def test_an_event_is_due_after_so_many_records_of_all_partitions() -> None:
    plan = EventThresholds(every_records=5)
    assert not plan.is_due(LAST, now(12, 7, at_ms=10**9))
    assert plan.is_due(LAST, now(12, 8))


def test_an_event_is_due_after_some_seconds_if_a_record_was_written() -> None:
    plan = EventThresholds(every_seconds=2.5)
    assert not plan.is_due(LAST, now(11, 5, at_ms=3_499))
    assert plan.is_due(LAST, now(11, 5, at_ms=3_500))
    assert not plan.is_due(LAST, now(10, 5, at_ms=10**9))


@pytest.mark.parametrize(("records", "seconds"), [(None, None), (0, None), (5, -1.0), (None, float("nan"))])
def test_a_plan_that_would_fire_never_or_always_is_rejected(records: int | None, seconds: float | None) -> None:
    with pytest.raises(InvalidJob, match="must be set, and above 0"):
        EventThresholds(every_records=records, every_seconds=seconds)
