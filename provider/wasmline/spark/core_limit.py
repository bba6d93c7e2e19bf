"""The cores of a standalone cluster that a continuous stream can use; it takes no more, so that others get theirs."""

from __future__ import annotations

import logging

from wasmline.control import DeploymentTopic
from wasmline.errors import WasmlineError
from wasmline.job_specs import StreamSpec
from wasmline.kafka import KafkaConfig, Topics
from wasmline.transactional_ids import VIRTUAL_SHARDS

log = logging.getLogger(__name__)

MAX_SLOTS = VIRTUAL_SHARDS
"""Task slots of a stream at most, unless ``spark.cores.max`` is set."""


def stream_slots(config: KafkaConfig, stream: StreamSpec) -> int | None:
    """Return how many tasks of a continuous stream can run at once: ``tasks`` or ``shards``, else its partitions.

    None for a bounded stream, whose end frees its cores. MAX_SLOTS is the limit, also where the partitions cannot be
    counted: a stream that waits for its deployment or for a broker must not take the whole cluster meanwhile.
    """
    if stream.trigger_interval is None:
        return None
    if stream.mode == "microbatch" and stream.shards is not None:
        return min(stream.shards, MAX_SLOTS)
    try:
        partitions = Topics(config).describe(_input_topic(config, stream)).partitions
    except WasmlineError as error:  # the run meets it again, and waits or ends
        log.warning("the partitions of the stream cannot be counted: %s", error)
        partitions = MAX_SLOTS
    tasks = stream.tasks if stream.mode == "parallel" else None
    return min(tasks or partitions, partitions, MAX_SLOTS)


def _input_topic(config: KafkaConfig, stream: StreamSpec) -> str:
    if stream.function is not None:
        return stream.function.topic
    deployments = DeploymentTopic(config)
    try:
        return deployments.get(stream.transform).spec.input_topic
    finally:
        deployments.close()
