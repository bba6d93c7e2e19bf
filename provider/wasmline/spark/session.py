"""The Spark session of a job."""

from __future__ import annotations

import re
from collections.abc import Mapping

from pyspark import SparkConf, SparkContext
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


LEASE_SETTINGS = {
    # An executor that says nothing keeps its partitions from others, and all others from their next lease.
    "spark.network.timeout": "30s",
    "spark.network.timeoutInterval": "10s",
    # A second attempt beside the first would fence it, and Spark would take the first's end for success.
    "spark.speculation": "false",
}
"""What the tasks of leases need beside SETTINGS."""

REQUIRED_SETTINGS = ("spark.sql.session.timeZone", "spark.speculation")
"""What is set whatever spark-submit was told; of the rest, the user's own configuration wins."""

LOCAL_MASTER = re.compile(r"local(?:\[([\d*]+)\])?")

TASK_ATTEMPTS = 4
"""How often Spark tries a task before it gives a job up, as it does on a cluster; a plain local master tries once."""


def retrying(master: str) -> str:
    """Return a local master that tries failed tasks again, and any other as it is."""
    local = LOCAL_MASTER.fullmatch(master)
    return f"local[{local[1] or 1},{TASK_ATTEMPTS}]" if local else master


def session(app_name: str, settings: Mapping[str, str]) -> SparkSession:
    """Return the session of this application; master and resources are spark-submit's."""
    builder = SparkSession.builder.appName(app_name)
    SparkContext._ensure_initialized()  # a SparkConf knows what spark-submit was told once the JVM is there
    told = SparkConf()
    if master := told.get("spark.master"):
        builder = builder.master(retrying(master))
    for key, value in {**SETTINGS, **settings}.items():
        if key in REQUIRED_SETTINGS or not told.contains(key):
            builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    return spark


def task_slots(context: SparkContext) -> int:
    """Return how many tasks the application's executors run at once, those included that it asked for and has not got.

    An executor that comes later counts where its number is ordered: ``spark.executor.instances``, ``spark.cores.max``.
    """
    conf = context.getConf()
    instances = int(conf.get("spark.executor.instances", "0"))
    ordered = max(instances * int(conf.get("spark.executor.cores", "1")), int(conf.get("spark.cores.max", "0")))
    return max(1, max(context.defaultParallelism, ordered) // int(conf.get("spark.task.cpus", "1")))
