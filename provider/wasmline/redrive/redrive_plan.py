"""Plans a redrive: which dead letters it writes again, and to where."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from typing import NamedTuple

from wasmline.control import DeadLetterSelection, Deployment, DeploymentTopic, require_topics
from wasmline.errors import DeploymentPaused, InvalidRedrive
from wasmline.kafka import KafkaConfig, TopicInfo, Topics
from wasmline.redrive.dead_letter_counts import MAX_GROUPS, MAX_NAME
from wasmline.redrive.dead_letter_reader import DeadLetterReader
from wasmline.redrive.source_records import Timestamps, is_internal


class DeadLetterGroup(NamedTuple):
    """What some dead letters have in common; "" for what a dead letter does not name."""

    transform: str
    error: str
    source_topic: str


OTHER = DeadLetterGroup("other", "other", "other")
"""The group of dead letters beyond MAX_GROUPS: headers are the input of any writer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RedrivePlan:
    """The dead letters of a topic to redrive: those of ``selection`` below ``ends`` that were not redriven yet.

    to_topic: where the records are written; None: to the topic that each comes from.
    timestamps: of the records: those of the dead letters, or the current time.
    deployment: the generation that processes them instead.
    limit: the maximum number to redrive.
    pending: how many there are; from MAX_GROUPS on, the rest under OTHER.
    """

    topic: TopicInfo
    selection: DeadLetterSelection
    ends: Mapping[int, int]
    to_topic: str | None
    timestamps: Timestamps
    deployment: Deployment | None
    limit: int | None
    pending: Mapping[DeadLetterGroup, int]

    @property
    def dead_letters(self) -> int:
        """The number of dead letters to redrive."""
        found = sum(self.pending.values())
        return found if self.limit is None else min(found, self.limit)


def plan_redrive(
    config: KafkaConfig,
    topic: str,
    selection: DeadLetterSelection | None = None,
    *,
    to_topic: str | None = None,
    timestamps: Timestamps = "keep",
    through: str | None = None,
    limit: int | None = None,
) -> RedrivePlan:
    """Return the plan to redrive the dead letters of ``topic``, by default to the topics that they come from.

    to_topic: write all of them to this topic.
    through: process them by the current generation of this transform, which writes its outputs to its topics, and what
        fails again to its dead-letter topic. Selects those of this transform, unless ``selection`` names another,
        and of its input topic.

    Raises InvalidRedrive, DeploymentNotFound, DeploymentPaused, TopicNotFound, UnsupportedSpecVersion where an earlier
    redrive cannot be read, and BrokerUnavailable.
    """
    if to_topic is not None and through is not None:
        raise InvalidRedrive("name a topic or a transform, not both", topic=topic)
    if to_topic is not None:
        if to_topic == topic or is_internal(to_topic):
            raise InvalidRedrive(f"no dead letters of {topic} can be written to {to_topic}: name another", topic=topic)
        Topics(config).describe(to_topic)
    selection = selection or DeadLetterSelection()
    deployment = _deployment(config, topic, through) if through is not None else None
    if deployment is not None:
        spec = deployment.spec
        if selection.source_topic not in (None, spec.input_topic):
            text = f"{through} reads {spec.input_topic}, and no records of {selection.source_topic}"
            raise InvalidRedrive(text, topic=topic)
        selection = replace(selection, transform=selection.transform or spec.name, source_topic=spec.input_topic)
    reader = DeadLetterReader(config, topic)
    state = reader.state()
    state.require_readable()
    pending: Counter[DeadLetterGroup] = Counter()
    for letter in reader.pending(selection, state):
        failure = letter.failure
        source = failure.source.topic if failure.source else ""
        texts = (failure.transform_reference, failure.error or "", source)
        group = DeadLetterGroup(*(each[:MAX_NAME] for each in texts))
        pending[group if group in pending or len(pending) < MAX_GROUPS else OTHER] += 1
    return RedrivePlan(
        topic=reader.topic,
        selection=selection,
        ends=reader.ends,
        to_topic=to_topic,
        timestamps=timestamps,
        deployment=deployment,
        limit=limit,
        pending=dict(sorted(pending.items())),
    )


def require_running(deployment: Deployment) -> None:
    """Raise DeploymentPaused for a deployment that is paused."""
    if deployment.state == "paused":
        name = deployment.spec.name
        text = f"{name} is paused ({deployment.reason}): deploy a version that can process them, or resume it"
        raise DeploymentPaused(text, name=name)


def _deployment(config: KafkaConfig, topic: str, name: str) -> Deployment:
    with closing(DeploymentTopic(config)) as deployments:
        deployment = deployments.get(name)
    require_running(deployment)
    if deployment.spec.dead_letter_topic is None:
        text = f"{name} has no dead-letter topic for dead letters that fail again: deploy it with one"
        raise InvalidRedrive(text, topic=topic)
    require_topics(config, deployment.spec)
    return deployment
