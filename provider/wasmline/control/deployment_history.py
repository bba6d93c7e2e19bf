"""Reads the history of deployments: their changes with user, run and reason, and where jobs began each generation.

Keys of the history topic, for generation ``g`` of a transform ``t``: ``t/g/event/u`` holds a DeploymentEvent and
``t/g/start/u`` a GenerationStart, each with a unique ``u``, so that compaction removes none; ``t/g/report/j/i`` holds
the last JobReport of job ``j`` on the topic with id ``i`` before it began another generation. The fields:
docs/protocols/control_topics.md.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

from wasmline.control import control_topics
from wasmline.control.deployment_spec import Deployment
from wasmline.documents import decode, encode
from wasmline.errors import InvalidSpec, UnsupportedSpecVersion
from wasmline.job_specs import JobReport
from wasmline.kafka import CompactedTopic, KafkaConfig, TopicRecord
from wasmline.printable import bounded_line

logger = logging.getLogger(__name__)

T = TypeVar("T")

Action = Literal["deploy", "rollback", "pause", "resume"]

MAX_CAUSE_LETTERS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeCause:
    """The reason of a change, its user, and the run of a DAG or of a job that made it; "" if unknown.

    Raises InvalidSpec for more than MAX_CAUSE_LETTERS letters in one of them.
    """

    reason: str = ""
    by: str = ""
    run: str = ""

    def __post_init__(self) -> None:
        for name, text in (("reason", self.reason), ("by", self.by), ("run", self.run)):
            if len(text) > MAX_CAUSE_LETTERS:
                raise InvalidSpec(f"{name} of a change has {len(text):,} letters: the maximum is {MAX_CAUSE_LETTERS:,}")

    @classmethod
    def shortened(cls, *, reason: str, by: str = "", run: str = "") -> ChangeCause:
        """Return a cause of any texts: a longer one as one printable line, without its middle."""
        texts = (each if len(each) <= MAX_CAUSE_LETTERS else bounded_line(each) for each in (reason, by, run))
        reason, by, run = (each[:MAX_CAUSE_LETTERS] for each in texts)
        return cls(reason=reason, by=by, run=run)


NO_CAUSE = ChangeCause()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentEvent:
    """A change of a deployment, and the deployment after it.

    restored_generation: the generation whose specification a rollback deployed again.
    """

    action: Action
    deployment: Deployment
    cause: ChangeCause = NO_CAUSE
    restored_generation: int | None = None
    spec_version: Literal[1] = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationStart:
    """The offsets at which a job began to run a generation: the next one to read of each partition of its topic."""

    generation: int
    job: str
    run: str
    topic: str
    topic_id: str
    offsets: dict[int, int]
    started_ms: int
    spec_version: Literal[1] = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationOffsets:
    """The offsets of a topic that a job processed with one generation.

    end: where the job began the next generation of the topic, excluded; None if it has not.
    report: the last report of the run before that, without its batches. Its counts are those of the run.
    """

    start: GenerationStart
    end: Mapping[int, int] | None
    report: JobReport | None

    @property
    def partitions(self) -> list[int]:
        """The partitions with a begin or an end, sorted."""
        return sorted({*self.start.offsets, *(self.end or ())})


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationHistory:
    """One generation: its events, oldest first, and its offsets, by job."""

    number: int
    events: tuple[DeploymentEvent, ...]
    offsets: tuple[GenerationOffsets, ...]

    @property
    def deployment(self) -> Deployment:
        """The deployment after the last event."""
        return self.events[-1].deployment

    def state(self, current: Deployment) -> str:
        """Return the state of the generation, beside the ``current`` deployment: ``replaced`` unless it is that."""
        return current.state if self.number == current.generation else "replaced"


class HistoryTopic:
    """Reads the history topic. Each record is written in the transaction of the change or claim that it describes."""

    def __init__(self, config: KafkaConfig) -> None:
        control_topics.ensure(config)
        self._config = config

    def generations(self, name: str) -> list[GenerationHistory]:
        """Return the generations of a transform that have an event, oldest first.

        A record that this release cannot read, or whose key is not its own, is skipped with a warning. Raises
        BrokerUnavailable.
        """
        prefix = f"{name}/".encode()
        topic = CompactedTopic(self._config, control_topics.HISTORY, keep=lambda key: key.startswith(prefix))
        with closing(topic):
            return generation_histories(name, topic.read())


def generation_histories(name: str, view: Mapping[bytes, bytes]) -> list[GenerationHistory]:
    """Return the generations of a transform that have an event, oldest first, from its records of the history topic.

    They are in the order of the topic. A record that this release cannot read, or whose key is not its own, is skipped
    with a warning.
    """
    events: dict[int, list[DeploymentEvent]] = {}
    starts: dict[tuple[str, str], list[GenerationStart]] = {}
    for key, value in view.items():
        try:
            match _decoded(name, key, value):
                case DeploymentEvent() as event:
                    events.setdefault(event.deployment.generation, []).append(event)
                case GenerationStart() as start:
                    starts.setdefault((start.job, start.topic_id), []).append(start)
        except UnsupportedSpecVersion as error:
            record = f"{control_topics.HISTORY} {key.decode(errors='replace')}"
            logger.warning("record %s is skipped: %s", bounded_line(record), bounded_line(error))
    offsets: dict[int, list[GenerationOffsets]] = {}
    for job in sorted(starts):
        for each in _offsets(name, starts[job], view):
            offsets.setdefault(each.start.generation, []).append(each)
    return [
        GenerationHistory(number=number, events=tuple(events[number]), offsets=tuple(offsets.get(number, ())))
        for number in sorted(events)
    ]


def read_events(config: KafkaConfig, prefix: str, kind: type[T]) -> list[T]:
    """Return the documents of the history topic under keys with a prefix, oldest first.

    One that this release cannot read is skipped with a warning. Raises BrokerUnavailable.
    """
    control_topics.ensure(config)
    start = prefix.encode()
    with closing(CompactedTopic(config, control_topics.HISTORY, keep=lambda key: key.startswith(start))) as topic:
        view = topic.read()
    events = []
    for key, value in view.items():
        try:
            events.append(decode(kind, value))
        except UnsupportedSpecVersion as error:
            logger.warning("record %s is skipped: %s", bounded_line(key.decode(errors="replace")), bounded_line(error))
    return events


def event_record(event: DeploymentEvent, unique: str = "") -> TopicRecord:
    """Return the record of an event; with ``unique``, under the same key each time."""
    deployment = event.deployment
    key = f"{deployment.spec.name}/{deployment.generation}/event/{unique or uuid.uuid4().hex}"
    return TopicRecord(control_topics.HISTORY, key.encode(), encode(event))


def start_record(name: str, start: GenerationStart) -> TopicRecord:
    """Return the record of the start of a generation of the transform ``name``."""
    return TopicRecord(
        control_topics.HISTORY, f"{name}/{start.generation}/start/{uuid.uuid4().hex}".encode(), encode(start)
    )


def report_record(name: str, generation: int, topic_id: str, report: JobReport) -> TopicRecord:
    """Return the record of the last report of a job before it began another generation."""
    result = {key: value for key, value in report.result.items() if key != "batches"}
    key = _report_key(name, generation, report.job, topic_id)
    return TopicRecord(control_topics.HISTORY, key, encode(replace(report, result=result)))


def _report_key(name: str, generation: int, job: str, topic_id: str) -> bytes:
    return f"{name}/{generation}/report/{job}/{topic_id}".encode()


def _decoded(name: str, key: bytes, value: bytes) -> DeploymentEvent | GenerationStart | None:
    """Return the event or the start of a record, None for another kind. Raises UnsupportedSpecVersion."""
    number, _, rest = key.removeprefix(f"{name}/".encode()).partition(b"/")
    if rest.startswith(b"event/"):
        event = decode(DeploymentEvent, value)
        found, generation = event.deployment.spec.name, event.deployment.generation
    elif rest.startswith(b"start/"):
        start = decode(GenerationStart, value)
        found, generation = name, start.generation
    else:
        return None
    if (found, b"%d" % generation) != (name, number):
        raise UnsupportedSpecVersion(f"it is about generation {generation} of {found}, not about that of its key")
    return event if rest.startswith(b"event/") else start


def _report(name: str, start: GenerationStart, view: Mapping[bytes, bytes]) -> JobReport | None:
    data = view.get(_report_key(name, start.generation, start.job, start.topic_id))
    try:
        return decode(JobReport, data) if data is not None else None
    except UnsupportedSpecVersion as error:
        logger.warning("a report of job %s in the history of %s is skipped: %s", start.job, name, bounded_line(error))
        return None


def _offsets(name: str, starts: list[GenerationStart], view: Mapping[bytes, bytes]) -> list[GenerationOffsets]:
    """Return what one job processed of one topic: a generation ends where the job began the next one.

    The starts are in the order of the topic, that of the job's claims.
    """
    return [
        GenerationOffsets(start=start, end=then.offsets if then else None, report=_report(name, start, view))
        for start, then in zip(starts, [*starts[1:], None], strict=True)
    ]
