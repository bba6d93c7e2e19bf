"""Trains models on rows, and predicts rows with them."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from wasmline.job_specs import TrainSpec
from wasmline.training.boosting import TreeParameters, fit, predict
from wasmline.training.dataset_slice import Dataset
from wasmline.training.feature_encoding import FeatureLayout, Vector, layout_of, numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedModel:
    """A model's bytes, with the layout of its inputs and the dataset it was trained on."""

    data: bytes
    layout: FeatureLayout
    dataset: Dataset

    def predict(self, rows: pa.Table) -> Vector:
        """Return the predictions of rows. Raises TrainingError if they lack a feature."""
        return predict(self.data, self.layout.matrix(rows), self.layout.columns)


def tree_parameters(spec: TrainSpec) -> TreeParameters:
    """Return the parameters of a spec's trees."""
    return TreeParameters(trees=spec.trees, depth=spec.depth, learning_rate=spec.learning_rate, seed=spec.seed)


def fit_model(training: pa.Table, dataset: Dataset, spec: TrainSpec) -> FittedModel:
    """Return the model of ``spec`` of training rows, which are those of ``dataset``."""
    layout = layout_of(spec.features, spec.categories)
    data = fit(layout.matrix(training), numbers(training[spec.target]), layout.columns, tree_parameters(spec))
    return FittedModel(data=data, layout=layout, dataset=dataset)
