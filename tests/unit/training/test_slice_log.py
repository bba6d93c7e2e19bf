import json
import shutil
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from wasmline.documents import plain
from wasmline.errors import InvalidArtifact, InvalidLayout, InvalidReference, InvalidTrainSpec, UnsupportedSpecVersion
from wasmline.job_specs import SliceRequest, TrainSpec
from wasmline.offset_ranges import count_offsets
from wasmline.training.dataset_slice import Dataset
from wasmline.training.recorded_slice import MAX_BYTES, RecordedSlice
from wasmline.training.run_slice import SkipResult, slice_of_run
from wasmline.training.slice_decision import NewSlice, TopicOffsets
from wasmline.training.slice_log import SliceLog

REQUEST = SliceRequest(run="dag/1")
TIMES = {"1767225600000": {"0": 90, "1": 50}}
TOPIC = TopicOffsets(topic="features", topic_id="t1", beginning={"0": 0, "1": 5}, end={"0": 100, "1": 50}, times=TIMES)


@pytest.fixture
def log(spec: TrainSpec) -> SliceLog:
    return SliceLog(spec.models)


def found(spec: TrainSpec, run: str, topic: TopicOffsets = TOPIC, rows: int = 10**9) -> RecordedSlice | SkipResult:
    return slice_of_run(spec, replace(REQUEST, run=run), lambda: topic, lambda dataset: rows)


def recorded(spec: TrainSpec, run: str = "dag/1", topic: TopicOffsets = TOPIC) -> RecordedSlice:
    its = found(spec, run, topic)
    assert isinstance(its, RecordedSlice)
    return its


def count(dataset: Dataset) -> int:
    return dataset.offset_count


def grown(end: int) -> TopicOffsets:
    return replace(TOPIC, end={"0": end, "1": 50})


def test_a_model_without_slices_has_none(log: SliceLog) -> None:
    assert log.history("eta") == []


def test_a_slice_is_kept_with_its_request_and_what_its_times_were(spec: TrainSpec, log: SliceLog) -> None:
    request = replace(REQUEST, until=1_767_225_600_000)
    first = slice_of_run(spec, request, lambda: TOPIC, lambda dataset: dataset.offset_count)
    assert log.history("eta") == [first]
    assert isinstance(first, RecordedSlice)
    assert (first.number, first.offsets) == (1, {"0": (0, 90), "1": (5, 50)})
    assert (first.request, first.times, first.beginning) == (request, TIMES, {"0": 0, "1": 5})


def test_a_run_that_is_repeated_gets_its_slice_though_the_topic_has_grown(spec: TrainSpec, log: SliceLog) -> None:
    first = recorded(spec)
    assert recorded(spec, topic=grown(200)) == first
    assert log.history("eta") == [first]


def test_a_run_whose_topic_was_created_again_has_a_slice_of_either(spec: TrainSpec) -> None:
    first = recorded(spec)
    again = replace(TOPIC, topic_id="t2", end={"0": 7, "1": 6})
    second = recorded(spec, topic=again)
    assert (second.number, second.offsets) == (2, {"0": (0, 7), "1": (5, 6)})
    assert recorded(spec, topic=again) == second
    assert recorded(spec) == first


def test_a_topic_without_an_id_that_was_created_again_is_named(spec: TrainSpec) -> None:
    nameless = replace(TOPIC, topic_id="")
    recorded(spec, topic=nameless)
    with pytest.raises(InvalidTrainSpec, match=r"partition 0 of features ends at 99, and slices of eta .* up to 100"):
        found(spec, "dag/2", replace(nameless, end={"0": 99, "1": 50}))


def test_a_repeated_run_keeps_its_slice_whatever_it_asks_for_but_another_beginning_in_time(
    spec: TrainSpec, caplog: pytest.LogCaptureFixture
) -> None:
    day_ms = 86_400_000
    topic = replace(TOPIC, times={str(day_ms * day): {"0": day, "1": 5} for day in range(1, 4)})

    def asks(**bounds: Any) -> RecordedSlice | SkipResult:
        return slice_of_run(spec, replace(REQUEST, **bounds), lambda: topic, lambda dataset: 10**9)

    own = asks(since=day_ms, until=2 * day_ms)
    assert asks(since=day_ms, until=2 * day_ms) == own
    assert caplog.messages == []
    for other in ({"since": day_ms, "until": 3 * day_ms}, {"since": "beginning"}, {"until": {"0": 90}}):
        assert asks(**other) == own
        assert "run dag/1 asks for " in caplog.messages[-1]
    with pytest.raises(InvalidTrainSpec, match=r"is since 86400000, and run dag/1, which .* since 172800000"):
        asks(since=2 * day_ms, until=3 * day_ms)


