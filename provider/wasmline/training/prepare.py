"""Prepares rows: Spark reads exact slices, decodes and cleans; Arrow sorts, drops duplicates and splits.

The result is the same for the same dataset, with any partitions, threads and cluster of Spark: the usable rows are
sorted by the records' coordinates, and no earlier step depends on an order.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wasmline import provenance
from wasmline.offset_ranges import OffsetRanges, ranges_of
from wasmline.training.dataset_slice import Dataset

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from wasmline.kafka import KafkaConfig

PARTITION, OFFSET, TIMESTAMP = "_partition", "_offset", "_timestamp"
PLACE = (PARTITION, OFFSET, TIMESTAMP)
"""Columns of rows that tell their record: its coordinates, and its timestamp in Unix milliseconds."""

VALUE, PROVENANCE = "_value", "_provenance"
"""Columns of ``read_slice`` beside PLACE: the record's value, and that of its provenance header or null."""

TRANSFORM, HELD_OUT = "_transform", "_held_out"
"""Columns of ``usable_rows`` beside PLACE: the record's transform, ``name@version digest`` or "", and the split."""

MAX_NUMBER = 1e38
"""Largest number of a row. Single precision, in which trees are trained, ends at 3.4e38, and their sums need room."""

_SHARES = 1_000_000
"""The resolution of the holdout share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """The rows of a dataset in the order of their records; the columns are the dataset's fields, and those of PLACE.

    ``excluded`` counts records that are not a JSON object, lack a target or an identity, have a number beyond
    MAX_NUMBER, do not meet the condition or are of other transforms than the dataset's (and offsets without a record);
    ``duplicates`` usable records that repeat an identity.
    """

    training: pa.Table
    holdout: pa.Table
    excluded: int
    duplicates: int


def read_slice(spark: SparkSession, dataset: Dataset, kafka: KafkaConfig) -> DataFrame:
    """Return exactly the committed records of the dataset; the query fails if any of its offsets is gone.

    One read takes one range of each partition, and there are as many reads as a partition has ranges: what is between
    two ranges is not read, and need not be there.
    """
    from pyspark.sql import functions as f

    reads: list[dict[int, tuple[int, int]]] = []
    for partition, start, end in dataset.ranges:
        free = next((each for each in reads if partition not in each), None)
        if free is None:
            reads.append(free := {})
        free[partition] = (start, end)
    parts = (_read_ranges(spark, dataset.topic, each, kafka) for each in reads)
    records = reduce(lambda part, other: part.union(other), parts)
    # The host writes its header last.
    written = f.try_element_at(f.filter("headers", lambda header: header["key"] == f.lit(provenance.NAME)), f.lit(-1))
    return records.select(
        f.col("partition").alias(PARTITION),
        f.col("offset").alias(OFFSET),
        f.unix_millis("timestamp").alias(TIMESTAMP),
        f.col("value").alias(VALUE),
        written["value"].alias(PROVENANCE),
    )


def _read_ranges(
    spark: SparkSession, topic: str, ranges: Mapping[int, tuple[int, int]], kafka: KafkaConfig
) -> DataFrame:
    """Return the committed records of one range of each partition, with the columns of Spark's connector."""
    return (
        spark.read.format("kafka")
        .options(**{f"kafka.{name}": value for name, value in kafka.java().items()})
        .option("kafka.isolation.level", "read_committed")
        .option("assign", json.dumps({topic: list(ranges)}))
        .option("startingOffsets", json.dumps({topic: {each: start for each, (start, _) in ranges.items()}}))
        .option("endingOffsets", json.dumps({topic: {each: end for each, (_, end) in ranges.items()}}))
        .option("failOnDataLoss", "true")
        .option("includeHeaders", "true")
        .load()
    )


def prepare(records: DataFrame, dataset: Dataset) -> Prepared:
    """Return the rows of a dataset from its ``records``, columns as ``read_slice`` gives them."""
    return prepare_rows(usable_rows(records, dataset), dataset)


def usable_rows(records: DataFrame, dataset: Dataset) -> pa.Table:
    """Return the usable rows of records, sorted by coordinates, duplicates included.

    Columns: PLACE, TRANSFORM, HELD_OUT and the dataset's fields. Of the dataset, only those, its
    condition and its split matter: the records may be those of several datasets.

    A row is held out if the hash (xxHash64) of seed and identity falls below the share: so a record that was held out
    from one model is held out from every later one with the same seed, however the slices overlap.
    """
    from pyspark.sql import functions as f

    schema = ", ".join(f"{_quoted(name)} {kind}" for name, kind in dataset.fields.items())
    document = f.from_json(f.col(VALUE).cast("string"), schema, {"allowNonNumericNumbers": "false"})
    transform = _transform(f.col(PROVENANCE)).alias(TRANSFORM)
    rows = records.select(*PLACE, transform, document.alias("_document")).select(*PLACE, TRANSFORM, "_document.*")
    whole = f.col(_quoted(dataset.target)).isNotNull() & f.col(_quoted(dataset.identity)).isNotNull()
    for column in (f.col(_quoted(name)) for name, kind in dataset.fields.items() if kind == "double"):
        whole &= column.isNull() | (f.abs(column) <= MAX_NUMBER)  # false for NaN
    fields = (f.col(_quoted(name)) for name in dataset.fields)
    usable = rows.where(whole).where(f.expr(dataset.where))
    usable = usable.select(*PLACE, TRANSFORM, _held_out(dataset).alias(HELD_OUT), *fields)
    table = sort_rows(usable.toArrow())
    place = table.column_names.index(TRANSFORM)
    return table.set_column(place, TRANSFORM, pc.dictionary_encode(table[TRANSFORM]))


