"""Kafka records as Arrow record batches: the schemas of a transform's input and output."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

HEADERS = pa.list_(pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())]))
"""Record headers in order; keys may repeat and values may be null."""

TIMESTAMP = pa.timestamp("ms", tz="UTC")

RECORD_SCHEMA = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", HEADERS),
        pa.field("timestamp", TIMESTAMP, nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
    ]
)
"""A batch of input records of one topic. A null ``headers`` is a record without headers."""

OUTPUT_SCHEMA = pa.schema(
    [
        pa.field("row", pa.int32(), nullable=False),
        pa.field("output", pa.int32(), nullable=False),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", HEADERS),
    ]
)
"""Output records of a transform: ``row`` is the input row it came from, ``output`` an index into the output topics."""

TIMED_OUTPUT_SCHEMA = pa.schema([*OUTPUT_SCHEMA, pa.field("timestamp", pa.int64(), nullable=False)])
"""OUTPUT_SCHEMA with the timestamp to write, in Unix milliseconds."""


def header_pairs(column: pa.ListArray) -> list[Sequence[tuple[str, bytes | None]]]:
    """Return a column of HEADERS as Python values; a null is a record without headers."""
    pairs = column.flatten()
    if not len(pairs):
        return [()] * len(column)
    flat = list(zip(pairs.field("key").to_pylist(), pairs.field("value").to_pylist(), strict=True))
    ends = list(accumulate(column.value_lengths().fill_null(0).to_pylist()))
    return [flat[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def pair_column(pairs: Sequence[tuple[str, bytes | None]]) -> pa.StructArray:
    """Return headers as the values of a column of HEADERS; Arrow takes several times as long to make it of tuples."""
    columns = [pa.array([pair[0] for pair in pairs], pa.string()), pa.array([pair[1] for pair in pairs], pa.binary())]
    return pa.StructArray.from_arrays(columns, fields=list(HEADERS.value_type))


def merged_headers(rows: int, parts: Sequence[tuple[NDArray[np.int64], pa.StructArray]]) -> pa.ListArray:
    """Return a column of HEADERS with so many rows, none of them null.

    ``parts``: values of such a column, each with the row that has it; within a row they are in the order of the parts.
    """
    owners = np.concatenate([each for each, _ in parts])
    pairs = pa.concat_arrays([each for _, each in parts])
    if (owners[1:] < owners[:-1]).any():
        pairs = pairs.take(pa.array(np.argsort(owners, kind="stable")))
    ends = np.cumsum(np.bincount(owners, minlength=rows))
    return pa.ListArray.from_arrays(pa.array(np.concatenate([[0], ends]), pa.int32()), pairs, type=HEADERS)


def record_batch(
    *,
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    headers: Sequence[Sequence[tuple[str, bytes | None]]],
    timestamps: Sequence[int],
    partitions: Sequence[int],
    offsets: Sequence[int],
) -> pa.RecordBatch:
    """Return columns of Python values as a batch of RECORD_SCHEMA; timestamps are in Unix milliseconds."""
    any_headers = any(headers)
    return pa.RecordBatch.from_arrays(
        [
            pa.array(keys, pa.binary()),
            pa.array(values, pa.binary()),
            pa.array([each or None for each in headers], HEADERS) if any_headers else pa.nulls(len(headers), HEADERS),
            pa.array(timestamps, pa.int64()).cast(TIMESTAMP),
            pa.array(partitions, pa.int32()),
            pa.array(offsets, pa.int64()),
        ],
        schema=RECORD_SCHEMA,
    )
