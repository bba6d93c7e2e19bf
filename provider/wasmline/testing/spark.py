"""A real Spark for tests: one local session with the Kafka connector. Use it with ``pytest_plugins``."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from wasmline.local.jars import connector_jars
from wasmline.spark.session import LEASE_SETTINGS, SETTINGS, retrying


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Spark on two local cores for the whole run, with the connector and the settings of a job."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(retrying("local[2]")).appName("wasmline tests")
    settings = {
        **SETTINGS,
        **LEASE_SETTINGS,
        "spark.jars": ",".join(str(jar) for jar in connector_jars()),
        "spark.driver.memory": "1g",
        "spark.ui.enabled": "false",
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
