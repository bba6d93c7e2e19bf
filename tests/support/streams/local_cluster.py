"""Runs ordered micro-batch jobs on a Spark of two executors that fetch each other's blocks over the network.

    clustered.py JOB...

In local mode the blocks of a shuffle arrive in order, whatever is wrong, so that order can only be tested here.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

from wasmline.control import JobTopic
from wasmline.kafka import KafkaConfig
from wasmline.local.jars import connector_jars
from wasmline.spark.microbatch.job import MicrobatchJob
from wasmline.spark.session import SETTINGS

MASTER = "local-cluster[2,1,1024]"
"""Two executors of one core each."""

CLUSTER = {
    "spark.jars": ",".join(str(jar) for jar in connector_jars()),
    "spark.ui.enabled": "false",
    "spark.executor.memory": "512m",
    "spark.shuffle.readHostLocalDisk": "false",
}


def spark_home(folder: Path) -> Path:
    """Return a Spark of links to the installed one, where a standalone cluster may leave its files."""
    folder.mkdir()
    for entry in Path(pyspark.__file__).parent.iterdir():
        (folder / entry.name).symlink_to(entry)
    return folder


def main() -> None:
    builder = SparkSession.builder.master(MASTER).appName("clustered")
    for key, value in {**SETTINGS, **CLUSTER}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    config = KafkaConfig.from_environment()
    try:
        for job in sys.argv[1:]:
            order = JobTopic(config).order(job).spec
            assert order.stream is not None
            MicrobatchJob(spark, config, order, order.stream).run()
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
