from dataclasses import replace
from typing import Any

import pytest

from wasmline.job_specs import SliceRequest
from wasmline.training.recorded_slice import RecordedSlice
from wasmline.training.slice_decision import NewSlice, TopicOffsets, decide_slice, passed_text

TOPIC = TopicOffsets(topic="features", topic_id="t1", beginning={"0": 0, "1": 5}, end={"0": 100, "1": 50}, times={})


def asked(**fields: Any) -> SliceRequest:
    return SliceRequest(run="dag/new", **fields)


def recorded(offsets: dict[str, tuple[int, ...]], **fields: Any) -> RecordedSlice:
    known = {"model": "eta", "number": 1, "topic": "features", "topic_id": "t1", "beginning": {}, "times": {}}
    request = SliceRequest(run="dag/old")
    return RecordedSlice(**{**known, "offsets": offsets, "request": request, "decided_ms": 0, **fields})


def decide(request: SliceRequest, *slices: RecordedSlice, **topic: Any) -> NewSlice:
    seen = {name: getattr(TOPIC, name) for name in ("topic", "topic_id", "beginning", "end", "times")}
    return decide_slice(request, slices, TopicOffsets(**{**seen, **topic}))


def test_the_first_slice_is_all_that_the_topic_has() -> None:
    assert decide(asked()) == NewSlice(offsets={"0": (0, 100), "1": (5, 50)}, times={}, forgotten=0)
    assert decide(asked(since="beginning")) == decide(asked())


def test_a_slice_begins_where_the_one_before_it_ends() -> None:
    assert decide(asked(), recorded({"0": (0, 60), "1": (5, 50)})).offsets == {"0": (60, 100)}


def test_the_one_before_it_is_the_last_that_ends_at_or_below_its_end() -> None:
    slices = recorded({"0": (0, 10)}), recorded({"0": (50, 60)})
    assert decide(asked(until={"0": 30}), *slices).offsets == {"0": (10, 30)}
    assert decide(asked(until={"0": 55}), *slices).offsets == {"0": (10, 50)}
    assert decide(asked(until={"0": 60}), *slices).offsets == {}
    assert decide(asked(until={"0": 70}), *slices).offsets == {"0": (60, 70)}


def test_from_the_beginning_is_all_that_no_slice_has() -> None:
    slices = recorded({"0": (10, 20, 30, 40)}), recorded({"0": (50, 60)})
    assert decide(asked(since="beginning", until={"0": 60}), *slices).offsets == {"0": (0, 10, 20, 30, 40, 50)}


def test_a_partition_that_an_event_does_not_name_gives_nothing() -> None:
    assert decide(asked(until={"1": 7, "9": 3})).offsets == {"1": (5, 7)}


def test_a_slice_does_not_end_after_the_topic() -> None:
    assert decide(asked(until={"0": 1_000})).offsets == {"0": (0, 100)}


def test_a_time_has_the_offset_at_which_a_slice_recorded_it() -> None:
    earlier = recorded({"0": (20, 40)}, times={"7": {"0": 20}, "8": {"0": 40}})
    times = {"8": {"0": 55, "1": 30}, "9": {"0": 70, "1": 40}}
    found = decide(asked(since=8, until=9), earlier, times=times)
    assert found.offsets == {"0": (40, 70), "1": (30, 40)}
    assert found.times == {"8": {"0": 40, "1": 30}, "9": {"0": 70, "1": 40}}
    before = decide(asked(since=6, until=7), earlier, times={"6": {"0": 3, "1": 5}, "7": {"0": 25, "1": 5}})
    assert before.offsets == {"0": (3, 20)}


def test_the_first_slice_that_recorded_a_time_decides() -> None:
    slices = recorded({"0": (0, 5)}, times={"8": {"0": 40}}), recorded({"0": (5, 6)}, times={"8": {"0": 50}})
    assert decide(asked(until=8), *slices, times={"8": {"0": 60, "1": 5}}).offsets == {"0": (6, 40)}


@pytest.mark.parametrize(
    ("request_", "offsets", "forgotten"),
    [
        (asked(), {"0": (80, 100)}, 10),
        (asked(since=3, until=9), {"0": (80, 90)}, 15),
        (asked(until={"0": 60}), {}, 5),
        (asked(since="beginning"), {"0": (80, 100)}, 0),
    ],
)
def test_what_retention_removed_is_counted(request_: SliceRequest, offsets: Any, forgotten: int) -> None:
    slices = recorded({"0": (0, 50)}, times={"3": {"0": 60}}), recorded({"0": (50, 55, 65, 70)})
    found = decide(request_, *slices, beginning={"0": 80}, end={"0": 100}, times={"3": {"0": 80}, "9": {"0": 90}})
    assert (found.offsets, found.forgotten) == (offsets, forgotten)


def test_what_lies_at_or_after_the_end_of_a_slice_and_is_in_no_other_is_counted() -> None:
    taken = recorded({"0": (50, 60)})
    assert decide(asked(until=9), taken, times={"9": {"0": 5, "1": 50}}).later == 100 - 5 - 10
    assert decide(asked(until={"0": 100})).later == 50 - 5
    assert decide(asked()).later == 0


def test_what_slices_passed_by_is_told_as_far_as_the_topic_held_it() -> None:
    first, second = recorded({"0": (20, 30)}, beginning={"0": 3, "1": 5}), recorded({"1": (10, 40)}, number=2)
    told = "features: {} offsets below the end of the slices are in none: a run since the beginning takes them"
    assert passed_text([first]).startswith(told.format(17))
    assert passed_text([first, replace(second, beginning={"0": 8, "1": 9})]).startswith(told.format(12 + 1))
    assert passed_text([first, replace(second, beginning={"0": 90, "1": 9})]).startswith(told.format(1))
    assert passed_text([]) == passed_text([recorded({"0": (3, 30)}, beginning={"0": 3})]) == ""


def test_slices_of_another_topic_or_of_one_recreated_are_none_of_it() -> None:
    others = recorded({"0": (0, 60)}, topic="other"), recorded({"0": (0, 60)}, topic_id="t0", times={"9": {"0": 1}})
    assert decide(asked(until=9), *others, times={"9": {"0": 70, "1": 5}}).offsets == {"0": (0, 70)}
