"""Reads the deployment that names the topics of a stream's lineage."""

from __future__ import annotations

import logging
from contextlib import closing
from typing import TYPE_CHECKING

from airflow.providers.openlineage import conf

from wasmline.background_call import BackgroundCall
from wasmline.control import DeploymentTopic, control_topics
from wasmline.errors import WasmlineError

if TYPE_CHECKING:
    from wasmline.control import Deployment
    from wasmline.kafka import KafkaConfig

log = logging.getLogger(__name__)


def read_deployment(config: KafkaConfig, transform: str) -> Deployment | None:
    """Return the current deployment of a transform, None if there is none.

    None with a warning if it cannot be read: the event is sent without the topics, and the task goes on.
    """
    call, timeout_s = BackgroundCall(lambda: _find(config, transform)), _timeout_s()
    if not call.wait(timeout_s):
        log.warning("the lineage of %s has no topics: no answer within %.0f s", transform, timeout_s)
        return None
    try:
        return call.result()
    except WasmlineError as error:
        log.warning("the lineage of %s has no topics: %s", transform, error)
        return None


def _timeout_s() -> float:
    """Return half of the time after which Airflow ends the process that sends an event."""
    return float(conf.execution_timeout()) / 2


def _find(config: KafkaConfig, transform: str) -> Deployment | None:
    if not control_topics.exist(config):
        return None
    with closing(DeploymentTopic(config)) as deployments:
        return deployments.find(transform)
