"""Limits of the size of an offset map."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetMapLimits:
    """Sizes of a map's text in characters, and when it is measured. A broker that accepts less shrinks the sizes."""

    max_metadata_length: int = 4096
    """Characters that a broker accepts (its ``offset.metadata.max.bytes``). A longer text must not be committed."""

    back_pressure_length: int = 3072
    """Characters above which a partition should begin no new records until its map has shrunk."""

    measured_calls: int = 512
    """Calls between two measurements of a map that may be large."""

    long_range_offsets: int = 18_000
    """A map of fewer offsets is below ``back_pressure_length``, however scattered: their bitmap is."""


DEFAULT_LIMITS = OffsetMapLimits()
"""The limits of every consumer, except in tests."""
