"""Sizes of records as brokers compare them with ``max.message.bytes``: each record in a batch of its own.

The format is that of record batches, version 2: https://kafka.apache.org/documentation/#recordbatch
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from wasmline import provenance
from wasmline.kafka.producer import Headers

BATCH_HEADER_BYTES = 61

RECORD_OVERHEAD_BYTES = 40
"""Maximum bytes of a record in addition to its key, its value and its headers."""

HEADER_OVERHEAD_BYTES = 10
"""Maximum bytes of a header in addition to its key and its value."""

MAX_ADDED_BYTES = 2 * provenance.MAX_BYTES
"""Maximum bytes of the provenance header and of the overheads of a record and its batch."""

CODECS = ("gzip", "snappy", "lz4", "zstd")
"""Compression codecs whose names Kafka and Arrow share."""


def batch_bytes(key: bytes | None, value: bytes | None, headers: Headers, compression: str = "none") -> int:
    """Return the size of a batch with only this record; if compressed, it may differ by some bytes."""
    body = [b"\0\0\0", _varint(-1 if key is None else len(key)), key or b""]
    body += [_varint(-1 if value is None else len(value)), value or b"", _varint(len(headers))]
    for name, text in headers:
        encoded = name.encode()
        body += [_varint(len(encoded)), encoded, _varint(-1 if text is None else len(text)), text or b""]
    size = sum(map(len, body))
    size += len(_varint(size))
    if compression in CODECS:
        size = min(size, len(pa.compress(b"".join(body), codec=compression)))
    return BATCH_HEADER_BYTES + size


def spare_bytes(outputs: pa.RecordBatch, limits: Sequence[int | None]) -> NDArray[np.int64]:
    """Return the bytes by which each row of OUTPUT_SCHEMA may grow, uncompressed, without exceeding its topic's limit.

    It is a lower bound: a record with -1 may fit. ``limits`` is by output number.
    """
    most = np.array([np.iinfo(np.int64).max if limit is None else limit for limit in limits])
    spare: NDArray[np.int64] = most[outputs.column("output").to_numpy()] - _upper_bounds(outputs)
    return spare


def fitting_provenance(values: pa.Array, outputs: pa.RecordBatch, limits: Sequence[int | None]) -> pa.Array:
    """Return values of the provenance header for rows of OUTPUT_SCHEMA; null where a row might be too large with it.

    A row is too large above its topic's limit, uncompressed. ``limits`` is by output number.
    """
    least = min((limit for limit in limits if limit is not None), default=None)
    if least is None or _most_bytes(outputs) + MAX_ADDED_BYTES <= least:
        return values
    added = pc.binary_length(values).to_numpy() + len(provenance.NAME) + HEADER_OVERHEAD_BYTES
    return pc.if_else(pa.array(added <= spare_bytes(outputs, limits)), values, pa.scalar(None, pa.binary()))


def oversize_outputs(
    outputs: pa.RecordBatch, spare: NDArray[np.int64], limits: Sequence[int | None], compression: str
) -> dict[int, int]:
    """Return the size of each row above its topic's limit; ``spare`` is that of ``spare_bytes``."""
    found = {}
    for row in np.flatnonzero(spare < 0).tolist():
        [record] = outputs.slice(row, 1).to_pylist()
        headers = [(header["key"], header["value"]) for header in record["headers"] or []]
        size = batch_bytes(record["key"], record["value"], headers, compression)
        limit = limits[record["output"]]
        if limit is not None and size > limit:
            found[row] = size
    return found


def _upper_bounds(outputs: pa.RecordBatch) -> NDArray[np.int64]:
    """Return an upper bound of the uncompressed batch size of each row."""
    headers = outputs.column("headers")
    flat = pc.list_flatten(headers)
    each = _lengths(pc.struct_field(flat, 0)) + _lengths(pc.struct_field(flat, 1)) + HEADER_OVERHEAD_BYTES
    parents = pc.list_parent_indices(headers).to_numpy()
    of_headers = np.bincount(parents, each, minlength=outputs.num_rows).astype(np.int64)
    own = _lengths(outputs.column("key")) + _lengths(outputs.column("value"))
    return own + of_headers + BATCH_HEADER_BYTES + RECORD_OVERHEAD_BYTES


def _most_bytes(outputs: pa.RecordBatch) -> int:
    """Return a quick upper bound of the key, the value and the headers of any row."""
    longest = (pc.max(pc.binary_length(outputs.column(name))).as_py() or 0 for name in ("key", "value"))
    # The offsets of a header's key and value, twice, are more than its overhead.
    headers: int = 2 * outputs.column("headers").get_total_buffer_size()
    return sum(longest) + headers


def _lengths(column: pa.Array) -> NDArray[np.int64]:
    lengths: NDArray[np.int64] = pc.fill_null(pc.binary_length(column), 0).to_numpy(zero_copy_only=False)
    return lengths.astype(np.int64)


def _varint(number: int) -> bytes:
    """Return a number as a zigzag varint."""
    left = (number << 1) ^ (number >> 63)
    encoded = bytearray()
    while left > 0x7F:
        encoded.append(0x80 | (left & 0x7F))
        left >>= 7
    encoded.append(left)
    return bytes(encoded)


Limits = Mapping[str, int]
"""``max.message.bytes`` by topic; an absent topic has no limit."""
