"""Tells how the records of a generation fare: how many were read, and how many became dead letters."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from itertools import takewhile

from wasmline.control.deployment_history import HistoryTopic
from wasmline.control.deployment_spec import Deployment
from wasmline.control.deployment_topic import DeploymentTopic
from wasmline.control.status_topic import StatusTopic
from wasmline.kafka import KafkaConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentHealth:
    """The current deployment of a transform, and the counts of the jobs that run its generation.

    records: read with this generation. Those of a batch or a lease that is repeated are counted again.
    dead_letters: of these records, rejections by the guest included.
    paused_by: the user who paused it; "" if it is not paused, or if a run paused it because it is at fault.
    """

    deployment: Deployment
    records: int
    dead_letters: int
    paused_by: str = ""

    @property
    def dead_letter_share(self) -> float:
        """The share of records that became dead letters, from 0 to 1; 0 without records."""
        return self.dead_letters / self.records if self.records else 0.0


def read_deployment_health(config: KafkaConfig, name: str) -> DeploymentHealth:
    """Return the health of the current deployment of ``name``. Raises DeploymentNotFound, BrokerUnavailable."""
    with closing(DeploymentTopic(config)) as deployments:
        deployment = deployments.get(name)
    with closing(StatusTopic(config)) as topic:
        statuses = [each for each in topic.all() if (each.transform, each.generation) == (name, deployment.generation)]
    return DeploymentHealth(
        deployment=deployment,
        records=sum(each.generation_records for each in statuses),
        dead_letters=sum(each.generation_dead_letters for each in statuses),
        paused_by=_paused_by(config, deployment) if deployment.state == "paused" else "",
    )


def _paused_by(config: KafkaConfig, deployment: Deployment) -> str:
    """Return the user of the last pause, "" if a run has paused the generation since it was last running."""
    generations = HistoryTopic(config).generations(deployment.spec.name)
    events = [event for each in generations if each.number == deployment.generation for event in each.events]
    pauses = list(takewhile(lambda event: event.action == "pause", reversed(events)))
    return pauses[0].cause.by if pauses and all(event.cause.by for event in pauses) else ""
