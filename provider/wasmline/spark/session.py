"""The Spark session of a job."""

from __future__ import annotations

from pyspark.sql import SparkSession

SETTINGS = {
    # Without libhadoop the default manager forks chmod for each checkpoint file, which doubles the cost of a small
    # batch. This one's rename is weaker against two drivers on one checkpoint: the driver's claim keeps them apart.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "4",
}


def session(app_name: str) -> SparkSession:
    """Return the session of this application; master and resources are spark-submit's."""
    builder = SparkSession.builder.appName(app_name)
    for key, value in SETTINGS.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    return spark
