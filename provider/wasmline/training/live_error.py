"""Joins predictions with the labels that arrive after them, and measures the live error."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

CLIPPED_SHARE = 0.01
"""The share of the largest errors that count as the next smaller one, so that few wrong labels do not dominate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveError:
    """The RMSE of ``rows`` predictions whose label is known, in the target's unit; ``unlabelled`` have none yet.

    The largest hundredth of the errors is clipped.
    """

    rows: int
    rmse: float
    unlabelled: int


def live_error(predictions: Mapping[str, float], labels: Mapping[str, float]) -> LiveError | None:
    """Return the error of predictions by the labels of the same identities; None if no label is there."""
    joined = [(prediction, labels[name]) for name, prediction in predictions.items() if name in labels]
    if not joined:
        return None
    squares = (np.array(joined) @ [1.0, -1.0]) ** 2
    clipped = np.minimum(squares, np.quantile(squares, 1 - CLIPPED_SHARE, method="higher"))
    return LiveError(rows=len(joined), rmse=float(np.sqrt(clipped.mean())), unlabelled=len(predictions) - len(joined))