def test_a_record_of_the_future_is_told_of_where_it_ends_a_slice(
    spec: TrainSpec, caplog: pytest.LogCaptureFixture
) -> None:
    nights = [1_767_225_600_000 + 86_400_000 * night for night in range(2)]
    future = {str(night): {"0": 5, "1": 50} for night in nights}
    first, second = (
        slice_of_run(spec, SliceRequest(run=f"dag/{night}", until=night), lambda: replace(TOPIC, times=future), count)
        for night in nights
    )
    assert isinstance(first, RecordedSlice)
    assert isinstance(second, SkipResult)
    assert second.reason == (
        "features has 0 offsets that are new to eta, and min_new_rows is 0; 95 offsets lie at or after until"
    )
    assert "features: a slice ends at the first record of 1767312000000 or later" in caplog.messages[-1]


def test_too_few_new_rows_are_skipped_and_not_recorded(spec: TrainSpec, log: SliceLog) -> None:
    skipped = found(replace(spec, slice=REQUEST, min_new_rows=50), "dag/1", rows=49)
    assert isinstance(skipped, SkipResult)
    assert (skipped.new_rows, skipped.new_offsets) == (49, 145)
    assert skipped.reason == "features has 49 usable rows that are new to eta, and min_new_rows is 50"
    assert log.history("eta") == []


def test_rows_are_not_counted_where_there_are_fewer_offsets(spec: TrainSpec, log: SliceLog) -> None:
    recorded(spec)
    for least, run in ((0, "dag/2"), (500, "dag/3")):
        skipped = found(replace(spec, slice=REQUEST, min_new_rows=least), run)
        assert isinstance(skipped, SkipResult)
        assert (skipped.new_rows, skipped.new_offsets) == (None, 0)
        assert "has 0 offsets that are new" in skipped.reason
    assert len(log.history("eta")) == 1


