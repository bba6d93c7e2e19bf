from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from wasmline.job_specs import TrainSpec
from wasmline.training import Dataset, Prepared, Window
from wasmline.training.dataset_slice import of_slice
from wasmline.training.held_out_rows import STAND_IN
from wasmline.training.prepare import HELD_OUT, OFFSET, PARTITION, TIMESTAMP
from wasmline.training.window_choice import RowSource, WindowChoice, choose_window

SLICE = 400


@pytest.fixture
def spec(spec: TrainSpec) -> TrainSpec:
    return replace(spec, min_rows=50, trees=30, depth=3, learning_rate=0.3)


def records(
    slices: int, *, shift_at: int | None = None, columns: Mapping[str, Sequence[Any]] | None = None
) -> pa.Table:
    """Return rows of ``slices`` slices; from ``shift_at`` on, everything takes 20 minutes more."""
    count = slices * SLICE
    random = np.random.default_rng(3)
    km, places = random.uniform(0, 9, count), np.arange(count)
    late = 0 if shift_at is None else 20 * (places >= shift_at * SLICE)
    values: dict[str, Any] = {
        PARTITION: np.zeros(count, np.int32),
        OFFSET: places,
        TIMESTAMP: 1_000 * places,
        "id": [f"d{place}" for place in places],
        "km": km,
        "kind": ["ab"[place % 2] for place in places],
        "minutes": 3 * km + random.normal(0, 1, count) + late,
    }
    return pa.table({**values, **(columns or {})})


def source(table: pa.Table) -> RowSource:
    """Return the rows of one partition, of which every fifth is held out."""

    def rows(dataset: Dataset) -> Prepared:
        start, end = dataset.offsets["0"]
        part = table.filter(pc.and_(pc.greater_equal(table[OFFSET], start), pc.less(table[OFFSET], end)))
        is_held_out = pa.array(part[OFFSET].to_numpy() % 5 == 0)
        return Prepared(
            training=part.filter(pc.invert(is_held_out)), holdout=part.filter(is_held_out), excluded=0, duplicates=0
        )

    return rows


def choose(spec: TrainSpec, table: pa.Table, slices: int, lengths: Sequence[int] = ()) -> WindowChoice:
    """Return the choice among all slices and the last ones."""

    def dataset(first: int, last: int) -> Dataset:
        return of_slice(spec, topic_id="t", offsets={"0": (first * SLICE, last * SLICE)})

    windows = [
        Window(
            name=f"last {length}",
            dataset=dataset(slices - length, slices),
            before=dataset(slices - length - 1, slices - 1),
        )
        for length in lengths
    ]
    whole = Window(name="all", dataset=dataset(0, slices), before=dataset(0, slices - 1) if slices > 1 else None)
    newest = dataset(slices - 1, slices) if slices > 1 else None
    return choose_window([whole, *windows], newest, source(table), spec)


def test_the_longest_window_is_chosen_while_nothing_changes(spec: TrainSpec) -> None:
    found = choose(spec, records(5), 5, [3, 1])
    assert [each.window for each in found.candidates] == ["all", "last 3", "last 1"]
    assert [each.training_rows for each in found.candidates] == [1_280, 960, 320]
    assert found.window.name == "all"
    assert found.candidates[0].ratio is None
    assert all(each.ratio for each in found.candidates[1:])


def test_a_short_window_is_chosen_once_what_came_before_it_is_no_guide(spec: TrainSpec) -> None:
    found = choose(spec, records(6, shift_at=4), 6, [4, 1])
    assert found.window.name == "last 1"
    assert found.candidates[-1].ratio is not None
    assert found.candidates[-1].ratio.high < 1
    assert found.forward_rmse == found.candidates[-1].forward_rmse
    assert found.forward_rmse is not None
    assert found.forward_rmse < 5 < (found.candidates[0].forward_rmse or 0)


def test_the_forward_error_is_that_of_a_model_that_has_not_seen_the_newest_slice(spec: TrainSpec) -> None:
    found = choose(spec, records(4, shift_at=3), 4)
    assert found.forward_rmse == pytest.approx(20, abs=1)
    assert found.forward is not None
    assert found.forward[OFFSET].to_pylist() == list(range(3 * SLICE, 4 * SLICE))
    assert sum(found.forward[HELD_OUT].to_pylist()) == SLICE // 5
    errors = found.forward["minutes"].to_numpy() - found.forward[STAND_IN].to_numpy()
    assert float(np.sqrt(np.mean(errors**2))) == pytest.approx(found.forward_rmse)


def test_an_identity_that_was_trained_on_is_not_among_the_forward_rows(spec: TrainSpec) -> None:
    identities = [f"d{place % (2 * SLICE + 100)}" for place in range(3 * SLICE)]
    found = choose(spec, records(3, columns={"id": identities}), 3)
    assert found.forward is not None
    assert found.forward[OFFSET].to_pylist() == list(range(2 * SLICE, 2 * SLICE + 100))


def test_a_first_slice_is_split_by_the_time_of_its_records(spec: TrainSpec) -> None:
    times = [1_000 * ((place + 50) % SLICE) for place in range(SLICE)]
    found = choose(spec, records(1, columns={TIMESTAMP: times}), 1)
    assert found.forward is not None
    assert sorted(found.forward[TIMESTAMP].to_pylist()) == [1_000 * place for place in range(SLICE * 4 // 5, SLICE)]
    assert [(each.window, each.training_rows) for each in found.candidates] == [("all", 256)]


def test_records_of_one_moment_have_no_forward_error(spec: TrainSpec) -> None:
    found = choose(spec, records(1, columns={TIMESTAMP: [7] * SLICE}), 1)
    assert (found.forward, found.forward_rmse, found.window.name) == (None, None, "all")
    assert found.candidates[0].training_rows == 0


def test_a_window_of_too_few_rows_is_no_candidate_for_the_choice(spec: TrainSpec) -> None:
    found = choose(replace(spec, min_rows=400), records(6, shift_at=4), 6, [1])
    assert found.window.name == "all"
    assert (found.candidates[1].training_rows, found.candidates[1].forward_rmse) == (320, None)


def test_without_rows_there_is_no_forward_error(spec: TrainSpec) -> None:
    found = choose(spec, records(1).slice(0, 0), 1)
    assert (found.forward, found.forward_rmse) == (None, None)
