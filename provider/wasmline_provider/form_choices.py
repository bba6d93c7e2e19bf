"""Reads the jobs, transforms and dead-letter topics of a cluster, for the drop-downs of forms.

A DAG calls these while it is parsed, so the forms show what there was at the last parsing. They are suggestions: a form
takes other values, too.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from airflow.sdk import get_parsing_context

from wasmline_provider.hooks.kafka import KafkaHook

if TYPE_CHECKING:
    from wasmline.kafka import KafkaConfig

logger = logging.getLogger(__name__)

READ_TIMEOUT_S = 5.0
"""Maximum seconds of a reading: a cluster that does not answer must not keep a DAG from being parsed."""


def known_jobs(kafka_conn_id: str = KafkaHook.default_conn_name) -> list[str]:
    """Return the jobs of a cluster, by name; none if it cannot be read now, or if a task is to run."""
    return _read(kafka_conn_id, _jobs)


def known_transforms(kafka_conn_id: str = KafkaHook.default_conn_name) -> list[str]:
    """Return the deployed transforms of a cluster, by name; none if it cannot be read now, or if a task is to run."""
    return _read(kafka_conn_id, _transforms)


def known_dead_letter_topics(kafka_conn_id: str = KafkaHook.default_conn_name) -> list[str]:
    """Return the dead-letter topics of current transforms and functions, by name; none as ``known_jobs`` does."""
    return _read(kafka_conn_id, _dead_letter_topics)


def _read(kafka_conn_id: str, names: Callable[[KafkaConfig], Iterable[str]]) -> list[str]:
    if get_parsing_context().task_id is not None:  # no form is shown
        return []
    from wasmline.background_call import BackgroundCall
    from wasmline.control import control_topics

    try:
        config = KafkaHook(kafka_conn_id).get_conn()
        call = BackgroundCall(lambda: sorted(names(config)) if control_topics.exist(config) else [])
        if call.wait(READ_TIMEOUT_S):
            return call.result()
        reason: object = f"no answer in {READ_TIMEOUT_S:g} s"
    except Exception as error:  # whatever is wrong with the connection or the cluster, the DAG has to be parsed
        reason = error
    logger.warning("the form has no suggestions from %s: %s", kafka_conn_id, reason)
    return []


def _jobs(config: KafkaConfig) -> Iterable[str]:
    from contextlib import closing

    from wasmline.control import JobTopic

    with closing(JobTopic(config)) as topic:
        return [order.spec.job for order in topic.orders()]


def _transforms(config: KafkaConfig) -> Iterable[str]:
    from wasmline.control import read_deployments

    return [each.spec.name for each in read_deployments(config)]


def _dead_letter_topics(config: KafkaConfig) -> Iterable[str]:
    from wasmline.redrive.dead_letter_topics import find_dead_letter_topics

    return find_dead_letter_topics(config)
