"""Hypothesis strategies for tests of transforms and handlers: records, batches of records, offset maps.

Their sizes and values are those at which a transform, its host or a broker takes another path. They need the package
``hypothesis``, which Wasmline does not install.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pyarrow as pa
from hypothesis import strategies as st

from wasmline.consumer import ConsumedRecord
from wasmline.record_batches import RECORD_SCHEMA

COPY_SIZES = sorted(
    {size + step for size in (0, 4, 8, 16, 32, 64, 256, 8192) for step in (-1, 0, 1) if size + step >= 0}
)
"""Bytes around each limit of the host's copy, and of varints of one, two and three bytes."""

MAX_TIMESTAMP_MS = 2**41
MAX_OFFSET = 2**62

BASES = st.integers(0, 20) | st.integers(0, MAX_OFFSET)
RUN_LENGTHS = st.lists(st.integers(1, 3) | st.integers(1, 90), min_size=1, max_size=40)


class OffsetMap(NamedTuple):
    """A partition's committed offset, its highest completed offset, and its incomplete offsets in ascending order.

    ``highest_succeeded`` is ``base - 1`` if no offset is complete; incomplete offsets may be above it.
    """

    base: int
    highest_succeeded: int
    incompletes: list[int]


def sizes() -> st.SearchStrategy[int]:
    """Return sizes of a key, a value or a header, in bytes."""
    return st.one_of(st.sampled_from(COPY_SIZES), st.integers(0, 300))


def contents() -> st.SearchStrategy[bytes | None]:
    """Return keys, values and values of headers: null, or one byte repeated."""
    return st.none() | st.builds(lambda size, byte: bytes([byte]) * size, sizes(), st.integers(0, 255))


def header_names() -> st.SearchStrategy[str]:
    """Return names of headers, with characters outside of ASCII."""
    return st.text(max_size=20) | st.builds(lambda size: "h" * size, sizes())


def records() -> st.SearchStrategy[dict[str, Any]]:
    """Return records of one partition, as rows of RECORD_SCHEMA."""
    header = st.fixed_dictionaries({"key": header_names(), "value": contents()})
    return st.fixed_dictionaries(
        {
            "key": contents(),
            "value": contents(),
            "headers": st.none() | st.lists(header, max_size=5),
            "timestamp": st.integers(-1, MAX_TIMESTAMP_MS),
            "partition": st.just(0),
            "offset": st.integers(0, MAX_OFFSET),
        }
    )


@st.composite
def record_batches(draw: st.DrawFn, max_rows: int = 30) -> pa.RecordBatch:
    """Return batches of RECORD_SCHEMA with up to ``max_rows`` rows; most are slices, whose buffers hold more rows."""
    rows = draw(st.lists(records(), max_size=max_rows))
    first = draw(st.integers(0, len(rows)))
    last = draw(st.integers(first, len(rows)))
    return pa.RecordBatch.from_pylist(rows, schema=RECORD_SCHEMA).slice(first, last - first)


@st.composite
def consumed_records(draw: st.DrawFn, topic: str = "in", partition: int = 0) -> ConsumedRecord:
    """Return records as a handler of ParallelConsumer receives them."""
    row = draw(records())
    headers = [(header["key"], header["value"]) for header in row["headers"] or []]
    return ConsumedRecord(topic, partition, row["offset"], row["key"], row["value"], headers, row["timestamp"], 1)


@st.composite
def offset_maps(
    draw: st.DrawFn,
    bases: st.SearchStrategy[int] = BASES,
    runs: st.SearchStrategy[list[int]] = RUN_LENGTHS,
) -> OffsetMap:
    """Return offset maps, whose ``runs`` are the lengths of incomplete and complete stretches by turns."""
    base = offset = draw(bases)
    incompletes: list[int] = []
    for place, run in enumerate(draw(runs)):
        if place % 2 == 0:
            incompletes += range(offset, offset + run)
        offset += run
    highest = draw(st.integers(base - 1, offset))
    if highest in incompletes:
        incompletes.remove(highest)
    return OffsetMap(base, highest, incompletes)