def prepare_rows(usable: pa.Table, dataset: Dataset) -> Prepared:
    """Return the rows of a dataset, of ``usable_rows`` that have all of it, split into training and holdout."""
    copies = _copies(usable, dataset)
    rows = _first_of_identity(copies, dataset.identity)
    columns = [*dataset.fields, *PLACE]
    return Prepared(
        training=rows.filter(pc.invert(rows[HELD_OUT])).select(columns),
        holdout=rows.filter(rows[HELD_OUT]).select(columns),
        excluded=dataset.offset_count - copies.num_rows,
        duplicates=copies.num_rows - rows.num_rows,
    )


def rows_of(usable: pa.Table, dataset: Dataset) -> pa.Table:
    """Return the rows of a dataset as in ``prepare_rows``, with all columns of ``usable_rows``, not split."""
    return _first_of_identity(_copies(usable, dataset), dataset.identity)


def rows_within(sorted_rows: pa.Table, ranges: OffsetRanges) -> pa.Table:
    """Return the rows with coordinates in these ranges, without a copy."""
    partitions, offsets = sorted_rows[PARTITION].to_numpy(), sorted_rows[OFFSET].to_numpy()
    parts = [sorted_rows.slice(0, 0)]
    for partition, *boundaries in sorted(ranges_of(ranges)):
        first, last = np.searchsorted(partitions, [partition, partition + 1])
        start, end = first + np.searchsorted(offsets[first:last], boundaries)
        parts.append(sorted_rows.slice(start, end - start))
    return pa.concat_tables(parts)


def are_of(column: pa.ChunkedArray, transforms: Sequence[str]) -> pa.ChunkedArray:
    """Return whether each value of TRANSFORM is one of these."""
    wanted = pa.array(transforms, pa.string())
    chunks = [pc.is_in(each.dictionary, value_set=wanted).take(each.indices) for each in column.chunks]
    return pa.chunked_array(chunks, pa.bool_())


def _copies(usable: pa.Table, dataset: Dataset) -> pa.Table:
    """Return the usable rows of a dataset, those that repeat an identity included."""
    rows = rows_within(usable, dataset.offsets)
    return rows.filter(are_of(rows[TRANSFORM], dataset.transforms)) if dataset.transforms else rows


def sort_rows(rows: pa.Table) -> pa.Table:
    """Return rows in the order of their coordinates. Spark's come in batches that are sorted, and need no copy."""
    batches = [batch for batch in rows.to_batches() if batch.num_rows]
    batches.sort(key=lambda batch: (batch[PARTITION][0].as_py(), batch[OFFSET][0].as_py()))
    rows = pa.Table.from_batches(batches, rows.schema)
    if are_sorted(rows):
        return rows
    return rows.take(pa.array(np.lexsort((rows[OFFSET].to_numpy(), rows[PARTITION].to_numpy()))))


def are_sorted(rows: pa.Table) -> bool:
    """Return whether the coordinates of rows ascend, and none is there twice."""
    partitions, offsets = rows[PARTITION].to_numpy(), rows[OFFSET].to_numpy()
    before, after = partitions[:-1], partitions[1:]
    return bool(np.all((before < after) | (before == after) & (offsets[:-1] < offsets[1:])))


def _first_of_identity(rows: pa.Table, identity: str) -> pa.Table:
    """Return the first row of each identity."""
    identities = rows[identity]
    if pa.types.is_floating(identities.type):
        identities = pc.add(identities, 0.0)  # 0.0 and -0.0 are one number
    codes = [chunk.indices.to_numpy() for chunk in pc.dictionary_encode(identities).chunks]  # numbered as they appear
    numbers = np.concatenate([np.array([-1], np.int32), *codes])
    return rows.filter(pa.array(numbers[1:] > np.maximum.accumulate(numbers)[:-1]))


def _transform(value: Column) -> Column:
    """Return ``name@version digest`` in the value of a provenance header, "" for any other bytes: see ``parse``."""
    from pyspark.sql import functions as f

    text = value.cast("string")
    _, partition, offset, version, digest = (f.get(f.split(text, " "), f.lit(place)) for place in range(5))
    bounded = partition.try_cast("int").isNotNull() & offset.try_cast("bigint").isNotNull()
    written = text.rlike(rf"\A{provenance.PATTERN}\z") & (f.octet_length(value) <= provenance.MAX_BYTES) & bounded
    return f.when(written, f.concat_ws(" ", version, digest)).otherwise(f.lit(""))


def _held_out(dataset: Dataset) -> Column:
    from pyspark.sql import functions as f

    place = f.pmod(f.xxhash64(f.lit(dataset.seed), f.col(_quoted(dataset.identity))), f.lit(_SHARES))
    return place < f.lit(round(dataset.holdout_share * _SHARES))


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
