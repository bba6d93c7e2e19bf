"""Reads the planned and committed batches of a Structured Streaming checkpoint, in any storage of Spark."""

from __future__ import annotations

from pyspark.sql import SparkSession

from wasmline.job_offsets.resume_plan import CheckpointState


def checkpoint_state(spark: SparkSession, checkpoint: str) -> CheckpointState:
    """Return the batches of a checkpoint; none if it does not exist.

    Each batch has a file named by its number in ``offsets`` once it is planned, and in ``commits`` once it is done:
    https://spark.apache.org/docs/latest/streaming/apis-on-dataframes-and-datasets.html
    """
    return CheckpointState(
        planned=_newest(spark, f"{checkpoint}/offsets"), committed=_newest(spark, f"{checkpoint}/commits")
    )


def _newest(spark: SparkSession, log: str) -> int:
    assert spark.sparkContext._jvm is not None
    path = spark.sparkContext._jvm.org.apache.hadoop.fs.Path(log)
    files = path.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())
    names = [each.getPath().getName() for each in files.listStatus(path)] if files.exists(path) else []
    return max((int(name) for name in names if name.isdigit()), default=-1)
