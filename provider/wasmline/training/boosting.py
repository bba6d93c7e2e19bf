"""Gradient-boosted trees by XGBoost, imported only here. The same rows and parameters give the same bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from wasmline.errors import TrainingError
from wasmline.training.feature_encoding import Matrix, Vector


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeParameters:
    """Number of trees, their depth, and the learning rate."""

    trees: int
    depth: int
    learning_rate: float
    seed: int


def fit(matrix: Matrix, target: Vector, columns: Sequence[str], parameters: TreeParameters) -> bytes:
    """Return a regression on squared error as XGBoost's model JSON.

    One thread: sums of gradients are then added in one order, and the bytes do not depend on the machine's cores.
    """
    import xgboost

    settings: dict[str, Any] = {
        "objective": "reg:squarederror",
        "tree_method": "hist",
        "max_depth": parameters.depth,
        "learning_rate": parameters.learning_rate,
        "seed": parameters.seed,
        "nthread": 1,
    }
    try:
        rows = xgboost.DMatrix(matrix, label=target, feature_names=list(columns), nthread=1)
        booster = xgboost.train(settings, rows, num_boost_round=parameters.trees)
    except (xgboost.core.XGBoostError, ValueError) as error:
        raise TrainingError(
            f"XGBoost rejected {len(target)} rows of {', '.join(columns)}: {_first_line(error)}"
        ) from error
    return bytes(booster.save_raw(raw_format="json"))


def predict(model: bytes, matrix: Matrix, columns: Sequence[str]) -> Vector:
    """Return the predictions of a model of ``fit``. Raises TrainingError if the bytes are not a model."""
    return predictor(model, columns)(matrix)


def predictor(model: bytes, columns: Sequence[str]) -> Callable[[Matrix], Vector]:
    """Return ``predict`` of a model that is loaded once. Both raise TrainingError."""
    import xgboost

    def predictions(matrix: Matrix) -> Vector:
        try:
            rows = xgboost.DMatrix(matrix, feature_names=list(columns), nthread=1)
            return np.asarray(booster.predict(rows), dtype=np.float64)
        except (xgboost.core.XGBoostError, ValueError) as error:
            raise _unusable(columns, error) from error

    try:
        booster = xgboost.Booster({"nthread": 1}, model_file=bytearray(model))
    except (xgboost.core.XGBoostError, ValueError) as error:
        raise _unusable(columns, error) from error
    return predictions


def _unusable(columns: Sequence[str], error: Exception) -> TrainingError:
    return TrainingError(f"the stored model cannot predict from {', '.join(columns)}: {_first_line(error)}")


def _first_line(error: Exception) -> str:
    """Return XGBoost's message without its native stack trace."""
    return next(iter(str(error).splitlines()), "")


def library() -> dict[str, str]:
    """Return the version of the library that determines a model's bytes."""
    import xgboost

    return {"xgboost": xgboost.__version__}
