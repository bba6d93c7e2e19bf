"""Correlations of delivery times, of all rows and without contract violations."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from delivery.contract import Delivery, Violation, parse
from delivery.great_circle import haversine_km
from delivery.training_spec import FEATURES, VEHICLES
from wasmline.training import Correlation, correlate

Point = tuple[float, float]
"""Kilometres and minutes of one delivery."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Signals:
    """Correlations with the delivery time, raw and clean, and a bounded sample of points for a plot.

    ``broken`` are deliveries with a negative coordinate; ``kept`` all others.
    """

    rows: int
    raw: tuple[Correlation, ...]
    clean: tuple[Correlation, ...]
    kept: list[Point]
    broken: list[Point]


def signals(values: Iterable[bytes | None], *, points: int = 2_000, seed: int = 7) -> Signals:
    """Return the signals of raw records; lines that are no delivery, or of one under way, are skipped."""
    parsed = [each for each in map(parse, values) if not isinstance(each, Violation)]
    deliveries = [each for each in parsed if each.time_min is not None]
    table = _table(deliveries)
    kept = np.array([min(*one.restaurant, *one.destination) >= 0 for one in deliveries], dtype=bool)
    random = np.random.default_rng(seed)
    pairs = np.stack([table["distance_km"].to_numpy(), table["time_min"].to_numpy()], axis=1)
    categories = {"vehicle": VEHICLES}
    return Signals(
        rows=len(deliveries),
        raw=correlate(table, FEATURES, "time_min", categories),
        clean=correlate(table.filter(pa.array(kept)), FEATURES, "time_min", categories),
        kept=_drawn(random, pairs[kept], points),
        broken=_drawn(random, pairs[~kept], points // 4),
    )


def _table(deliveries: list[Delivery]) -> pa.Table:
    points = np.array([(*one.restaurant, *one.destination) for one in deliveries], dtype=float).reshape(-1, 4)
    return pa.table(
        {
            "distance_km": haversine_km(*points.T),
            "age": pa.array([one.age for one in deliveries], pa.float64()),
            "rating": pa.array([one.rating for one in deliveries], pa.float64()),
            "vehicle": pa.array([one.vehicle for one in deliveries], pa.string()),
            "time_min": pa.array([one.time_min for one in deliveries], pa.float64()),
        }
    )


def _drawn(
    random: np.random.Generator, pairs: np.ndarray[tuple[int, int], np.dtype[np.float64]], most: int
) -> list[Point]:
    chosen = np.sort(random.permutation(len(pairs))[:most])
    return [(round(float(distance), 3), float(minutes)) for distance, minutes in pairs[chosen]]