def test_runs_at_once_get_slices_that_do_not_overlap(spec: TrainSpec, log: SliceLog) -> None:
    start = threading.Barrier(6)

    def run(number: int) -> None:
        start.wait()
        found(spec, f"dag/{number}", grown(100 + 10 * number))

    threads = [threading.Thread(target=run, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    history = log.history("eta")  # which raises for slices that overlap
    assert sum(count_offsets(each.offsets) for each in history) == 150 + 45


def test_a_number_that_was_taken_meanwhile_is_decided_again(spec: TrainSpec, log: SliceLog) -> None:
    new = NewSlice(offsets={"0": (0, 5)}, times={}, forgotten=0)
    first = log.append("eta", 0, new, request=REQUEST, topic=TOPIC)
    assert first
    assert log.append("eta", 0, new, request=replace(REQUEST, run="dag/2"), topic=TOPIC) is None
    assert log.history("eta") == [first]


def test_a_slice_that_could_not_be_read_again_is_not_recorded(log: SliceLog) -> None:
    for offsets in ({}, {"0": (5, 5)}, {"0": (5, 4)}, {str(each): (0, 2**62) for each in range(20_000)}):
        new = NewSlice(offsets=offsets, times={}, forgotten=0)
        with pytest.raises((InvalidArtifact, ValueError)):
            log.append("eta", 0, new, request=REQUEST, topic=TOPIC)
    assert log.history("eta") == []


FORGED: dict[str, tuple[dict[str, Any] | bytes, str]] = {
    "nothing": (b"", "Expecting value"),
    "nesting": (b"[" * 10_000, "nested too deeply"),
    "a list": (b"[]", "Expected `object`, got `array`"),
    "a repeated key": (b'{"run":"1","run":"2"}', "the key 'run' is repeated"),
    "more than a slice takes": (b" " * (MAX_BYTES + 1), f"it takes more than {MAX_BYTES} bytes"),
    "no offsets": ({"offsets": {}}, "it has no offsets"),
    "an empty range": ({"offsets": {"0": [5, 5]}}, "it has no offsets"),
    "a negative offset": ({"offsets": {"0": [-1, 5]}}, "no offset"),
    "an offset that is too large": ({"offsets": {"0": [0, 2**63]}}, "no offset"),
    "an offset that is text": ({"offsets": {"0": ["0", 5]}}, r"Expected `int`, got `str`"),
    "ranges in disorder": ({"offsets": {"0": [10, 20, 0, 5]}}, "not pairs in ascending order"),
    "half a range": ({"offsets": {"0": [10]}}, "not pairs in ascending order"),
    "a partition with a path": ({"offsets": {"../0": [0, 5]}}, "not the number of a partition"),
    "a beginning that is negative": ({"beginning": {"0": -1}}, "not pairs"),
    "a time with a negative offset": ({"times": {"5": {"0": -1}}}, "not pairs"),
    "a request without a run": ({"request": {"run": ""}}, "needs a run"),
    "a request of a negative time": ({"request": {"run": "r", "since": -1}}, "no Unix time"),
    "a count that is negative": ({"forgotten": -1}, "it forgot -1 offsets"),
    "a number that is text": ({"number": "1"}, r"\$\.number"),
    "another number": ({"number": 2}, "it contains slice 2 of 'eta'"),
    "another model": ({"model": "\x1b[2J"}, "it contains slice 1 of "),
}


@pytest.mark.parametrize("case", FORGED)
def test_a_malformed_slice_is_one_error_that_says_what_and_where(spec: TrainSpec, log: SliceLog, case: str) -> None:
    change, complaint = FORGED[case]
    forge(spec, recorded(spec), change)
    where = r"slices/eta/000001/slice\.json in .* is not slice 1 of eta: "
    with pytest.raises(InvalidLayout, match=f"{where}.*{complaint}.*; restore it, or remove it") as caught:
        log.history("eta")
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 2000
    with pytest.raises(InvalidLayout):
        found(spec, "dag/2")


def test_slices_that_others_wrote_and_that_overlap_are_named(spec: TrainSpec, log: SliceLog) -> None:
    first = recorded(spec)
    other = recorded(spec, "dag/2", grown(200))
    forge(spec, other, {"offsets": {"0": [99, 200]}})
    with pytest.raises(InvalidLayout, match=r"slices/eta/000002 in .* overlaps slice 1 at offset 99 of partition 0"):
        log.history("eta")
    forge(spec, other, {"offsets": {"0": [99, 200]}, "topic_id": "t0"})
    assert [each.number for each in log.history("eta")] == [first.number, 2]


def test_a_slice_of_a_later_release_is_not_called_malformed(spec: TrainSpec, log: SliceLog) -> None:
    forge(spec, recorded(spec), {"spec_version": 2, "offsets": None})
    with pytest.raises(UnsupportedSpecVersion, match=r"slices/eta/000001/.* is a RecordedSlice of spec version 2"):
        log.history("eta")


def test_a_slice_that_follows_none_is_named(spec: TrainSpec, log: SliceLog) -> None:
    recorded(spec)
    folder = Path(spec.models) / "slices/eta"
    shutil.copytree(folder / "000001", folder / "000007")
    with pytest.raises(InvalidLayout, match=r"slices/eta/000007 in .* does not follow slice 1: remove it"):
        log.history("eta")


def test_what_is_no_document_in_the_place_of_the_next_slice_is_named(spec: TrainSpec) -> None:
    (Path(spec.models) / "slices/eta/000001/slice.json").mkdir(parents=True)
    with pytest.raises(InvalidLayout, match=r"slices/eta/000001"):
        found(spec, "dag/1")


def test_a_name_that_leads_out_of_the_registry_is_refused(log: SliceLog) -> None:
    with pytest.raises(InvalidReference):
        log.history("../../eta")


def forge(spec: TrainSpec, original: RecordedSlice, change: dict[str, Any] | bytes) -> None:
    content = change if isinstance(change, bytes) else json.dumps(plain(original) | change).encode()
    (Path(spec.models) / f"slices/eta/{original.number:06d}/slice.json").write_bytes(content)
