"""A Spark application for spark-submit that loads the classes of a streaming job with a function in Python."""

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[2]").getOrCreate()


def unchanged(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Return the batches."""
    yield from batches


rows = spark.readStream.format("rate").load().selectExpr("value", "value % 3 AS part")
query = rows.mapInArrow(unchanged, rows.schema).writeStream.format("noop").trigger(once=True).start()
query.awaitTermination()
spark.range(100).selectExpr("id % 3 AS part").groupBy("part").count().collect()
spark.stop()
