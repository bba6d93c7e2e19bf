"""Finds the dead-letter topics that deployments and functions write to."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing

from wasmline.control import Deployment, JobOrder, JobTopic, read_deployments
from wasmline.kafka import KafkaConfig


def find_dead_letter_topics(config: KafkaConfig) -> dict[str, list[str]]:
    """Return the dead-letter topics of current deployments and jobs, with the transforms and functions of each."""
    with closing(JobTopic(config)) as jobs:
        return dead_letter_topics(read_deployments(config), jobs.orders())


def dead_letter_topics(deployments: Iterable[Deployment], orders: Iterable[JobOrder]) -> dict[str, list[str]]:
    """Return the dead-letter topics of deployments and orders, by name, with the transforms and functions of each."""
    found: dict[str, list[str]] = {}
    for deployment in deployments:
        if topic := deployment.spec.dead_letter_topic:
            found.setdefault(topic, []).append(deployment.spec.name)
    for order in orders:
        function = order.spec.stream.function if order.spec.stream else None
        if function is not None and function.dead_letter_topic:
            found.setdefault(function.dead_letter_topic, []).append(function.function)
    return dict(sorted(found.items()))
