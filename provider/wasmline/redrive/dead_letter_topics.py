"""Finds the dead-letter topics that deployments and functions write to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing

from wasmline.control import Deployment, JobOrder, JobTopic, read_deployments
from wasmline.job_specs import FunctionSpec
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
    for function in _functions(orders):
        if function.dead_letter_topic:
            found.setdefault(function.dead_letter_topic, []).append(function.function)
    return dict(sorted(found.items()))


def find_source_topics(config: KafkaConfig, dead_letter_topic: str) -> frozenset[str]:
    """Return the input topics of the current deployments and jobs that write to a dead-letter topic."""
    deployments = (each.spec for each in read_deployments(config) if each.spec.dead_letter_topic == dead_letter_topic)
    with closing(JobTopic(config)) as jobs:
        functions = (each for each in _functions(jobs.orders()) if each.dead_letter_topic == dead_letter_topic)
        return frozenset({*(each.input_topic for each in deployments), *(each.topic for each in functions)})


def _functions(orders: Iterable[JobOrder]) -> Iterator[FunctionSpec]:
    for order in orders:
        if order.spec.stream is not None and order.spec.stream.function is not None:
            yield order.spec.stream.function
