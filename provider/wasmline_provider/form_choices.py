"""Reads the names on a cluster and the versions of a model, for the drop-downs of forms.

A DAG calls this while it is parsed, so the forms show what there was at the last parsing. They are suggestions: a form
takes other values, too.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from airflow.sdk import get_parsing_context

from wasmline_provider.hooks.kafka import KafkaHook
from wasmline_provider.hooks.wasmline import WasmlineHook

if TYPE_CHECKING:
    from wasmline.kafka import KafkaConfig

logger = logging.getLogger(__name__)

T = TypeVar("T")

READ_TIMEOUT_S = 5.0
"""Maximum seconds of a reading: a service that does not answer must not keep a DAG from being parsed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FormChoices:
    """The names on a cluster, sorted: its jobs, its deployed transforms, and the dead-letter topics of both."""

    jobs: tuple[str, ...] = ()
    transforms: tuple[str, ...] = ()
    dead_letter_topics: tuple[str, ...] = ()


def read_form_choices(kafka_conn_id: str = KafkaHook.default_conn_name) -> FormChoices:
    """Return the names on a cluster; none if it cannot be read now, or if a task is to run."""

    def connect() -> Callable[[], FormChoices]:
        config = KafkaHook(kafka_conn_id).get_conn()
        return lambda: _read(config)

    return _suggested(connect, FormChoices(), kafka_conn_id)


def read_model_versions(model: str, wasmline_conn_id: str = WasmlineHook.default_conn_name) -> list[str]:
    """Return the versions of a model, the newest first; none if they cannot be read now, or if a task is to run."""

    def connect() -> Callable[[], list[str]]:
        locations = WasmlineHook(wasmline_conn_id).locate(models=None)

        def read() -> list[str]:
            from wasmline.registry import OciLayoutStore

            with locations.opened() as at:
                return OciLayoutStore(at.models).versions("models", model)[::-1]

        return read

    return _suggested(connect, [], wasmline_conn_id)


def _suggested(connect: Callable[[], Callable[[], T]], nothing: T, conn_id: str) -> T:
    """Return what ``connect`` gives to be read, in a thread; ``nothing`` if it cannot be, or if a task is to run."""
    if get_parsing_context().task_id is not None:  # no form is shown
        return nothing
    from wasmline.background_call import BackgroundCall

    try:
        call = BackgroundCall(connect())
        if call.wait(READ_TIMEOUT_S):
            return call.result()
        reason: object = f"no answer in {READ_TIMEOUT_S:g} s"
    except Exception as error:  # whatever is wrong with the connection or the service, the DAG has to be parsed
        reason = error
    logger.warning("the form has no suggestions from %s: %s", conn_id, reason)
    return nothing


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
