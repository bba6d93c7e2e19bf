"""Decodes records of JSON objects to rows, leniently: for statistics of a sample, not for training."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
import pyarrow as pa

from wasmline.job_specs import FieldType

TYPES: dict[FieldType, pa.DataType] = {"double": pa.float64(), "bigint": pa.float64(), "string": pa.string()}
"""Numbers are rounded to double precision, as models see them."""


def json_objects(values: Iterable[bytes | None]) -> Iterator[dict[str, Any]]:
    """Yield the values that are JSON objects."""
    for value in values:
        try:
            document = msgspec.json.decode(value or b"null")
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue
        if isinstance(document, dict):
            yield document


def rows_from_json(values: Iterable[bytes | None], fields: Mapping[str, FieldType]) -> pa.Table:
    """Return the members of ``fields`` of each JSON object; null where one is missing or of another type."""
    objects = list(json_objects(values))
    read = {"double": number, "bigint": number, "string": _text}
    return pa.table(
        {name: pa.array([read[kind](each.get(name)) for each in objects], TYPES[kind]) for name, kind in fields.items()}
    )


def number(value: Any) -> float | None:
    """Return a finite number in double precision, None for any other value."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
