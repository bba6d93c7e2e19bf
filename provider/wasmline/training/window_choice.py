"""Chooses the window that a model is trained on, by the forward errors of stand-ins.

A stand-in is a model that is trained on the same kind of window as it was before the newest slice. Its error on that
slice is the forward error: what the window would have cost there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wasmline.job_specs import TrainSpec
from wasmline.training.dataset_slice import Dataset
from wasmline.training.evaluate import rmse
from wasmline.training.feature_encoding import Vector, numbers
from wasmline.training.fitted_model import fit_model
from wasmline.training.held_out_rows import STAND_IN
from wasmline.training.paired_bootstrap import Interval, ratio_interval
from wasmline.training.prepare import HELD_OUT, OFFSET, PARTITION, TIMESTAMP, Prepared

RowSource = Callable[[Dataset], Prepared]
"""Returns the rows of a dataset, with the coordinates and timestamps of their records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A dataset to train on. ``before`` is the window of that kind before the newest slice, None if there is none."""

    name: str
    dataset: Dataset
    before: Dataset | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A window with its forward error, None if its stand-in had too few training rows to measure it.

    ``ratio`` is the interval of the forward RMSE divided by that of the best longer window; None for the longest.
    """

    window: str
    training_rows: int
    forward_rmse: float | None = None
    ratio: Interval | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowChoice:
    """The chosen window, all candidates, and the forward rows with the stand-in's predictions; None: not measured."""

    window: Window
    candidates: tuple[Candidate, ...]
    forward: pa.Table | None

    @property
    def forward_rmse(self) -> float | None:
        """The forward error of the chosen window."""
        return next((each.forward_rmse for each in self.candidates if each.window == self.window.name), None)


def choose_window(windows: Sequence[Window], newest: Dataset | None, rows: RowSource, spec: TrainSpec) -> WindowChoice:
    """Return the choice among ``windows``, which are in order from the longest to the shortest.

    A shorter window is chosen only if its forward error is lower beyond noise. ``newest`` is the newest slice; without
    one, or without slices before it, the longest window is split by the time of its records: the last
    ``holdout_share`` of them are the forward rows, and there is one candidate.
    """
    forward, training = _divide(windows, newest, rows, spec)
    truth = numbers(forward[spec.target])
    chosen, best = windows[0], None
    candidates: list[Candidate] = []
    for window, its in training:
        if forward.num_rows == 0 or its.num_rows < spec.min_rows:
            candidates.append(Candidate(window=window.name, training_rows=its.num_rows))
            continue
        predictions = fit_model(its, window.before or window.dataset, spec).predict(forward)
        ratio = None if best is None else _ratio(truth, predictions, best, spec)
        if best is None or (ratio and ratio.high < 1):
            chosen, best = window, predictions
        candidates.append(
            Candidate(
                window=window.name,
                training_rows=its.num_rows,
                forward_rmse=rmse(truth, predictions),
                ratio=ratio,
            )
        )
    return WindowChoice(
        window=chosen,
        candidates=tuple(candidates),
        forward=None if best is None else forward.append_column(STAND_IN, pa.array(best)),
    )


def _divide(
    windows: Sequence[Window], newest: Dataset | None, rows: RowSource, spec: TrainSpec
) -> tuple[pa.Table, Iterator[tuple[Window, pa.Table]]]:
    """Return the forward rows, and each window with the rows that its stand-in is trained on."""
    longest = windows[0]
    if newest is None or longest.before is None:
        split = rows(longest.dataset)
        table = _all_rows(split)
        times = numbers(table[TIMESTAMP])
        start = np.sort(times)[int(len(times) * (1 - spec.holdout_share))] if len(times) else 0
        before = split.training.filter(pc.less(split.training[TIMESTAMP], int(start)))
        return table.filter(pc.greater_equal(table[TIMESTAMP], int(start))), iter([(longest, before)])
    known = _all_rows(rows(longest.before))[spec.identity].combine_chunks()
    table = _all_rows(rows(newest))
    forward = table.filter(pc.invert(pc.is_in(table[spec.identity], value_set=known)))
    return forward, ((each, rows(each.before).training) for each in windows if each.before is not None)


def _all_rows(split: Prepared) -> pa.Table:
    """Return training and held-out rows in the order of their records, with a column that tells them apart."""
    parts = [
        part.append_column(HELD_OUT, pa.repeat(pa.scalar(is_held_out), part.num_rows))
        for part, is_held_out in ((split.training, False), (split.holdout, True))
    ]
    return pa.concat_tables(parts).sort_by([(PARTITION, "ascending"), (OFFSET, "ascending")])


def _ratio(truth: Vector, shorter: Vector, longer: Vector, spec: TrainSpec) -> Interval:
    errors = [(truth - predictions) ** 2 for predictions in (shorter, longer)]
    return ratio_interval(*errors, confidence=spec.confidence, seed=spec.seed)
