import tracemalloc
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from support.eta_model import eta_model, held_out
from support.gated_models import METRICS, ROWS, forward_rows, gated_record
from wasmline.errors import TrainingError
from wasmline.offset_ranges import OffsetRanges
from wasmline.training import GatePolicy
from wasmline.training.champion_comparison import (
    MAX_SEGMENTS,
    MeasuredModel,
    compare_with_champion,
    segment_masks,
)
from wasmline.training.fitted_model import FittedModel


def model(trees: int) -> FittedModel:
    record = gated_record(trees)
    return FittedModel(data=eta_model(ROWS, record), layout=record.layout, dataset=record.dataset)


def measured(trees: int, forward: pa.Table | None = None) -> MeasuredModel:
    return MeasuredModel(model=model(trees), metrics=METRICS, held_out=held_out(ROWS[:300]), forward=forward)


def test_every_value_of_a_segments_field_is_a_segment_the_largest_first() -> None:
    rows = pa.table({"kind": ["a", "b", "b", None, "b", "a"], "age": [1, 1, 1, 1, 1, 2]})
    masks = segment_masks(rows, ("kind", "age"))
    assert {name: np.flatnonzero(mask).tolist() for name, mask in masks.items()} == {
        "age=1": [0, 1, 2, 3, 4],
        "kind=b": [1, 2, 4],
        "kind=a": [0, 5],
        "age=2": [5],
        "kind is null": [3],
    }
    assert [int(mask.sum()) for mask in masks.values()] == [5, 3, 2, 1, 1]


def test_of_many_values_those_with_the_most_rows_are_segments() -> None:
    rows = pa.table({"kind": [str(place) for place in range(100)] + ["99"]})
    masks = segment_masks(rows, ("kind",))
    assert (len(masks), next(iter(masks))) == (MAX_SEGMENTS, "kind=99")


def test_distinct_values_take_no_memory_beyond_their_own() -> None:
    rows = pa.table({"kind": [f"{place:05}" for place in range(30_000)] + ["None", None]})
    tracemalloc.start()
    masks = segment_masks(rows, ("kind",))
    assert tracemalloc.get_traced_memory()[1] < 60_000_000, "a mask of each value takes 900 MB"
    tracemalloc.stop()
    assert len(masks) == MAX_SEGMENTS


def test_a_value_is_printable_and_bounded_as_a_segments_name() -> None:
    rows = pa.table({"kind": ["x" * 1_000 + "1", "x" * 1_000 + "2", "\x1b[2J", "None", None, "\U000e0001" * 90]})
    masks = segment_masks(rows, ("kind",))
    assert [mask.tolist().index(True) for mask in masks.values()] == [0, 4, 3, 2, 5]
    long, missing, _, escaped, tags = masks
    assert (len(long), int(masks[long].sum())) == (80, 2)
    assert escaped == "kind=\\u001b[2J"
    assert (len(tags), tags[:17]) == (80, "kind=\\udb40\\udc01")
    assert missing == "kind is null"


def test_without_a_champion_only_the_baselines_count() -> None:
    metrics, decision = compare_with_champion(measured(3), None, GatePolicy())
    assert (metrics, decision.promote, decision.held_out) == (None, True, None)


def test_the_same_rows_give_the_same_decision() -> None:
    challenger = measured(12, forward_rows(ROWS[300:600], first_offset=0))
    policy = GatePolicy(segments=("vehicle",))
    assert compare_with_champion(challenger, model(3), policy) == compare_with_champion(challenger, model(3), policy)


def test_the_champion_has_the_baselines_of_the_challenger() -> None:
    metrics, decision = compare_with_champion(measured(12), model(3), GatePolicy())
    assert metrics is not None
    assert decision.held_out is not None
    assert (metrics.mean_rmse, metrics.linear_rmse, metrics.holdout) == (12.0, 11.0, METRICS.holdout)
    assert metrics.rmse == pytest.approx(decision.held_out.champion_rmse)
    assert metrics.rows == 300


def test_a_champion_of_another_topic_has_not_seen_the_newest_slice() -> None:
    champion = model(3)
    elsewhere = replace(champion, dataset=replace(champion.dataset, topic_id="recreated"))
    challenger = measured(12, forward_rows(ROWS[300:600], first_offset=0))
    found = [compare_with_champion(challenger, each, GatePolicy())[1].forward for each in (champion, elsewhere)]
    assert [each.rows for each in found if each] == [60, 300]


@pytest.mark.parametrize(
    ("champion", "challenger", "refusal"),
    [
        ({"0": (0, 500)}, {"0": (0, 400)}, "older"),
        ({"0": (0, 500)}, {"0": (0, 500)}, ""),
        ({"0": (0, 500)}, {"0": (400, 500)}, ""),
        ({"0": (0, 500)}, {"0": (0, 501)}, ""),
        ({"0": (0, 500)}, {"0": (0, 100, 300, 400)}, "older"),
        ({"0": (0, 500), "1": (0, 500)}, {"0": (0, 400), "1": (0, 501)}, ""),
        ({"0": (0, 500)}, {"0": (0, 500), "1": (0, 9)}, ""),
        ({"0": (0, 500)}, {"0": (0, 400), "1": (0, 9)}, ""),
        ({"0": (0, 500), "1": (0, 9)}, {"0": (0, 500)}, "older"),
        ({"0": (0, 500), "1": (9, 9)}, {"0": (0, 500)}, ""),
        ({"0": (0, 500), "1": (0, 9)}, {"0": (0, 500), "1": (9, 9)}, ""),
    ],
)
def test_a_model_of_earlier_records_does_not_replace_one_of_later_records_however_much_better_it_is(
    champion: OffsetRanges, challenger: OffsetRanges, refusal: str
) -> None:
    live, better = model(3), measured(12)
    live = replace(live, dataset=replace(live.dataset, offsets=champion))
    dataset = replace(better.model.dataset, offsets=challenger)
    _, decision = compare_with_champion(
        replace(better, model=replace(better.model, dataset=dataset)), live, GatePolicy()
    )
    assert (decision.refusal, decision.promote) == (refusal, not refusal)
    assert decision.held_out is not None
    elsewhere = replace(better.model, dataset=replace(dataset, topic_id="recreated"))
    assert compare_with_champion(replace(better, model=elsewhere), live, GatePolicy())[1].promote


def test_a_model_of_earlier_records_is_refused_with_the_later_ones() -> None:
    live = model(3)
    offsets = {str(partition): (0, len(ROWS) + 10) for partition in range(5_000)}
    live = replace(live, dataset=replace(live.dataset, offsets=offsets))
    _, decision = compare_with_champion(measured(12), live, GatePolicy())
    assert f"trained on later records, features 0: [{len(ROWS)}, {len(ROWS) + 10}), 1: [0, " in decision.reason
    assert "better beyond noise" in decision.reason
    assert len(decision.reason) < 2_000


def test_a_champion_with_an_input_that_the_rows_lack_is_named() -> None:
    champion = model(3)
    layout = replace(champion.layout, features=("speed", *champion.layout.features))
    with pytest.raises(TrainingError, match="the rows have no speed"):
        compare_with_champion(measured(12), replace(champion, layout=layout), GatePolicy())


def test_a_champion_of_another_split_is_compared_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    champion = model(3)
    other = replace(champion, dataset=replace(champion.dataset, seed=8))
    assert compare_with_champion(measured(12), other, GatePolicy())[0] is not None
    assert "the champion was trained with another split" in caplog.text
