"""The Spark that benchmarks run on: this machine's, with two slots."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from wasmline.local.jars import connector_jars
from wasmline.spark.session import SETTINGS


@contextmanager
def local_spark(name: str, master: str = "local[2]") -> Iterator[SparkSession]:
    """Return a session with the Kafka connector, and stop it."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.master(master).appName(name)
    jars = ",".join(str(jar) for jar in connector_jars())
    settings = {**SETTINGS, "spark.jars": jars, "spark.driver.memory": "2g", "spark.ui.enabled": "false"}
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    yield spark
    spark.stop()
