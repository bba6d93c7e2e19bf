"""Runs a deployed transform, or a Python function, over its topic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin, get_type_hints

from wasmline.errors import InvalidJob
from wasmline.jobs import JobSpec, StreamSpec
from wasmline_provider.operators.job import SparkJobOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from wasmline.jobs import JobReport

FUNCTION = ("function", "topic", "dead_letter_topic", "batch_size", "max_attempts", "retry_delay_ms")
"""The parameters that are a FunctionSpec's fields."""

STREAM = (
    "transform",
    "mode",
    "delivery",
    "trigger_interval",
    "starting_offsets",
    "fail_on_data_loss",
    "fail_on_moved_progress",
    "max_offsets_per_trigger",
    "shards",
    "ordering",
    "max_concurrency",
    "commit_interval_ms",
    "lease_seconds",
    "tasks",
)
"""The parameters that are a StreamSpec's fields."""

CHOICES = {name: get_args(hint) for name, hint in get_type_hints(StreamSpec).items() if get_origin(hint) is Literal}


class SparkStreamOperator(SparkJobOperator):
    """Applies a deployment, or a Python function, to its input topic on Spark: until caught up, or for ever.

    Example::

        SparkStreamOperator(
            task_id="stream",
            job="delivery-distance",
            transform="delivery-distance",
            storage="s3://bucket/wasmline",
            trigger_interval="1 second",
            deferrable=True,
        )

    The mode ``parallel`` is for functions that wait, such as for HTTP: many keys of each partition at a time, each in
    order. The module of the function goes along::

        SparkStreamOperator(
            task_id="enrich",
            job="enrich",
            function="enrichment:enrich",
            topic="orders",
            dead_letter_topic="orders.dlq",
            max_attempts=5,
            mode="parallel",
            ordering="KEY",
            max_concurrency=100,
            delivery="exactly_once",
            storage="s3://bucket/wasmline",
            spark_options={"py_files": "/opt/airflow/dags/enrichment.py"},
        )

    Returns ``records_in``, ``records_out``, ``lost_offsets``, ``dead_letters`` by reason, ``batches``, ``partitions``,
    ``digest`` and ``generation``. For the other parameters see SparkJobOperator. Numbers may be text, as templates give
    them, and text that is empty or ``None`` is as good as none. What does not fit together raises InvalidJob: when the
    DAG is parsed, and where templates have a say, when the task runs. The two modes of a job go on where the other
    stopped.

    :param transform: the name of a deployment.
    :param function: in its place ``module:name``, importable where Spark's tasks run; in mode ``parallel``.
    :param topic: what a function reads; a transform's topics are its deployment's, and so are its dead letters'.
    :param dead_letter_topic: where the records go that a function gives up.
    :param batch_size: give the function lists of up to so many records; None gives it one at a time.
    :param max_attempts: give a record up after so many tries; None tries for ever.
    :param retry_delay_ms: the pause before a record is tried again, 1,000 unless said otherwise.
    :param mode: ``microbatch``, which suits what computes, or ``parallel``, which suits what waits.
    :param delivery: ``at_least_once``, or ``exactly_once``: outputs and progress share transactions.
    :param trigger_interval: the pause between batches, as Spark writes it; None ends the run when it has caught up with
        the end that the topic had at its start. A run for ever succeeds when it is stopped.
    :param starting_offsets: where the job's very first run begins; later runs continue.
    :param fail_on_data_loss: end the run with OffsetOutOfRange where retention removed records before they were read;
        False goes on without them and counts them as ``lost_offsets``.
    :param fail_on_moved_progress: end the run with ProgressLost where the group's progress is not what the last run
        left; False goes on where the group is, as you have set it. Let it be False for one run only.
    :param max_offsets_per_trigger: the most records in a micro-batch.
    :param shards: spread each micro-batch over so many tasks, by key.
    :param ordering: which records wait for each other in mode parallel: those of a ``key``, a ``partition``, or none
        (``unordered``).
    :param max_concurrency: how many calls run at a time in each task of mode parallel.
    :param commit_interval_ms: how often mode parallel commits.
    :param lease_seconds: how long mode parallel leaves its partitions to the tasks that hold them; a new generation and
        a stop end that at once.
    :param tasks: how many tasks share the partitions in mode parallel; None is one for each slot, as far as there are
        partitions.
    :param metrics_port: serve metrics for Prometheus at this port of the driver's machine; 0 is any free one, which the
        driver's output names. Needs ``wasmline[metrics]`` there.
    """

    template_fields: Sequence[str] = (*SparkJobOperator.template_fields, *STREAM, *FUNCTION, "metrics_port")

    def __init__(
        self,
        *,
        transform: str | None = None,
        function: str | None = None,
        topic: str | None = None,
        dead_letter_topic: str | None = None,
        batch_size: int | str | None = None,
        max_attempts: int | str | None = None,
        retry_delay_ms: int | str | None = None,
        mode: str = "microbatch",
        delivery: str = "at_least_once",
        trigger_interval: str | None = None,
        starting_offsets: str = "earliest",
        fail_on_data_loss: bool | str | None = None,
        fail_on_moved_progress: bool | str | None = None,
        max_offsets_per_trigger: int | str | None = None,
        shards: int | str | None = None,
        ordering: str = "key",
        max_concurrency: int | str | None = None,
        commit_interval_ms: int | str | None = None,
        lease_seconds: float | str | None = None,
        tasks: int | str | None = None,
        metrics_port: int | str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.transform = transform
        self.function = function
        self.topic = topic
        self.dead_letter_topic = dead_letter_topic
        self.batch_size = batch_size
        self.max_attempts = max_attempts
        self.retry_delay_ms = retry_delay_ms
        self.mode = mode
        self.delivery = delivery
        self.trigger_interval = trigger_interval
        self.starting_offsets = starting_offsets
        self.fail_on_data_loss = fail_on_data_loss
        self.fail_on_moved_progress = fail_on_moved_progress
        self.max_offsets_per_trigger = max_offsets_per_trigger
        self.shards = shards
        self.ordering = ordering
        self.max_concurrency = max_concurrency
        self.commit_interval_ms = commit_interval_ms
        self.lease_seconds = lease_seconds
        self.tasks = tasks
        self.metrics_port = metrics_port
        self._check()

    @property
    def may_be_stopped(self) -> bool:
        return _given(self.trigger_interval) is not None

    def spec(self, context: Context) -> JobSpec:
        return self._spec()

    def result(self, report: JobReport) -> dict[str, Any]:
        # A stopped run may have made no batch, and its report then has no totals.
        return {**report.result, "batches": len(report.result.get("batches", []))}

    def _check(self) -> None:
        """Refuse what cannot run, as far as it is known before the templates are rendered."""
        if all(_known(getattr(self, name)) for name in ("job", "storage", *STREAM, *FUNCTION, "metrics_port")):
            self._spec()
            return
        for name in CHOICES:
            if _known(value := getattr(self, name)):
                _chosen(name, value)

    def _spec(self) -> JobSpec:
        import msgspec

        stream = {name: value for name in STREAM if (value := _given(getattr(self, name))) is not None}
        stream |= {name: _chosen(name, value) for name, value in stream.items() if name in CHOICES}
        function = {name: value for name in FUNCTION if (value := _given(getattr(self, name))) is not None}
        if "function" in function:
            stream["function"] = {"topic": "", **function}
        elif function:
            raise InvalidJob(f"{', '.join(function)}: for a function only; a deployment has its own")
        try:
            return msgspec.convert(
                {
                    "job": self.job,
                    "run": "",
                    "storage": self.storage,
                    "stream": stream,
                    "metrics_port": _given(self.metrics_port),
                },
                JobSpec,
                strict=False,
            )
        except msgspec.ValidationError as error:
            raise InvalidJob(f"job {self.job} cannot be ordered: {error}") from error


def _known(value: Any) -> bool:
    """Say whether a parameter is what it will be when the task runs: neither a template nor another task's result."""
    return value is None or isinstance(value, int | float) or (isinstance(value, str) and "{" not in value)


def _given(value: Any) -> Any:
    """Return a parameter, or None where a template left nothing of it."""
    return None if isinstance(value, str) and value.strip() in ("", "None") else value


def _chosen(name: str, value: Any) -> Any:
    chosen = value.strip().lower() if isinstance(value, str) else value
    if chosen not in CHOICES[name]:
        raise InvalidJob(f"{name} is {value!r}: one of {', '.join(CHOICES[name])}")
    return chosen
