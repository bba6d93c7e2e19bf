"""Records who deleted modules from the module topic, in the history topic.

Keys: ``//modules/event/u`` with a unique ``u``; no job's name is empty. The fields: docs/protocols/control_topics.md.
"""

from __future__ import annotations

import logging
import uuid
from contextlib import closing
from dataclasses import dataclass
from typing import Literal

from wasmline.control import control_topics
from wasmline.control.deployment_history import NO_CAUSE, ChangeCause
from wasmline.documents import decode, encode
from wasmline.errors import UnsupportedSpecVersion
from wasmline.kafka import CompactedTopic, KafkaConfig, TopicRecord
from wasmline.printable import bounded_line

logger = logging.getLogger(__name__)

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
    control_topics.ensure(config)
    prefix = PREFIX.encode()
    with closing(CompactedTopic(config, control_topics.HISTORY, keep=lambda key: key.startswith(prefix))) as topic:
        view = topic.read()
    events = []
    for key, value in view.items():
        try:
            events.append(decode(ModuleEvent, value))
        except UnsupportedSpecVersion as error:
            logger.warning("record %s is skipped: %s", bounded_line(key.decode(errors="replace")), bounded_line(error))
    return events
