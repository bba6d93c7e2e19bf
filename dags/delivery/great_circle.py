"""Great-circle distance, computed independently of the guest."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

EARTH_RADIUS_KM = 6371.0088
"""The mean radius R1 of the GRS 80 ellipsoid, as the IUGG recommends for a sphere."""


def haversine_km(
    latitude: npt.ArrayLike, longitude: npt.ArrayLike, to_latitude: npt.ArrayLike, to_longitude: npt.ArrayLike
) -> npt.NDArray[Any]:
    """Return kilometres between points given in degrees, elementwise; precise at short distances too."""
    start, end = np.radians(latitude), np.radians(to_latitude)
    across = np.radians(to_longitude) - np.radians(longitude)
    chord = np.sin((end - start) / 2) ** 2 + np.cos(start) * np.cos(end) * np.sin(across / 2) ** 2
    return np.asarray(2 * EARTH_RADIUS_KM * np.arcsin(np.sqrt(np.clip(chord, 0.0, 1.0))))
