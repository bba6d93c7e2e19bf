"""Metrics of predictions, and bounded samples of them for plots."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from wasmline.digests import digest_of
from wasmline.documents import encode
from wasmline.errors import NotEnoughData
from wasmline.training.feature_encoding import Vector


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """Errors on a holdout, in the target's unit. ``holdout`` is a digest of the held-out identities.

    ``mean_rmse`` is the error of predicting the mean of the training rows, ``linear_rmse`` that of a linear model of
    them; metrics are comparable if their ``holdout`` is the same. ``forward_rmse`` is the error on ``forward_rows`` of
    the newest records, by a model that was trained in the same way on what came before them. None: not measured.
    """

    rows: int
    rmse: float
    mae: float
    r2: float
    mean_rmse: float
    holdout: str
    linear_rmse: float | None = None
    forward_rmse: float | None = None
    forward_rows: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Histogram:
    """``counts[i]`` values lie in ``[edges[i], edges[i + 1])``; the last bin includes its end."""

    edges: tuple[float, ...]
    counts: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Baselines:
    """RMSEs on a holdout: of the mean of the training rows, and of a linear model of them, None if not measured."""

    mean_rmse: float
    linear_rmse: float | None = None


def rmse(truth: Vector, predictions: Vector) -> float:
    """Return the root of the mean squared error."""
    return float(np.sqrt(np.mean((truth - predictions) ** 2)))


def measure(truth: Vector, predictions: Vector, *, baselines: Baselines, holdout: str) -> Metrics:
    """Return the errors of ``predictions`` against ``truth``. Raises NotEnoughData for fewer than two rows."""
    if len(truth) < 2:
        raise NotEnoughData(f"only {len(truth)} rows are held out: nothing can be measured on them", rows=len(truth))
    residuals = truth - predictions
    variance = float(np.var(truth))
    return Metrics(
        rows=len(truth),
        rmse=rmse(truth, predictions),
        mae=float(np.mean(np.abs(residuals))),
        r2=1 - float(np.mean(residuals**2)) / variance if variance else 0.0,
        mean_rmse=baselines.mean_rmse,
        holdout=holdout,
        linear_rmse=baselines.linear_rmse,
    )


def holdout_digest(identities: pa.ChunkedArray) -> str:
    """Return the digest of held-out identities, which tells metrics on different rows apart."""
    return digest_of(encode(sorted(str(identity) for identity in identities.to_pylist())))


def sample(truth: Vector, predictions: Vector, *, size: int, seed: int) -> list[tuple[float, float]]:
    """Return at most ``size`` pairs of truth and prediction, drawn by ``seed``, in the order of the rows."""
    chosen = np.arange(len(truth))
    if len(truth) > size:
        chosen = np.sort(np.random.default_rng(seed).choice(len(truth), size, replace=False))
    return [(float(truth[row]), round(float(predictions[row]), 3)) for row in chosen]


def histogram(residuals: Vector, *, bins: int = 60) -> Histogram:
    """Return all residuals as a histogram."""
    counts, edges = np.histogram(residuals, bins=bins)
    return Histogram(edges=tuple(round(float(edge), 4) for edge in edges), counts=tuple(int(count) for count in counts))
