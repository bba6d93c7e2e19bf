"""Reads the jobs, transforms and dead-letter topics of a cluster, for the drop-downs of forms.

A DAG calls this while it is parsed, so the forms show what there was at the last parsing. They are suggestions: a form
takes other values, too.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow.sdk import get_parsing_context

from wasmline_provider.hooks.kafka import KafkaHook

if TYPE_CHECKING:
    from wasmline.kafka import KafkaConfig

logger = logging.getLogger(__name__)

READ_TIMEOUT_S = 5.0
"""Maximum seconds of a reading: a cluster that does not answer must not keep a DAG from being parsed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FormChoices:
    """The names on a cluster, sorted: its jobs, its deployed transforms, and the dead-letter topics of both."""

    jobs: tuple[str, ...] = ()
    transforms: tuple[str, ...] = ()
    dead_letter_topics: tuple[str, ...] = ()


def read_form_choices(kafka_conn_id: str = KafkaHook.default_conn_name) -> FormChoices:
    """Return the names on a cluster; none if it cannot be read now, or if a task is to run."""
    if get_parsing_context().task_id is not None:  # no form is shown
        return FormChoices()
    from wasmline.background_call import BackgroundCall

    try:
        config = KafkaHook(kafka_conn_id).get_conn()
        call = BackgroundCall(lambda: _read(config))
        if call.wait(READ_TIMEOUT_S):
            return call.result()
        reason: object = f"no answer in {READ_TIMEOUT_S:g} s"
    except Exception as error:  # whatever is wrong with the connection or the cluster, the DAG has to be parsed
        reason = error
    logger.warning("the form has no suggestions from %s: %s", kafka_conn_id, reason)
    return FormChoices()


def _read(config: KafkaConfig) -> FormChoices:
    from contextlib import closing

    from wasmline.control import JobTopic, control_topics, read_deployments
    from wasmline.redrive.dead_letter_topics import dead_letter_topics

    if not control_topics.exist(config):  # the clients would create them
        return FormChoices()
    with closing(JobTopic(config)) as topic:
        orders = topic.orders()
    deployments = read_deployments(config)
    return FormChoices(
        jobs=tuple(sorted(each.spec.job for each in orders)),
        transforms=tuple(sorted(each.spec.name for each in deployments)),
        dead_letter_topics=tuple(dead_letter_topics(deployments, orders)),
    )
