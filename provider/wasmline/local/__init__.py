"""A real Kafka on this machine, for demos and tests: nothing to install but a Java runtime.

The jars of the broker and of Spark's connector come once, pinned by coordinate and digest, through the resolver that
PySpark ships. Needs Linux or macOS.
"""

from __future__ import annotations

from wasmline.local.jars import connector_jars, kafka_jars
from wasmline.local.jvm import Java, find_java
from wasmline.local.local_kafka import LocalKafka
from wasmline.local.security import SaslSsl

__all__ = ["Java", "LocalKafka", "SaslSsl", "connector_jars", "find_java", "kafka_jars"]
