"""Operators that show what is on a cluster: jobs, history, logs of guests, dead letters and progress.

They change nothing. What they show is their result, an XCom, and in the task's log.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from wasmline.errors import InvalidRedrive, InvalidSpec, RecordNotFound
from wasmline_provider.argument_checks import (
    given,
    given_number,
    is_final,
    require_jobs,
    require_names,
    require_numbers,
    require_text,
)
from wasmline_provider.hooks.kafka import KafkaHook
from wasmline_provider.operators.failures import fail_at_once
from wasmline_provider.operators.multiple_outputs import MultipleOutputsOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from wasmline.control import Deployment, GenerationHistory, GenerationOffsets
    from wasmline.kafka import KafkaConfig

MAX_SHOWN = 1_000
"""Maximum number of lines, generations, changes or offsets in a result, which Airflow keeps in its database."""

MAX_TEXT = 20_000
"""Letters of a text in a result; the rest is cut."""


class _ClusterViewOperator(MultipleOutputsOperator):
    """Base of the operators that show something of a cluster.

    In a result, control characters are escapes of JSON's, as PostgreSQL takes no NUL, and long texts are cut.
    """

    template_fields: Sequence[str] = ("kafka_conn_id",)
    ui_color = "#f4f1e6"

    def __init__(
        self, *, kafka_conn_id: str = KafkaHook.default_conn_name, multiple_outputs: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(multiple_outputs=multiple_outputs, **kwargs)
        self.kafka_conn_id = kafka_conn_id

    @fail_at_once
    def execute(self, context: Context) -> dict[str, Any]:
        from wasmline.documents import encode
        from wasmline.printable import bounded_line

        result: dict[str, Any] = _shown(self._read(KafkaHook(self.kafka_conn_id).get_conn()))
        for name, value in result.items():
            for row in value if isinstance(value, list) else [value]:
                self.log.info("%s: %s", name, bounded_line(encode(row).decode()))
        return result

    def _read(self, config: KafkaConfig) -> dict[str, Any]:
        raise NotImplementedError


class ListJobsOperator(_ClusterViewOperator):
    """Lists the jobs of a cluster with the state of their runs, as ``wasmline jobs`` does.

    Example::

        ListJobsOperator(task_id="list", kafka_conn_id="kafka_default")

    Returns ``jobs``: of each its ``job``, ``run``, ``condition`` (the state of the run, or ``silent`` if its driver
    counts as dead), ``wanted``, ``mode``, ``delivery``, ``work`` (what it processes or trains), ``reported`` (the time
    of its last report), ``message``, and ``problem`` if its report cannot be read.

    :param kafka_conn_id: the connection of the cluster.
    """

    output_keys = ("jobs",)

    def _read(self, config: KafkaConfig) -> dict[str, Any]:
        from contextlib import closing

        from wasmline.clock import now_ms
        from wasmline.control import JobTopic
        from wasmline.moments import moment

        with closing(JobTopic(config)) as topic:
            found = topic.overviews()
        now = now_ms()
        jobs = [
            {
                "job": each.order.spec.job,
                "run": each.order.spec.run,
                "condition": each.condition(now),
                "wanted": each.wanted,
                "mode": each.mode,
                "delivery": each.delivery,
                "work": each.work,
                "reported": moment(each.report.updated_ms) if each.report else None,
                "message": each.message,
                "problem": each.problem,
            }
            for each in found
        ]
        return {"jobs": jobs}


class ShowHistoryOperator(_ClusterViewOperator):
    """Shows who changed a transform or a job, when and why, as ``wasmline history`` does.

    Example::

        ShowHistoryOperator(task_id="show", transform="delivery-distance")

    Returns ``changes``, oldest first: of a transform with ``generation``, ``state``, ``version``, ``digest``, ``time``,
    ``action``, ``by``, ``run`` and ``reason``; of a job with ``job_run``, ``time``, ``action``, ``by``, ``run`` and
    ``reason``. And ``offsets``: where each job began and ended a generation of the transform, by partition; an end is
    excluded, and None until the job begins the next generation. They are the last 1,000 at most.

    :param transform: the transform; or
    :param job: the job.
    :param limit: the number of the last generations, or of the last changes of a job; at most 1,000.
    :param kafka_conn_id: the connection of the cluster.
    """

    template_fields: Sequence[str] = ("transform", "job", "limit", *_ClusterViewOperator.template_fields)
    output_keys = ("changes", "offsets")

    def __init__(
        self, *, transform: str | None = None, job: str | None = None, limit: int | str | None = 100, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.transform = transform
        self.job = job
        self.limit = limit
        self._require_valid()

    def _require_valid(self) -> None:
        if is_final((self.transform, self.job)) and (given(self.transform) is None) == (given(self.job) is None):
            raise InvalidSpec("name a transform or a job, whose history it is, and not both")
        require_names(InvalidSpec, transform=self.transform)
        if given(self.job) is not None:
            require_jobs(self.job)
        require_numbers(InvalidSpec, 1, MAX_SHOWN, kind=int, limit=self.limit)

    def _read(self, config: KafkaConfig) -> dict[str, Any]:
        self._require_valid()
        if given(self.job) is not None:
            return {"changes": self._job_changes(config), "offsets": []}
        from contextlib import closing

        from wasmline.control import DeploymentTopic, HistoryTopic

        with closing(DeploymentTopic(config)) as deployments:
            current = deployments.get(str(self.transform))
        generations = HistoryTopic(config).generations(str(self.transform))[-_limit(self.limit) :]
        return {
            "changes": [change for each in generations for change in _changes(each, current)],
            "offsets": [row for each in generations for offsets in each.offsets for row in _offsets(offsets)][
                -MAX_SHOWN:
            ],
        }

    def _job_changes(self, config: KafkaConfig) -> list[dict[str, Any]]:
        from wasmline.control import read_job_events
        from wasmline.documents import plain
        from wasmline.moments import moment

        return [
            {"job_run": each.run, "time": moment(each.changed_ms), "action": each.action, **plain(each.cause)}
            for each in read_job_events(config, str(self.job))[-_limit(self.limit) :]
        ]


class ShowLogsOperator(_ClusterViewOperator):
    """Shows the last lines that the guests of a transform have logged in jobs, as ``wasmline logs --tail`` does.

    Example::

        ShowLogsOperator(task_id="show", transform="delivery-distance", since="15m")

    Returns ``lines``, oldest first: each with its ``time`` and its ``text``. The cluster keeps them for a day.

    :param transform: the transform.
    :param since: a time such as ``2026-11-26T16:00:00Z``, or an age such as ``15m``; None or empty for a day.
    :param limit: the number of lines, at most 1,000.
    :param kafka_conn_id: the connection of the cluster.
    """

    template_fields: Sequence[str] = ("transform", "since", "limit", *_ClusterViewOperator.template_fields)
    output_keys = ("lines",)

    def __init__(
        self, *, transform: str, since: str | None = None, limit: int | str | None = 200, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.transform = transform
        self.since = since
        self.limit = limit
        self._require_valid()

    def _require_valid(self) -> None:
        require_text(InvalidSpec, transform=self.transform)
        require_names(InvalidSpec, transform=self.transform)
        require_numbers(InvalidSpec, 1, MAX_SHOWN, kind=int, limit=self.limit)
        if is_final(self.since):
            self._since_ms()

    def _since_ms(self) -> int | None:
        """Return the time as Unix milliseconds. Raises InvalidSpec."""
        from wasmline.clock import now_ms
        from wasmline.moments import parse_moment_or_age

        since = given(self.since)
        try:
            return None if since is None else parse_moment_or_age(str(since), now_ms())
        except ValueError as error:
            raise InvalidSpec(f"since: {error}") from error

    def _read(self, config: KafkaConfig) -> dict[str, Any]:
        from collections import deque

        from wasmline.control import GuestLogReader
        from wasmline.moments import moment

        self._require_valid()
        found = GuestLogReader(config, self.transform, since_ms=self._since_ms()).read()
        lines = deque(found, _limit(self.limit))
        return {"lines": [{"time": moment(line.time_ms), "text": line.text} for line in lines]}


class ListDeadLettersOperator(_ClusterViewOperator):
    """Counts the dead letters of a topic by transform, error and source, or lists the topics.

    It is ``wasmline dead-letters list``.

    Example::

        ListDeadLettersOperator(task_id="list", topic="orders.dlq")

    Returns ``counts`` of the topic: ``transform``, ``error``, ``source_topic``, ``dead_letters``, ``pending`` (how many
    were not redriven), the times ``first`` and ``last``, and of the last one ``last_dead_letter``, its position such as
    ``orders.dlq-0@42``, and ``last_reason``. Without a topic it returns ``topics``: the dead-letter topics that
    deployments and jobs write to, each with its users. The other list is empty.

    :param topic: the dead-letter topic; None or empty for the topics that there are.
    :param kafka_conn_id: the connection of the cluster.
    """

    template_fields: Sequence[str] = ("topic", *_ClusterViewOperator.template_fields)
    output_keys = ("topics", "counts")

    def __init__(self, *, topic: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        require_names(InvalidRedrive, topic=topic)
        self.topic = topic

    def _read(self, config: KafkaConfig) -> dict[str, Any]:
        from wasmline.redrive.dead_letter_topics import find_dead_letter_topics

        if given(self.topic) is not None:
            return {"topics": [], "counts": _dead_letter_counts(config, str(self.topic))}
        found = find_dead_letter_topics(config)
        return {"topics": [{"topic": topic, "used_by": users} for topic, users in found.items()], "counts": []}


class ShowDeadLetterOperator(_ClusterViewOperator):
    """Shows one dead letter: its failure and the record that failed, as ``wasmline dead-letters show`` does.

    Example::

        ShowDeadLetterOperator(task_id="show", topic="orders.dlq", partition=0, offset=42)

    Returns ``dead_letter`` (its position), ``timestamp`` (Unix milliseconds), ``state`` (``pending`` or ``redriven``),
    ``error``, ``reason``, ``transform``, ``module``, ``source`` (the position of the record), ``key``, ``value``,
    ``headers`` and ``truncated_bytes``. Bytes that are no UTF-8 are ``{"base64": …}``; a value of more than 20,000
    letters is cut. Fails with RecordNotFound, also for a record that is no dead letter.

    :param topic: the dead-letter topic.
    :param partition: the partition of it.
    :param offset: the offset of the dead letter.
    :param kafka_conn_id: the connection of the cluster.
    """

    template_fields: Sequence[str] = ("topic", "partition", "offset", *_ClusterViewOperator.template_fields)
    output_keys = (
        "dead_letter",
        "timestamp",
        "state",
        "error",
        "reason",
        "transform",
        "module",
        "source",
        "key",
        "value",
        "headers",
        "truncated_bytes",
    )

    def __init__(self, *, topic: str, partition: int | str, offset: int | str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self._require_valid()

    def _require_valid(self) -> None:
        require_text(InvalidRedrive, topic=self.topic)
        for name in ("partition", "offset"):
            if given(getattr(self, name)) is None:
                raise InvalidRedrive(f"{name} must be set", topic=self.topic)
        require_names(InvalidRedrive, topic=self.topic)
        require_numbers(InvalidRedrive, 0, kind=int, partition=self.partition, offset=self.offset)

    def _read(self, config: KafkaConfig) -> dict[str, Any]:
        from wasmline.redrive import DeadLetterReader, dead_letter_document

        self._require_valid()
        reader = DeadLetterReader(config, self.topic)
        letter = reader.read_one(int(self.partition), int(self.offset))
        if letter.failure.error is None and letter.failure.reason is None:  # the form shows no other topics
            raise RecordNotFound(f"{letter.position} is no dead letter: it has no header wasmline.error")
        return dead_letter_document(letter, reader.state())


class ShowProgressOperator(_ClusterViewOperator):
    """Shows where the next run of a job continues, as ``wasmline progress show`` does.

    Example::

        ShowProgressOperator(task_id="show", job="delivery-distance")

    Returns ``job``, ``topic``, ``mode``, ``delivery``, ``problem`` (why the progress is lost, or empty) and
    ``partitions``: of each the offsets ``next``, ``committed``, ``start``, ``end`` (excluded) and the ``lag``.

    :param job: the job.
    :param kafka_conn_id: the connection of the cluster.
    """

    template_fields: Sequence[str] = ("job", *_ClusterViewOperator.template_fields)
    output_keys = ("job", "topic", "mode", "delivery", "problem", "partitions")

    def __init__(self, *, job: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        require_jobs(job)
        self.job = job

    def _read(self, config: KafkaConfig) -> dict[str, Any]:
        from wasmline.job_offsets.progress_change import read_progress
        from wasmline.job_offsets.progress_document import progress_document

        return progress_document(read_progress(config, self.job))


def _limit(rendered: int | str | None) -> int:
    return given_number(rendered) or MAX_SHOWN


def _shown(value: Any) -> Any:
    """Return JSON-able values for Airflow's database: texts printable and cut."""
    from wasmline.printable import printable

    if isinstance(value, str):
        text = printable(value[:MAX_TEXT], lines=True)
        return text if len(value) <= MAX_TEXT else f"{text}… ({len(value) - MAX_TEXT:,} letters more)"
    if isinstance(value, dict):
        return {_shown(name): _shown(each) for name, each in value.items()}
    return [_shown(each) for each in value] if isinstance(value, list) else value


