"""Decodes records of JSON objects to rows, leniently: for statistics of a sample, not for training."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec
import pyarrow as pa

from wasmline.job_specs import FieldType
from wasmline.training.prepare import MAX_NUMBER

TYPES: dict[FieldType, pa.DataType] = {"double": pa.float64(), "bigint": pa.float64(), "string": pa.string()}
"""Numbers are rounded to double precision."""

MAX_MEMBER_BYTES = 4_096
"""Maximum size of a member as JSON; a larger one is missing."""


def json_objects(values: Iterable[bytes | None], names: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Yield the members ``names`` of each value that is a JSON object. Other members are not decoded."""
    fields = {f"member{place}": name for place, name in enumerate(names)}
    row = msgspec.defstruct("Row", [(each, msgspec.Raw, msgspec.Raw()) for each in fields], rename=fields)
    decoder = msgspec.json.Decoder(row)
    for value in values:
        try:
            found = decoder.decode(value or b"")
            members = {name: getattr(found, each) for each, name in fields.items()}
            decoded = {
                name: msgspec.json.decode(raw) for name, raw in members.items() if 0 < len(raw) <= MAX_MEMBER_BYTES
            }
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue
        yield decoded


def rows_from_json(values: Iterable[bytes | None], fields: Mapping[str, FieldType]) -> pa.Table:
    """Return the members of ``fields`` of each JSON object; null where one is missing or of another type."""
    read: dict[FieldType, Callable[[Any], Any]] = {"double": number, "bigint": number, "string": _text}
    columns: dict[str, list[Any]] = {name: [] for name in fields}
    for each in json_objects(values, fields):
        for name, kind in fields.items():
            columns[name].append(read[kind](each.get(name)))
    return pa.table({name: pa.array(columns[name], TYPES[kind]) for name, kind in fields.items()})


def number(value: Any) -> float | None:
    """Return a number in double precision, None for any other value and for one beyond ``MAX_NUMBER``."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) <= MAX_NUMBER else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
