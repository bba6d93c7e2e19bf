"""Joins predictions with the labels that arrive after them, and measures the live error."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveError:
    """The RMSE of ``rows`` predictions whose label is known, in the target's unit; ``unlabelled`` have none yet."""

    rows: int
    rmse: float
    unlabelled: int


def live_error(predictions: Mapping[str, float], labels: Mapping[str, float]) -> LiveError | None:
    """Return the error of predictions by the labels of the same identities; None if no label is there."""
    joined = [(prediction, labels[name]) for name, prediction in predictions.items() if name in labels]
    if not joined:
        return None
    errors = np.array(joined) @ [1.0, -1.0]
    return LiveError(
        rows=len(joined), rmse=float(np.sqrt(np.mean(errors**2))), unlabelled=len(predictions) - len(joined)
    )
