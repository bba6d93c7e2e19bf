"""Encodes the rows that a model is measured on as Parquet, stored beside it, and reads them as untrusted input."""

from __future__ import annotations

import io
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wasmline.job_specs import FieldType
from wasmline.printable import bounded_line
from wasmline.registry.oci_manifest import MAX_LAYER_BYTES
from wasmline.training.dataset_slice import Dataset
from wasmline.training.feature_encoding import FeatureLayout
from wasmline.training.prepare import HELD_OUT, OFFSET, PARTITION

ROWS_TYPE = "application/vnd.apache.parquet"
MAX_ROWS = 1_000_000
MAX_DECODED_BYTES = 1 << 30
BATCH_ROWS = 16_384

STAND_IN = "_stand_in"
"""A column of forward rows: the prediction of the chosen window's stand-in."""

ARROW_TYPES: dict[FieldType, pa.DataType] = {"double": pa.float64(), "bigint": pa.int64(), "string": pa.string()}


def held_out_schema(layout: FeatureLayout, dataset: Dataset, *, all_fields: bool = False) -> pa.Schema:
    """Return the columns of held-out rows: the identity, the features and the target, or all fields."""
    names = sorted(dataset.fields) if all_fields else (dataset.identity, *layout.features, dataset.target)
    return pa.schema([(name, ARROW_TYPES[dataset.fields[name]]) for name in dict.fromkeys(names)])


def forward_schema(dataset: Dataset) -> pa.Schema:
    """Return the columns of forward rows: all fields, coordinates, whether held out, and the stand-in's prediction."""
    types = {PARTITION: pa.int32(), OFFSET: pa.int64(), HELD_OUT: pa.bool_(), STAND_IN: pa.float64()}
    fields = [(name, ARROW_TYPES[kind]) for name, kind in sorted(dataset.fields.items())]
    return pa.schema([*fields, *(pa.field(name, kind, nullable=False) for name, kind in types.items())])


def encode_rows(rows: pa.Table, schema: pa.Schema, *, seed: int) -> tuple[bytes, int]:
    """Return rows as Parquet, and their number: all, or as many as MAX_ROWS and the size of a layer allow.

    Those are drawn by ``seed``, and stay in order.
    """
    import pyarrow.parquet as pq

    chosen = rows.select(schema.names).cast(schema)
    size = MAX_ROWS
    while True:
        if chosen.num_rows > size:
            drawn = np.random.default_rng(seed).choice(chosen.num_rows, size, replace=False)
            chosen = chosen.take(np.sort(drawn))
        sink = io.BytesIO()
        pq.write_table(chosen, sink, compression="zstd", row_group_size=BATCH_ROWS)
        if sink.tell() <= MAX_LAYER_BYTES and chosen.nbytes <= MAX_DECODED_BYTES:
            return sink.getvalue(), chosen.num_rows
        size = chosen.num_rows // 2


def decode_rows(
    data: bytes, count: int, schema: pa.Schema, *, max_rows: int = MAX_ROWS, max_bytes: int = MAX_DECODED_BYTES
) -> pa.Table:
    """Return the ``count`` rows in Parquet. Raises ValueError for other columns, for anything else, and for more."""
    import pyarrow.parquet as pq

    texts = [field.name for field in schema if field.type in (pa.string(), pa.binary())]
    try:
        _check_footer(pq.read_metadata(io.BytesIO(data)), count, schema, max_rows)
        # A text may be in many rows and once in the file: as a dictionary, it takes no more memory than there.
        file = pq.ParquetFile(io.BytesIO(data), read_dictionary=texts)
        rows = pa.Table.from_batches(_batches(file, schema, max_bytes), schema)
    except (pa.ArrowException, OSError) as error:
        raise ValueError(bounded_line(error)) from error
    if rows.num_rows != count:
        raise ValueError(f"expected {count} rows, found {rows.num_rows}")
    return rows


def _check_footer(found: pa.parquet.FileMetaData, count: int, schema: pa.Schema, max_rows: int) -> None:
    if found.schema.to_arrow_schema().remove_metadata() != schema:
        raise ValueError(f"expected the columns {schema.names}, found {found.schema.names[:20]} or other types")
    if not found.num_rows == count <= max_rows:
        raise ValueError(f"expected {count} rows of at most {max_rows}, found {found.num_rows}")


def _batches(file: pa.parquet.ParquetFile, schema: pa.Schema, max_bytes: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows with plain texts."""
    size = 0
    for batch in file.iter_batches(BATCH_ROWS):
        size += batch.nbytes + sum(_text_bytes(column) for column in batch.columns)
        if size > max_bytes:
            raise ValueError(f"they take more than {max_bytes} bytes")
        plain = batch.cast(schema)
        plain.validate(full=True)  # texts need not be UTF-8 in the file
        yield plain


def _text_bytes(column: pa.Array) -> int:
    if not pa.types.is_dictionary(column.type):
        return 0
    return pc.sum(pc.binary_length(column.dictionary).take(column.indices)).as_py() or 0
