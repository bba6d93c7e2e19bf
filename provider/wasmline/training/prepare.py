"""Prepares rows with Spark: reads the exact slice, decodes, cleans, drops duplicates, splits and sorts.

The result is the same for the same dataset, with any partitions, threads and cluster of Spark: it is sorted by the
records' coordinates at the end, and no earlier step depends on an order.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from wasmline.training.dataset_slice import Dataset

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from wasmline.kafka import KafkaConfig

PARTITION, OFFSET, TIMESTAMP, VALUE = "_partition", "_offset", "_timestamp", "_value"
PLACE = (PARTITION, OFFSET, TIMESTAMP)
"""Columns of rows that tell their record: its coordinates, and its timestamp in Unix milliseconds."""

_COPIES, _HELD_OUT, _FIRST = "_copies", "_held_out", "_first"

_SHARES = 1_000_000
"""The resolution of the holdout share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """Usable rows in the order of their records; the columns are the dataset's fields, and those of ``PLACE``.

    ``excluded`` counts records that are not a JSON object, lack a finite target or an identity, or do not meet the
    condition (and offsets without a record); ``duplicates`` usable records that repeat an identity.
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
    return records.select(
        f.col("partition").alias(PARTITION),
        f.col("offset").alias(OFFSET),
        f.unix_millis("timestamp").alias(TIMESTAMP),
        f.col("value").alias(VALUE),
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
        .load()
    )


def prepare(records: DataFrame, dataset: Dataset) -> Prepared:
    """Return the rows of ``records``, columns as ``read_slice`` gives them, split into training and holdout.

    A row is held out if the hash (xxHash64) of seed and identity falls below the share: so a record that was held out
    from one model is held out from every later one with the same seed, however the slices overlap.
    """
    from pyspark.sql import functions as f

    usable = _usable(records, dataset)
    # The minimum struct is the record with the lowest coordinates, because they are its first fields.
    first = f.min(f.struct(*PLACE, *(f.col(_quoted(name)) for name in dataset.fields))).alias(_FIRST)
    rows = (
        usable.groupBy(_quoted(dataset.identity))
        .agg(first, f.count(f.lit(1)).alias(_COPIES))
        .select(f"{_FIRST}.*", _COPIES)
        .withColumn(_HELD_OUT, _held_out(dataset))
        .orderBy(PARTITION, OFFSET)
    )
    table = rows.toArrow()
    copies = pc.sum(table[_COPIES]).as_py() or 0
    columns = [*dataset.fields, *PLACE]
    return Prepared(
        training=table.filter(pc.invert(table[_HELD_OUT])).select(columns),
        holdout=table.filter(table[_HELD_OUT]).select(columns),
        excluded=dataset.offset_count - copies,
        duplicates=copies - table.num_rows,
    )


def _usable(records: DataFrame, dataset: Dataset) -> DataFrame:
    from pyspark.sql import functions as f

    schema = ", ".join(f"{_quoted(name)} {kind}" for name, kind in dataset.fields.items())
    document = f.from_json(f.col(VALUE).cast("string"), schema, {"allowNonNumericNumbers": "false"})
    within = records.where(_is_within(dataset))
    rows = within.select(*PLACE, document.alias("_document")).select(*PLACE, "_document.*")
    finite = f.abs(f.col(_quoted(dataset.target)).cast("double")) < float("inf")  # also false for null and NaN
    whole = finite & f.col(_quoted(dataset.identity)).isNotNull()
    return rows.where(whole).where(f.expr(dataset.where))


def _is_within(dataset: Dataset) -> Column:
    """Return whether a record is of the dataset: ``records`` may be those of several."""
    from pyspark.sql import functions as f

    ranges = [
        (f.col(PARTITION) == partition) & (f.col(OFFSET) >= start) & (f.col(OFFSET) < end)
        for partition, start, end in dataset.ranges
    ]
    return reduce(or_, ranges, f.lit(False))


def _held_out(dataset: Dataset) -> Column:
    from pyspark.sql import functions as f

    place = f.pmod(f.xxhash64(f.lit(dataset.seed), f.col(_quoted(dataset.identity))), f.lit(_SHARES))
    return place < f.lit(round(dataset.holdout_share * _SHARES))


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
