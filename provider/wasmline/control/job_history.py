"""Records who paused, stopped or deleted a job, withdrew its leases or set its progress, in the history topic.

Keys: ``/<job>/event/u`` with a unique ``u``; no transform's name is empty. The fields:
docs/protocols/control_topics.md.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import Literal

from wasmline.control import control_topics
from wasmline.control.deployment_history import NO_CAUSE, ChangeCause, read_events
from wasmline.documents import encode
from wasmline.kafka import KafkaConfig, TopicRecord

JobAction = Literal["pause", "resume", "stop", "delete", "withdraw", "set progress"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEvent:
    """An action on a job, and the run that it had. ``offsets``: the progress that was set, by partition."""

    action: JobAction
    job: str
    run: str
    changed_ms: int
    cause: ChangeCause = NO_CAUSE
    offsets: dict[int, int] = field(default_factory=dict)
    spec_version: Literal[1] = 1


def job_event_record(event: JobEvent) -> TopicRecord:
    """Return the record of an event."""
    key = f"/{event.job}/event/{uuid.uuid4().hex}".encode()
    return TopicRecord(control_topics.HISTORY, key, encode(event))


def find_job_event(config: KafkaConfig, job: str, action: JobAction, cause_run: str) -> JobEvent | None:
    """Return the last ``action`` of a DAG run on a job, so that a task that is tried again does not repeat it.

    Raises BrokerUnavailable.
    """
    found = (each for each in read_job_events(config, job) if (each.action, each.cause.run) == (action, cause_run))
    return max(found, key=lambda each: each.changed_ms, default=None)


def read_job_events(config: KafkaConfig, job: str) -> list[JobEvent]:
    """Return the events of a job, oldest first; one that this release cannot read is skipped with a warning.

    Raises BrokerUnavailable.
    """
    return read_events(config, f"/{job}/event/", JobEvent)
