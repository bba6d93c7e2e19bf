"""Trains the challenger of a run from the rows of its windows, and measures it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from wasmline.errors import NotEnoughData
from wasmline.job_specs import TrainSpec
from wasmline.training.champion_comparison import MeasuredModel
from wasmline.training.dataset_slice import Dataset
from wasmline.training.evaluate import Baselines, holdout_digest, measure, rmse
from wasmline.training.feature_encoding import Vector, numbers
from wasmline.training.fitted_model import FittedModel, fit_model
from wasmline.training.linear_baseline import LinearBaseline
from wasmline.training.prepare import Prepared
from wasmline.training.window_choice import Candidate, RowSource, Window, choose_window


@dataclass(frozen=True, slots=True, kw_only=True)
class Challenger:
    """The model of the chosen window, its rows, its predictions of the held-out ones, and all candidates."""

    window: str
    measured: MeasuredModel
    prepared: Prepared
    predictions: Vector
    candidates: tuple[Candidate, ...]


def train_challenger(windows: Sequence[Window], newest: Dataset | None, rows: RowSource, spec: TrainSpec) -> Challenger:
    """Return the challenger: see ``choose_window``. Raises NotEnoughData for fewer than ``min_rows`` training rows."""
    choice = choose_window(windows, newest, rows, spec)
    dataset = choice.window.dataset
    prepared = rows(dataset)
    if prepared.training.num_rows < spec.min_rows:
        raise NotEnoughData(
            f"{spec.topic} gives {prepared.training.num_rows} usable training rows ({prepared.excluded} records do not "
            f"meet the condition {spec.where!r} or transform_versions {spec.transform_versions!r}, or are malformed), "
            f"but min_rows is {spec.min_rows}: train on a longer slice",
            rows=prepared.training.num_rows,
        )
    model = fit_model(prepared.training, dataset, spec)
    predictions = model.predict(prepared.holdout)
    metrics = measure(
        numbers(prepared.holdout[spec.target]),
        predictions,
        baselines=_baselines(model, prepared),
        holdout=holdout_digest(prepared.holdout[spec.identity]),
    )
    if choice.forward is not None:
        metrics = replace(metrics, forward_rmse=choice.forward_rmse, forward_rows=choice.forward.num_rows)
    return Challenger(
        window=choice.window.name,
        measured=MeasuredModel(model=model, metrics=metrics, held_out=prepared.holdout, forward=choice.forward),
        prepared=prepared,
        predictions=predictions,
        candidates=choice.candidates,
    )


def _baselines(model: FittedModel, prepared: Prepared) -> Baselines:
    """Return the errors of the mean of the training rows and of a linear model of them on the held-out rows."""
    target = model.dataset.target
    training, truth = numbers(prepared.training[target]), numbers(prepared.holdout[target])
    linear = LinearBaseline(model.layout.matrix(prepared.training), training)
    linear_rmse = rmse(truth, linear.predict(model.layout.matrix(prepared.holdout)))
    return Baselines(
        mean_rmse=rmse(truth, np.full_like(truth, np.mean(training))),
        linear_rmse=float(f"{linear_rmse:.9g}"),  # the last digits depend on the threads of the linear algebra
    )
