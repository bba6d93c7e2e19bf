"""Records who deleted modules from the module topic, in the history topic.

Keys: ``//modules/event/u`` with a unique ``u``; no job's name is empty. The fields: docs/protocols/control_topics.md.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Literal

from wasmline.control import control_topics
from wasmline.control.deployment_history import NO_CAUSE, ChangeCause, read_events
from wasmline.documents import encode
from wasmline.kafka import KafkaConfig, TopicRecord

PREFIX = "//modules/event/"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleEvent:
    """A deletion of modules. ``size_bytes``: that of their chunks.

    keep_generations: how many generations of each transform kept their modules, None for all.
    """

    action: Literal["prune"]
    digests: tuple[str, ...]
    size_bytes: int
    keep_generations: int | None
    changed_ms: int
    cause: ChangeCause = NO_CAUSE
    spec_version: Literal[1] = 1


def module_event_record(event: ModuleEvent) -> TopicRecord:
    """Return the record of an event."""
    return TopicRecord(control_topics.HISTORY, f"{PREFIX}{uuid.uuid4().hex}".encode(), encode(event))


def read_module_events(config: KafkaConfig) -> list[ModuleEvent]:
    """Return the deletions of modules, oldest first; one that this release cannot read is skipped with a warning.

    Raises BrokerUnavailable.
    """
    return read_events(config, PREFIX, ModuleEvent)
