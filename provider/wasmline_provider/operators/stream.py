"""Operator that runs a deployed transform, or a Python function, over its topic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin, get_type_hints

from wasmline.errors import InvalidJob
from wasmline.job_specs import JobSpec, StreamSpec, stream_of
from wasmline_provider.argument_checks import conversion_fault, given, is_final, require_names
from wasmline_provider.hooks.kafka import KafkaHook
from wasmline_provider.links import JOB_STATUS, SPARK_UI
from wasmline_provider.operators.failures import fail_at_once
from wasmline_provider.operators.job import SparkJobOperator, require_success, to_job_run

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage
    from airflow.sdk import Context

    from wasmline.control import Deployment
    from wasmline.job_specs import JobReport
    from wasmline.kafka import KafkaConfig

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

OF_MODE = {
    "microbatch": ("max_offsets_per_trigger", "shards"),
    "parallel": ("max_concurrency", "commit_interval_ms", "lease_seconds", "tasks"),
}
"""The parameters of one mode alone that are None by default."""

CHOICES = {name: get_args(hint) for name, hint in get_type_hints(StreamSpec).items() if get_origin(hint) is Literal}


class SparkStreamOperator(SparkJobOperator):
    """Applies a deployment, or a Python function, to its input topic on Spark: until caught up, or continuously.

    Example::

        SparkStreamOperator(
            task_id="stream",
            job="delivery-distance",
            transform="delivery-distance",
            trigger_interval="1 second",
            deferrable=True,
        )

    The mode ``parallel`` is for functions that wait, such as for HTTP: many keys of each partition at a time, each in
    order. The module of the function is shipped with the job::

        SparkStreamOperator(
            task_id="enrich",
            job="enrich",
            function="enrichment:enrich",
            topic="orders",
            dead_letter_topic="orders.dlq",
            max_attempts=5,
            mode="parallel",
            ordering="key",
            max_concurrency=100,
            delivery="exactly_once",
            spark_options={"py_files": "/opt/airflow/dags/enrichment.py"},
        )

    A stream with a ``trigger_interval`` is ensured: a live run of the job with the same specification is adopted,
    whoever ordered it. In mode parallel a live run applies changes of ``tasks``, ``ordering``, ``max_concurrency``,
    ``commit_interval_ms``, ``lease_seconds`` and of a function's batches and retries. Any other change restarts it.
    ``action`` of the result is ``started``, ``adopted``, ``updated`` or ``restarted``, and ``changed`` names the
    fields. A second job that would run the same transform, or the same function on the same topic, raises DuplicateJob.

    Returns ``records_in``, ``records_out``, ``lost_offsets``, ``dead_letters`` by reason, ``batches``, ``partitions``,
    ``transform``, ``digest`` and ``generation``, and ``job``, ``run``, ``state`` and ``action``. For the other
    parameters see SparkJobOperator. Numbers may be text, as rendered by templates, and text that is empty or ``None``
    counts as None. Inconsistent parameters raise InvalidJob: when the DAG is parsed, or for templates, when the task
    runs. Those of the other mode are refused when the DAG is parsed; where the mode is a template, they are ignored.
    Each mode of a job continues where the other stopped.

    :param transform: the name of a deployment.
    :param function: instead of a transform ``module:name``, importable in Spark's tasks; in mode ``parallel``.
    :param topic: the input of a function; a deployment defines the topics and the dead letters of a transform.
    :param dead_letter_topic: the topic of records that a function dead-letters.
    :param batch_size: the maximum size of the lists of records for the function; None passes one record at a time.
    :param max_attempts: attempts before a record is dead-lettered; None is unlimited.
    :param retry_delay_ms: the pause before a record is retried, by default 1,000.
    :param mode: ``microbatch``, for transforms that compute, or ``parallel``, for functions that wait.
    :param delivery: ``at_least_once``, or ``exactly_once``: outputs and progress share transactions.
    :param trigger_interval: the time from one batch's start to the next's, in Spark's format; None ends the run when
        it has caught up with the topic's end at its start. A continuous run succeeds when it is stopped.
    :param starting_offsets: where the job's very first run begins; later runs continue.
    :param fail_on_data_loss: end the run with OffsetOutOfRange if retention removed records before they were read;
        False continues without them and counts them as ``lost_offsets``.
    :param fail_on_moved_progress: end the run with ProgressLost if the group's progress differs from what the last run
        left; False continues at the group's progress, as you have set it. Set it to False for one run only.
    :param max_offsets_per_trigger: the maximum number of records in a micro-batch.
    :param shards: the number of tasks over which each micro-batch is spread, by key.
    :param ordering: which records wait for each other in mode parallel: those of a ``key``, a ``partition``, or none
        (``unordered``).
    :param max_concurrency: how many calls run at a time in each task of mode parallel; None is 16 for a function, and
        one for each processor of the executor's machine for a transform.
    :param commit_interval_ms: how often mode parallel commits; None is 5,000, and 100 with ``exactly_once``.
    :param lease_seconds: the duration of a lease in mode parallel; a new generation and a stop end a lease at once.
    :param tasks: how many tasks share the partitions in mode parallel; None is one for each slot, at most one for each
        partition.
    :param wait_for_completion: False ends the task once the driver has started, or the run was found alive. The task
        returns ``job``, ``run``, ``state`` and ``action``, and a kill of it stops no run.
    :param restart_stopped: False skips the task, and starts nothing, if a user has stopped the job.
    :param metrics_port: serve metrics for Prometheus at this port of the driver's machine; 0 is any free one, which the
        driver's output names. Needs ``wasmline[metrics]`` there.
    """

    template_fields: Sequence[str] = (*SparkJobOperator.template_fields, *STREAM, *FUNCTION, "metrics_port")
    output_keys = (
        *SparkJobOperator.output_keys,
        *("transform", "digest", "generation", "records_in", "records_out", "dead_letters", "lost_offsets"),
        *("batches", "partitions"),
    )

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
        wait_for_completion: bool = True,
        restart_stopped: bool = True,
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
        self.wait_for_completion = wait_for_completion
        self.restart_stopped = restart_stopped
        self.metrics_port = metrics_port
        self._deployment: Deployment | None = None
        """The topics of its lineage, if Airflow sends any."""
        self._batches: Sequence[Mapping[str, Any]] = ()
        self._check()

    @fail_at_once
    def execute(self, context: Context) -> Any:
        return super().execute(context) if self.wait_for_completion else self._start(context)

    def on_kill(self) -> None:
        if not self.wait_for_completion:
            self._running = None  # to kill the task stops no run
        super().on_kill()

    def _start(self, context: Context) -> dict[str, Any]:
        """Ensure the run, and return it once its driver has started."""
        self._starting = True  # a signal ends the process
        JOB_STATUS.publish(context["ti"], context["ti"].log_url)
        ensured = self.submit_job(context)
        self._starting = True  # until the task knows that its driver has started
        if store := context.get("task_state_store"):
            store.set(self.external_id_key, ensured)
        with self._client() as client:
            report = client.await_start(to_job_run(ensured))
        SPARK_UI.publish(context["ti"], report.spark_ui)
        self._starting = False
        require_success(report, ensured["log"], may_be_stopped=self.may_be_stopped)
        self._read_lineage()
        names = ("job", "run", "action", "changed")
        return self._returns({"state": report.state.value, **{name: ensured[name] for name in names}})

    def get_openlineage_facets_on_start(self) -> OperatorLineage[Any, Any]:
        """Return what the stream is to read and write: one that goes on for ever has no other event.

        The deployment is read in the forked process, in which there is no other Kafka client yet.
        """
        self._deployment = self._read_deployment()
        return super().get_openlineage_facets_on_start()

    def get_job_result(self, external_id: Any, context: Context) -> dict[str, Any]:
        self._read_lineage()
        return super().get_job_result(external_id, context)

    def _without_report(self, run: Mapping[str, str], state: str, message: str, replaced_by: str) -> dict[str, Any]:
        self._read_lineage()
        return super()._without_report(run, state, message, replaced_by)

    def _read_lineage(self) -> None:
        """Read once what the lineage needs of Kafka, before Airflow forks the process that sends it."""
        from wasmline_provider.openlineage.settings import sends_lineage

        if self._deployment is None and sends_lineage():
            self._deployment = self._read_deployment()

    def _read_deployment(self) -> Deployment | None:
        from wasmline_provider.openlineage.deployment_reader import read_deployment

        transform = given(self.transform)
        return read_deployment(KafkaHook(self.kafka_conn_id).get_conn(), transform) if transform else None

    def _lineage(self, result: Mapping[str, Any] | None) -> OperatorLineage[Any, Any]:
        from wasmline_provider.openlineage.stream_lineage import function_lineage, transform_lineage

        spec = self._spec(given(self.storage) or "-")
        stream = stream_of(spec)
        if result is not None:
            result = {**result, "batches": self._batches}
        if stream.function is not None:
            return function_lineage(self.kafka_conn_id, spec, stream.function, result)
        return transform_lineage(self.kafka_conn_id, spec, stream.transform, self._deployment, result)

    @property
    def restarts_stopped(self) -> bool:
        return self.restart_stopped

    @property
    def may_be_stopped(self) -> bool:
        return given(self.trigger_interval) is not None

    def spec(self, context: Context) -> JobSpec:
        return self._spec(self.locations().storage)

    def result(self, report: JobReport, context: Context) -> dict[str, Any]:
        # A stopped run may have no batch, and its report then has no totals.
        self._batches = report.result.get("batches", [])
        return {**report.result, "batches": len(self._batches)}

    def event_facts(self, kafka: KafkaConfig) -> dict[str, Any]:
        from wasmline_provider.asset_events import read_offsets

        return read_offsets(kafka, self.job)

    def _check(self) -> None:
        """Reject parameters that cannot run, as far as they are known before templates are rendered."""
        require_names(InvalidJob, transform=self.transform, topic=self.topic, dead_letter_topic=self.dead_letter_topic)
        if is_final(self.mode):  # a template may name either mode, and have the parameters of both
            self._require_used(_chosen("mode", given(self.mode) or "microbatch"))
        if all(is_final(getattr(self, name)) for name in ("job", "storage", *STREAM, *FUNCTION, "metrics_port")):
            self._spec(self.storage or "-")  # that of the connection, which is not read now
            return
        for name in CHOICES:
            if is_final(value := getattr(self, name)):
                _chosen(name, value)

    def _require_used(self, mode: str) -> None:
        for other, names in OF_MODE.items():
            values = {name: given(getattr(self, name)) for name in names if other != mode}
            if unused := [name for name, value in values.items() if value is not None and is_final(value)]:
                raise InvalidJob(f"{', '.join(unused)}: for mode {other} only, and mode is {mode!r}")

    def _spec(self, storage: str) -> JobSpec:
        import msgspec

        stream = {name: value for name in STREAM if (value := given(getattr(self, name))) is not None}
        stream |= {name: _chosen(name, value) for name, value in stream.items() if name in CHOICES}
        function = {name: value for name in FUNCTION if (value := given(getattr(self, name))) is not None}
        if "function" in function:
            stream["function"] = {"topic": "", **function}
        elif function:
            raise InvalidJob(f"{', '.join(function)}: for a function only; a deployment has its own")
        try:
            return msgspec.convert(
                {
                    "job": self.job,
                    "run": "",
                    "storage": storage,
                    "stream": stream,
                    "metrics_port": given(self.metrics_port),
                },
                JobSpec,
                strict=False,
            )
        except msgspec.ValidationError as error:
            raise InvalidJob(f"job {self.job} cannot be ordered: {conversion_fault(error)}") from error


def _chosen(name: str, value: Any) -> Any:
    chosen = value.strip().lower() if isinstance(value, str) else value
    if chosen not in CHOICES[name]:
        raise InvalidJob(f"{name} is {value!r}: one of {', '.join(CHOICES[name])}")
    return chosen