def _changes(generation: GenerationHistory, current: Deployment) -> list[dict[str, Any]]:
    from wasmline.documents import plain
    from wasmline.moments import moment

    state = generation.state(current)
    return [
        {
            "generation": generation.number,
            "state": state,
            "version": event.deployment.spec.version,
            "digest": event.deployment.spec.digest,
            "time": moment(event.deployment.updated_ms),
            "action": event.action,
            "restored_generation": event.restored_generation,
            **plain(event.cause),
        }
        for event in generation.events
    ]


def _offsets(offsets: GenerationOffsets) -> list[dict[str, Any]]:
    start, end = offsets.start, offsets.end or {}
    return [
        {
            "generation": start.generation,
            "job": start.job,
            "topic": start.topic,
            "partition": partition,
            "start": start.offsets.get(partition),
            "end": end.get(partition),
        }
        for partition in offsets.partitions
    ]


def _dead_letter_counts(config: KafkaConfig, topic: str) -> list[dict[str, Any]]:
    from wasmline.moments import moment
    from wasmline.redrive import DeadLetterReader, count_dead_letters

    reader = DeadLetterReader(config, topic)
    return [
        {
            "transform": each.transform,
            "error": each.error,
            "source_topic": each.source_topic,
            "dead_letters": each.dead_letters,
            "pending": each.pending,
            "first": moment(each.first_ms),
            "last": moment(each.last_ms),
            "last_dead_letter": each.last_position,
            "last_reason": each.last_reason,
        }
        for each in count_dead_letters(reader.read(), reader.state())
    ]
