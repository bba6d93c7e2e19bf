"""pytest fixtures over a real Spark: a local session with the Kafka connector.

Used with ``pytest_plugins``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from pyspark.sql import SparkSession

from wasmline.local.jars import connector_jars
from wasmline.spark.session import LEASE_SETTINGS, SETTINGS, retrying


@contextmanager
def local_spark(name: str, memory: str) -> Iterator[SparkSession]:
    """Yield a session on two local cores with the connector and the settings of a job; stop it at the end."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(retrying("local[2]")).appName(name)
    settings = {
        **SETTINGS,
        **LEASE_SETTINGS,
        "spark.jars": ",".join(str(jar) for jar in connector_jars()),
        "spark.driver.memory": memory,
        "spark.ui.enabled": "false",
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One session for the whole run."""
    with local_spark("wasmline tests", "1g") as session:
        yield session
