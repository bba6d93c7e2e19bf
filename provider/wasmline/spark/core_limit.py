"""The cores of a standalone cluster that a continuous stream can use; it takes no more, so that others get theirs."""

from __future__ import annotations

import logging

from wasmline.control import DeploymentTopic
from wasmline.errors import WasmlineError
from wasmline.job_specs import StreamSpec
from wasmline.kafka import KafkaConfig, Topics
from wasmline.transactional_ids import virtual_shards

log = logging.getLogger(__name__)

MAX_CORES = 64
"""Cores of a stream at most, unless ``spark.cores.max`` is set."""


def stream_cores(config: KafkaConfig, stream: StreamSpec) -> int | None:
    """Return how many tasks of a continuous stream can run at once: ``tasks`` or ``shards``, else its partitions.

    None for a bounded stream, whose end frees its cores, and where the partitions cannot be read.
    """
    if stream.trigger_interval is None:
        return None
    asked = stream.tasks if stream.mode == "parallel" else stream.shards
    try:
        partitions = Topics(config).describe(_input_topic(config, stream)).partitions
    except WasmlineError as error:
        log.warning("spark.cores.max is not set: %s", error)  # the run ends with the error where that is an obstacle
        return None
    if stream.mode == "parallel":
        shards = len(virtual_shards(range(partitions)))
        return min(asked or shards, shards, MAX_CORES)
    return min(asked or partitions, MAX_CORES)


def _input_topic(config: KafkaConfig, stream: StreamSpec) -> str:
    if stream.function is not None:
        return stream.function.topic
    deployments = DeploymentTopic(config)
    try:
        return deployments.get(stream.transform).spec.input_topic
    finally:
        deployments.close()
