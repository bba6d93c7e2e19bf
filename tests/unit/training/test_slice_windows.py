from dataclasses import replace

import pytest

from wasmline.job_specs import SliceRequest, TrainSpec
from wasmline.offset_ranges import OffsetRanges
from wasmline.training.recorded_slice import RecordedSlice
from wasmline.training.slice_windows import records_of, slice_dataset, slice_windows


def slices(*parts: OffsetRanges, beginning: int = 0) -> list[RecordedSlice]:
    return [
        RecordedSlice(
            model="eta",
            number=number,
            topic="features",
            topic_id="t1",
            offsets=offsets,
            beginning=dict.fromkeys("012", beginning),
            request=SliceRequest(run=f"dag/{number}"),
            decided_ms=0,
            times={},
        )
        for number, offsets in enumerate(parts, start=1)
    ]


@pytest.fixture
def spec(spec: TrainSpec) -> TrainSpec:
    return replace(spec, slice=SliceRequest(run="dag/1"), windows=("last 2", "all"))


DAYS: list[OffsetRanges] = [{"0": (0, 10)}, {"0": (10, 20)}, {"0": (20, 30)}, {"0": (30, 40)}]


def test_windows_are_unions_of_slices_the_longest_first(spec: TrainSpec) -> None:
    history = slices(*DAYS)
    everything, last = slice_windows(spec, history[3], history)
    assert (everything.name, everything.dataset.offsets) == ("all", {"0": (0, 40)})
    assert (last.name, last.dataset.offsets) == ("last 2", {"0": (20, 40)})
    assert everything.before
    assert last.before
    assert (everything.before.offsets, last.before.offsets) == ({"0": (0, 30)}, {"0": (10, 30)})
    assert slice_dataset(spec, history[3]).offsets == {"0": (30, 40)}
    assert everything.dataset.topic_id == "t1"


def test_the_first_slice_has_one_window_and_nothing_before_it(spec: TrainSpec) -> None:
    [own] = slices(DAYS[0])
    [window] = slice_windows(spec, own, [own])
    assert (window.name, window.dataset.offsets, window.before) == ("all", {"0": (0, 10)}, None)


def test_a_repeated_run_does_not_see_later_slices(spec: TrainSpec) -> None:
    history = slices(*DAYS)
    assert slice_windows(spec, history[1], history) == slice_windows(spec, history[1], history[:2])


def test_an_interval_that_is_run_late_is_trained_without_what_comes_after_it(spec: TrainSpec) -> None:
    history = slices(DAYS[0], DAYS[3], DAYS[2])
    everything, *_ = slice_windows(spec, history[2], history)
    assert everything.dataset.offsets == {"0": (0, 10, 20, 30)}


def of_intervals(*parts: tuple[int, OffsetRanges]) -> list[RecordedSlice]:
    """Return the slices of days, with the number of their day."""
    history = slices(*(offsets for _, offsets in parts))
    requests = [SliceRequest(run=f"dag/{day}", since=day * 10, until=day * 10 + 10) for day, _ in parts]
    return [replace(each, request=its, decided_ms=1_000) for each, its in zip(history, requests, strict=True)]


def test_the_last_slices_are_those_that_end_last(spec: TrainSpec) -> None:
    history = of_intervals((3, DAYS[2]), (1, DAYS[0]), (2, DAYS[1]), (4, DAYS[3]))
    assert slice_windows(spec, history[3], history)[1].dataset.offsets == {"0": (20, 40)}


def test_slices_that_share_no_partition_are_in_the_order_of_their_times(spec: TrainSpec) -> None:
    history = of_intervals((3, {"0": (0, 5)}), (2, {"1": (0, 5)}), (4, {"2": (0, 5)}))
    assert slice_windows(spec, history[1], history)[0].dataset.offsets == {"1": (0, 5)}
    assert slice_windows(spec, history[2], history)[1].dataset.offsets == {"0": (0, 5), "2": (0, 5)}
    unfinished = replace(history[0], request=SliceRequest(run="dag/3", until=10**15), decided_ms=45)
    assert slice_windows(spec, history[2], [unfinished, *history[1:]])[0].dataset.offsets.keys() == {"0", "1", "2"}


def test_no_slice_before_it_is_left_out_though_another_lies_between_them_in_other_partitions(spec: TrainSpec) -> None:
    history = slices({"0": (4, 7), "1": (6, 7), "2": (4, 6)}, {"1": (7, 10), "2": (6, 9)}, {"0": (1, 4), "2": (9, 15)})
    assert slice_windows(spec, history[2], history)[0].dataset.offsets["2"] == (6, 15)


def test_what_retention_had_removed_is_left_out_unless_its_rows_are_kept(spec: TrainSpec) -> None:
    history = slices(*DAYS, beginning=15)
    assert slice_windows(spec, history[3], history)[0].dataset.offsets == {"0": (15, 40)}
    assert slice_windows(spec, history[3], history, kept={1})[0].dataset.offsets == {"0": (0, 10, 15, 40)}


def test_slices_of_an_earlier_topic_of_the_name_are_left_out(spec: TrainSpec) -> None:
    old, *history = slices(*DAYS[:3])
    windows = slice_windows(spec, history[1], [replace(old, topic_id="t0"), *history])
    assert windows[0].dataset.offsets == {"0": (10, 30)}


def test_all_records_that_windows_need_are_read(spec: TrainSpec) -> None:
    history = slices(*DAYS)
    windows = slice_windows(replace(spec, windows=("last 2",)), history[3], history)
    assert records_of(spec, history[3], windows).offsets == {"0": (10, 40)}
