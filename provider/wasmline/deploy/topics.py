"""The control topics: names, and the one way to make them."""

from __future__ import annotations

from wasmline.kafka import KafkaConfig, Topics

MODULES = "_wasmline.modules"
DEPLOYMENTS = "_wasmline.deployments"
JOBS = "_wasmline.jobs"
STATUS = "_wasmline.status"
LOGS = "_wasmline.logs"

# Compaction leaves the segment that is being written alone: small segments keep the tables quick to read.
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.bytes": str(16 << 20),
    "segment.ms": "600000",
    "min.cleanable.dirty.ratio": "0.1",
}
ONE_DAY = {"cleanup.policy": "delete", "retention.ms": str(24 * 3600 * 1000)}
POLICIES = {MODULES: COMPACTED, DEPLOYMENTS: COMPACTED, JOBS: COMPACTED, STATUS: COMPACTED, LOGS: ONE_DAY}


def ensure(config: KafkaConfig) -> None:
    """Make the control topics that are missing: one partition each, on up to three replicas, two of them in sync."""
    topics = Topics(config)
    replicas = min(3, topics.brokers())
    durable = {"min.insync.replicas": str(min(2, replicas))}
    for topic, policy in POLICIES.items():
        if not topics.exists(topic):
            topics.create(topic, 1, config={**policy, **durable}, replication=replicas, exist_ok=True)
