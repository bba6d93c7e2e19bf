"""Kafka records as Arrow columns, and the coordinates that name one record."""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa


class TopicPartition(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int


def next_offset(offset: int) -> int:
    """Return the offset to commit once ``offset`` is processed: committed offsets name the next record to read."""
    return offset + 1


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
"""What a transform wrote: ``row`` is the input row it came from, ``output`` an index into the output topics."""
