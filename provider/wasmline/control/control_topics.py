"""The control topics: names, creation, and validation of existing ones."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from wasmline.errors import TopicMisconfigured
from wasmline.kafka import KafkaConfig, TopicInfo, Topics

logger = logging.getLogger(__name__)

MODULES = "_wasmline.modules"
DEPLOYMENTS = "_wasmline.deployments"
HISTORY = "_wasmline.history"
JOBS = "_wasmline.jobs"
REDRIVES = "_wasmline.redrives"
STATUS = "_wasmline.status"
LOGS = "_wasmline.logs"

# Compaction skips the active segment: small segments keep the topics quick to read.
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.bytes": str(16 << 20),
    "segment.ms": "600000",
    "min.cleanable.dirty.ratio": "0.1",
}
ONE_DAY = {"cleanup.policy": "delete", "retention.ms": str(24 * 3600 * 1000)}
POLICIES = {
    **dict.fromkeys((MODULES, DEPLOYMENTS, HISTORY, JOBS, REDRIVES, STATUS), COMPACTED),
    LOGS: ONE_DAY,
}


def exist(config: KafkaConfig) -> bool:
    """Return whether all control topics exist, and create none: for a client that only looks."""
    return len(Topics(config).describe_existing(POLICIES)) == len(POLICIES)


def ensure(config: KafkaConfig) -> None:
    """Create the missing control topics: one partition each, on up to three replicas, two of them in sync.

    Raises TopicMisconfigured if an existing one has settings under which records could be lost or not be read.
    """
    topics = Topics(config)
    found = topics.describe_existing(POLICIES)
    if missing := [topic for topic in POLICIES if topic not in found]:
        replicas = min(3, topics.brokers())
        durable = {"min.insync.replicas": str(min(2, replicas))}
        for topic in missing:
            topics.create(topic, 1, config={**POLICIES[topic], **durable}, replication=replicas, exist_ok=True)
    for topic, settings in topics.settings(found).items():
        _require_settings(config, found[topic], settings)


def _require_settings(config: KafkaConfig, topic: TopicInfo, settings: Mapping[str, str] | None) -> None:
    if topic.partitions != 1:
        text = f"{topic.name} has {topic.partitions} partitions, but only records in the first one are read: "
        text += (
            f"delete it (kafka-topics --bootstrap-server {config.bootstrap_servers} --delete --topic {topic.name}), "
        )
        text += "and deploy and submit again what was in it"
        raise TopicMisconfigured(text, topic=topic.name, setting="partitions")
    if settings is None:
        logger.warning("the settings of %s are not readable for this client, and are not checked", topic.name)
        return
    policy = POLICIES[topic.name]["cleanup.policy"]
    least = min(2, topic.replication)
    wanted = {
        "cleanup.policy": (policy, settings.get("cleanup.policy", policy) == policy),
        "min.insync.replicas": (str(least), int(settings.get("min.insync.replicas", least)) >= least),
        "unclean.leader.election.enable": ("false", settings.get("unclean.leader.election.enable") != "true"),
    }
    for setting, (value, is_met) in wanted.items():
        if not is_met:
            text = f"{topic.name} has {setting}={settings[setting]}, under which records may be lost: set "
            text += f"it (kafka-configs --bootstrap-server {config.bootstrap_servers} --alter --entity-type topics "
            text += f"--entity-name {topic.name} --add-config {setting}={value})"
            raise TopicMisconfigured(text, topic=topic.name, setting=setting)
