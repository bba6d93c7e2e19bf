"""Reads the newest records of topics for statistics, within bounds of records and bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from wasmline import provenance
from wasmline.offset_ranges import OffsetRanges, ranges_of
from wasmline.training.json_rows import json_objects, number

if TYPE_CHECKING:
    from wasmline.kafka import KafkaConfig

MAX_BYTES = 64 * 1024 * 1024
"""Maximum bytes of values that are read of one topic at once."""


def newest_values(
    config: KafkaConfig, topic: str, offsets: OffsetRanges, count: int, *, model: str | None = None
) -> Iterator[bytes | None]:
    """Yield the values of about ``count`` records, the newest of each partition's last range, up to ``MAX_BYTES``.

    With ``model``, those are left out that say they are predictions of another one. Nothing is held but a batch of the
    client. Raises the errors of ``read_range``.
    """
    from wasmline.kafka import read_range

    last = {partition: (start, end) for partition, start, end in ranges_of(offsets) if start < end}
    each = -(-count // max(len(last), 1))
    size = 0
    for message in read_range(config, topic, {p: (max(start, end - each), end) for p, (start, end) in last.items()}):
        value = message.value()
        if model is None or _model_of(message.headers) in (None, model):
            yield value
        size += len(value or b"")
        if size >= MAX_BYTES:
            return


def first_numbers(values: Iterable[bytes | None], identity: str, name: str) -> Mapping[str, float]:
    """Return, of each identity, the first number with this name."""
    found: dict[str, float] = {}
    for each in json_objects(values, (identity, name)):
        value, key = number(each.get(name)), each.get(identity)
        if value is not None and isinstance(key, str | int) and not isinstance(key, bool):
            found.setdefault(str(key), value)
    return found


def _model_of(read_headers: Callable[[], Any]) -> str | None:
    """Return the model that a record is a prediction of, None if it does not say so."""
    try:
        headers = dict(read_headers() or [])
    except (SystemError, UnicodeDecodeError):  # a name that is not UTF-8
        return None
    value = headers.get(provenance.NAME)
    origin = provenance.parse(value if isinstance(value, bytes) else None)
    return str(origin.model) if origin and origin.model else None
