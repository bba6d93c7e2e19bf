"""What is measured: four transforms, each also as a Python function of one record and, where it exists, in pyarrow."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wasmline.record_batches import HEADERS, RECORD_SCHEMA

FOLDER = Path(__file__).parent / "transforms"
RADIUS_KM = 6371.0088


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One transform, its data and its rivals. ``row`` returns a record's new value, or None to drop the record."""

    name: str
    value: Callable[[np.random.Generator, int, int], bytes]
    row: Callable[[bytes], bytes | None]
    columns: Callable[[pa.RecordBatch], pa.RecordBatch] | None

    @property
    def sources(self) -> Path:
        """Its project, for `wasmline build` and for the native compiler."""
        return FOLDER / self.name

    def batch(self, records: int, size: int, headers: int) -> pa.RecordBatch:
        """Return a batch in RECORD_SCHEMA of values of ``size`` bytes."""
        random = np.random.default_rng(7)
        values = [self.value(random, index, size) for index in range(records)]
        pairs = [(f"header-{number}", b"value-%d" % number) for number in range(headers)]
        return pa.RecordBatch.from_arrays(
            [
                pa.array([b"key-%d" % (index % 997) for index in range(records)], pa.binary()),
                pa.array(values, pa.binary()),
                pa.array([pairs] * records, HEADERS) if headers else pa.nulls(records, HEADERS),
                pa.array(np.full(records, 1_700_000_000_000), pa.timestamp("ms", tz="UTC")),
                pa.array(np.zeros(records, np.int32)),
                pa.array(np.arange(records)),
            ],
            schema=RECORD_SCHEMA,
        )

    def per_row(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Run the Python function over the rows, as a user would write it without Wasm."""
        values = [self.row(value) for value in batch.column("value").to_pylist()]
        kept = [index for index, value in enumerate(values) if value is not None]
        out = batch if len(kept) == len(values) else batch.take(pa.array(kept))
        return out.set_column(1, "value", pa.array([values[index] for index in kept], pa.binary()))


def _padded(random: np.random.Generator, index: int, size: int) -> bytes:
    return (b"k" if index % 2 else b"d") + random.bytes(size - 1)


def _binary_points(random: np.random.Generator, index: int, size: int) -> bytes:
    points = random.uniform((-60, -170, -60, -170), (60, 170, 60, 170))
    return struct.pack("<4d", *points) + bytes(size - 32)


def _json_points(random: np.random.Generator, index: int, size: int) -> bytes:
    names = ("lat1", "lon1", "lat2", "lon2")
    points = {name: round(float(value), 4) for name, value in zip(names, random.uniform(0, 60, 4), strict=True)}
    text = json.dumps({"id": f"d{index:06}", **points, "note": ""}, separators=(",", ":"))
    return (text[:-2] + "x" * (size - len(text)) + '"}').encode()


def great_circle_km(latitude1: float, longitude1: float, latitude2: float, longitude2: float) -> float:
    """Return kilometres between two points in degrees, by the haversine formula."""
    a = math.sin(math.radians(latitude2 - latitude1) / 2)
    b = math.sin(math.radians(longitude2 - longitude1) / 2)
    h = a * a + math.cos(math.radians(latitude1)) * math.cos(math.radians(latitude2)) * b * b
    return 2 * RADIUS_KM * math.asin(math.sqrt(min(1.0, h)))


class _Points(msgspec.Struct):
    id: str
    lat1: float
    lon1: float
    lat2: float
    lon2: float


_decode = msgspec.json.Decoder(_Points).decode
_encode = msgspec.json.Encoder().encode


def _json_row(value: bytes) -> bytes:
    read = _decode(value)
    km = great_circle_km(read.lat1, read.lon1, read.lat2, read.lon2)
    return _encode({"id": read.id, "distance_km": km})


def _binary_columns(batch: pa.RecordBatch) -> pa.RecordBatch:
    offsets, data = batch.column("value").buffers()[1:]
    size = int(np.frombuffer(offsets, np.int32, 2)[1])
    raw = np.frombuffer(data, np.uint8).reshape(-1, size)[:, :32]
    points = np.ascontiguousarray(raw).view("<f8")
    latitude1, longitude1, latitude2, longitude2 = (
        pc.multiply(pa.array(np.ascontiguousarray(points[:, index])), math.pi / 180) for index in range(4)
    )
    a = pc.sin(pc.divide(pc.subtract(latitude2, latitude1), 2))
    b = pc.sin(pc.divide(pc.subtract(longitude2, longitude1), 2))
    h = pc.add(pc.multiply(a, a), pc.multiply(pc.multiply(pc.cos(latitude1), pc.cos(latitude2)), pc.multiply(b, b)))
    km = pc.multiply(pc.asin(pc.sqrt(pc.min_element_wise(h, 1.0))), 2 * RADIUS_KM)
    ends = pa.py_buffer(np.arange(0, 8 * (len(km) + 1), 8, dtype=np.int32))
    return batch.set_column(1, "value", pa.Array.from_buffers(pa.binary(), len(km), [None, ends, km.buffers()[1]]))


SUBJECTS = (
    Subject(name="identity", value=_padded, row=lambda value: value, columns=lambda batch: batch.take(_every(batch))),
    Subject(
        name="filter",
        value=_padded,
        row=lambda value: value if value.startswith(b"k") else None,
        columns=lambda batch: batch.filter(pc.starts_with(batch.column("value"), pattern="k")),
    ),
    Subject(
        name="binary_distance",
        value=_binary_points,
        row=lambda value: struct.pack("<d", great_circle_km(*struct.unpack_from("<4d", value))),
        columns=_binary_columns,
    ),
    Subject(name="json_distance", value=_json_points, row=_json_row, columns=None),
)


def _every(batch: pa.RecordBatch) -> pa.Array:
    return pa.array(np.arange(batch.num_rows))
