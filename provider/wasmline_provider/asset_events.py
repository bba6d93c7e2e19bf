"""Attaches metadata to the events of changed assets."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from airflow.sdk import Asset

from wasmline.errors import KafkaError
from wasmline_provider.asset_uris import topic_of

if TYPE_CHECKING:
    from airflow.sdk import Context

    from wasmline.kafka import KafkaConfig

log = logging.getLogger(__name__)


def record(
    context: Context, outlets: Iterable[Any], facts: Mapping[str, Any], *, kafka: KafkaConfig | None = None
) -> None:
    """Attach ``facts`` to the event of each asset among ``outlets``, for the DAGs that they trigger.

    kafka: the cluster of the topics among them, whose events then have ``end_offsets``, by partition.
    """
    for outlet in outlets:
        if isinstance(outlet, Asset):
            context["outlet_events"][outlet].extra = {**facts, **_end_offsets(outlet, kafka)}


def read_offsets(kafka: KafkaConfig, job: str) -> dict[str, Any]:
    """Return the fact ``read_offsets`` of a stream: the next offset to read of each partition of its input topic."""
    from contextlib import closing

    from wasmline.control import StatusTopic

    def read() -> Mapping[int, int]:
        with closing(StatusTopic(kafka)) as statuses:
            return {each.partition: each.offset for each in statuses.of(job)}

    return _by_partition("read_offsets", read)


def _end_offsets(asset: Asset, kafka: KafkaConfig | None) -> dict[str, Any]:
    topic = topic_of(asset)
    if topic is None or kafka is None:
        return {}
    from wasmline.kafka import Topics

    return _by_partition("end_offsets", lambda: Topics(kafka).end_offsets(topic))


def _by_partition(fact: str, read: Callable[[], Mapping[int, int]]) -> dict[str, Any]:
    """Return offsets as JSON has them; nothing if they cannot be read: what the event is about has happened."""
    try:
        return {fact: {str(partition): offset for partition, offset in sorted(read().items())}}
    except KafkaError as error:
        log.warning("the event of an asset has no %s: %s", fact, error)
        return {}
