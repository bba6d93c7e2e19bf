"""The base of operators that run a Spark job and wait for it."""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
from airflow.configuration import conf as airflow_conf
from airflow.sdk import BaseHook, ResumableJobMixin
from airflow.sdk.exceptions import (
    AirflowException,
    AirflowNotFoundException,
    AirflowSkipException,
    AirflowTaskTimeout,
    TaskDeferralTimeout,
    TaskDeferred,
)

from wasmline.errors import InvalidJob, InvalidKafkaConfig, JobFailed, JobNotFound, PrerequisiteMissing
from wasmline.log_end import log_end
from wasmline.repeated_errors import error_line
from wasmline_provider.argument_checks import (
    given,
    is_final,
    require_jobs,
    require_locations,
    require_mapping,
    require_numbers,
)
from wasmline_provider.hooks.kafka import KafkaHook
from wasmline_provider.hooks.wasmline import Locations, WasmlineHook
from wasmline_provider.job_client import HEARTBEAT_TIMEOUT_S
from wasmline_provider.links import JOB_STATUS, SPARK_UI
from wasmline_provider.operators.failures import fail_at_once
from wasmline_provider.operators.multiple_outputs import MultipleOutputsOperator
from wasmline_provider.run_identity import task_instance_name
from wasmline_provider.triggers.job import UNKNOWN_CONNECTION, JobTrigger

if TYPE_CHECKING:
    from airflow.sdk import Context

    from wasmline.control import ChangeCause, StoppedBy
    from wasmline.job_specs import JobReport, JobSpec
    from wasmline.kafka import KafkaConfig
    from wasmline_provider.driver_placement import DriverPlacement
    from wasmline_provider.hooks.spark import SparkJobHook
    from wasmline_provider.job_client import JobClient, JobRun, SilentRun
    from wasmline_provider.task_instance_state import TaskInstanceKey

OUTDATED = "outdated"
"""The status of a run whose result the task does not take: it runs another."""

DEFERRABLE = airflow_conf.getboolean("operators", "default_deferrable", fallback=False)


class SparkJobOperator(ResumableJobMixin, MultipleOutputsOperator):
    """Runs one job on Spark: ensures that it runs, waits for its last report and returns its result.

    The driver belongs to the job, not to the task: it survives the death of a worker or triggerer, and a restarted task
    waits for the run it finds. How the run was ensured is in the task's log and in the result's ``action``; see
    JobClient.ensure. A cleared task takes the result of its run that succeeded, unless its specification has
    changed. A user's kill (mark failed, clear) and ``execution_timeout``, which also counts while the task is deferred,
    stop the run at its next safe point; the driver is never killed. A worker that is shut down or evicted ends the
    task's process only: the run goes on, and the next try waits for it, as it does for the run of a deferred task that
    is cleared. Where a newer run has replaced the run of a continuous stream, the task succeeds with
    ``{"state": "replaced", "job": …, "run": …, "replaced_by": …}``.

    :param job: the job's name. Its checkpoint and its consumer group belong to it.
    :param storage: the folder or object-store URL for the job's data, such as checkpoints; None for that of the
        connection.
    :param kafka_conn_id: Airflow's connection to the cluster.
    :param spark_conn_id: Airflow's connection that names the Spark master.
    :param wasmline_conn_id: Airflow's connection with the URLs that are not given, and the login to their store, which
        a driver that is started here has in its environment.
    :param conf: Spark settings; secrets belong elsewhere.
    :param jars: comma-separated jars with Spark's Kafka connector, in place of the bundled ones.
    :param spark_options: other arguments of the Spark provider's SparkSubmitHook, such as ``driver_memory``.
    :param launcher: the name of a running ``wasmline launcher`` that starts the driver on its machine; None starts it
        here, where it has to outlive the task, or on the cluster, in the connection's deploy mode cluster.
    :param application: in deploy mode cluster, the URL of ``wasmline/spark/main.py`` for the driver; see SparkJobHook.
    :param deferrable: wait on the triggerer, without holding a worker.
    :param heartbeat_seconds: seconds without a heartbeat of the driver before the run counts as lost.
    """

    template_fields: Sequence[str] = (
        "job",
        "storage",
        "kafka_conn_id",
        "spark_conn_id",
        "wasmline_conn_id",
        "conf",
        "jars",
        "spark_options",
        "launcher",
        "application",
    )
    template_fields_renderers = {"conf": "json", "spark_options": "json"}
    output_keys: ClassVar[tuple[str, ...]] = ("job", "run", "state", "action", "changed", "replaced_by")
    optional_keys: ClassVar[tuple[str, ...]] = ("action", "changed", "replaced_by")
    external_id_key = "wasmline_run"
    ui_color = "#e8f1fb"
    operator_extra_links = (JOB_STATUS, SPARK_UI)

    def __init__(
        self,
        *,
        job: str,
        storage: str | None = None,
        kafka_conn_id: str = KafkaHook.default_conn_name,
        spark_conn_id: str = "spark_default",
        wasmline_conn_id: str = WasmlineHook.default_conn_name,
        conf: Mapping[str, Any] | None = None,
        jars: str | None = None,
        spark_options: Mapping[str, Any] | None = None,
        launcher: str | None = None,
        application: str | None = None,
        deferrable: bool = DEFERRABLE,
        heartbeat_seconds: float = HEARTBEAT_TIMEOUT_S,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.job = job
        self.storage = storage
        self.kafka_conn_id = kafka_conn_id
        self.spark_conn_id = spark_conn_id
        self.wasmline_conn_id = wasmline_conn_id
        self.conf = conf
        self.jars = jars
        self.spark_options = spark_options
        self.launcher = launcher
        self.application = application
        self.deferrable = deferrable
        self.heartbeat_seconds = heartbeat_seconds
        self._task: TaskInstanceKey | None = None
        self._running: Mapping[str, str] | None = None
        """The run that a kill of the task stops."""
        self._starting = False
        """Whether it is being ordered or adopted."""
        self._starts_driver = self._is_killed = False
        """Whether its driver is being started, and whether a kill came meanwhile."""
        self._end: AirflowException | None = None
        """What ``on_kill`` has raised to end this process."""
        self._has_deferred = False
        self.has_run_ended = False
        """Whether the run that the task waited for has ended."""
        self._settings: dict[str, Any] | None = None
        self._locations: Locations | None = None
        self._replaced: dict[str, Any] | None = None
        """The result of a run that a newer one has replaced."""
        require_jobs(job)
        require_locations(InvalidJob, storage=storage)
        require_numbers(InvalidJob, 1, heartbeat_seconds=heartbeat_seconds)
        self._check_spark()

    def _check_spark(self) -> None:
        """Reject settings of Spark that cannot run, as far as they and the connection are known at this time.

        Raises ValueError, InvalidJob, PrerequisiteMissing.
        """
        require_mapping(InvalidJob, conf=self.conf, spark_options=self.spark_options)
        conf, options = self.conf or {}, self.spark_options or {}
        if not (isinstance(conf, Mapping) and isinstance(options, Mapping)):
            return  # another task's result, or a template
        settings = (self.spark_conn_id, self.launcher, self.application, self.jars, *conf, *conf.values())
        if not all(is_final(each) for each in (*settings, *options.values())):
            return
        try:
            if BaseHook.get_connection(self.spark_conn_id).extra_dejson.get("keytab"):
                return  # Spark's hook would write it to a file
            spark = self._spark()
        except (AirflowNotFoundException, PermissionError, PrerequisiteMissing):
            return  # they may be there where the task runs, which fails otherwise
        if self.launcher:
            spark.launch_arguments()
        else:
            spark.require_deploy_mode()

    @abstractmethod
    def spec(self, context: Context) -> JobSpec:
        """Return the order with an empty ``run``."""

    @abstractmethod
    def result(self, report: JobReport, context: Context) -> dict[str, Any]:
        """Return the result of a successful run, small enough for XCom.

        The report is a record of the cluster, and each key an XCom: the task returns those of ``output_keys`` only.
        """

    def locations(self) -> Locations:
        """Return where the job's data is: as given, else as the connection says, which is read once in a try.

        Raises InvalidLocation, AirflowNotFoundException.
        """
        if self._locations is None:
            urls = {name: given(url) for name, url in self.given_locations().items()}
            self._locations = WasmlineHook(self.wasmline_conn_id).locate(**urls)
        return self._locations

    def given_locations(self) -> dict[str, Any]:
        """Return the arguments with the locations that the job needs, None for one that is not given."""
        return {"storage": self.storage}

    def event_facts(self, kafka: KafkaConfig) -> dict[str, Any]:
        """Return what the events of the task's outlets have besides the result."""
        return {}

    def is_reusable(self, report: JobReport) -> bool:
        """Return whether a later try of the task takes the result of this successful run."""
        return True

    @property
    def restarts_stopped(self) -> bool:
        """Whether the task starts a job that a user has stopped."""
        return True

    @property
    def may_be_stopped(self) -> bool:
        """Whether a run that was stopped from outside counts as successful."""
        return False

    @fail_at_once
    def execute(self, context: Context) -> Any:
        self._task = context["ti"]
        self._starting = True
        store = context.get("task_state_store")
        earlier: Any = store.get(self.external_id_key) if store else None
        self._running = earlier or None
        JOB_STATUS.publish(self._task, self._task.log_url)
        if not self.deferrable:
            return self.execute_resumable(context)
        return self._execute_deferred(context, earlier)

    def _execute_deferred(self, context: Context, earlier: Any) -> dict[str, Any]:
        store = context.get("task_state_store")
        if earlier and self.is_job_succeeded(self.get_job_status(earlier, context)):
            return self.get_job_result(earlier, context)  # an earlier try ended after its run
        run = self.submit_job(context)
        if store:
            store.set(self.external_id_key, run)
        self._has_deferred = True
        if (by := self._killed_by()) is not None:  # Airflow would refuse the deferral, without a signal
            self._stop(run, by=by)
        raise TaskDeferred(
            trigger=JobTrigger(
                job=run["job"],
                run=run["run"],
                log=run["log"],
                kafka_conn_id=self.kafka_conn_id,
                heartbeat_seconds=self.heartbeat_seconds,
            ),
            method_name=self.execute_complete.__name__,
            timeout=self._time_left(context),
        )

    def _time_left(self, context: Context) -> timedelta | None:
        """Return the time until ``execution_timeout``, counted from the start of this try."""
        if self.execution_timeout is None:
            return None
        began = context["ti"].start_date
        return max(timedelta(0), self.execution_timeout - (datetime.now(UTC) - began))

    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context) -> Any:
        """Resume as Airflow does; after ``execution_timeout`` the run is stopped, which no trigger does."""
        try:
            return super().resume_execution(next_method, next_kwargs, context)
        except TaskDeferralTimeout:
            store = context.get("task_state_store")
            run: Any = store.get(self.external_id_key) if store else None
            if run:
                self._stop(run, by="system")
            else:
                self.log.error(
                    "the run of job %s is not known any more, and runs on: stop it with: wasmline stop %s",
                    self.job,
                    self.job,
                )
            raise

    @fail_at_once
    def execute_complete(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        """Return the result of the run that the trigger waited for, or fail with its reason."""
        self.has_run_ended = True
        run = {name: event[name] for name in ("job", "run", "log")}
        if event["state"] == UNKNOWN_CONNECTION:
            raise InvalidKafkaConfig(event["message"], key="kafka_conn_id")
        if event["state"] in ("lost", "replaced"):
            return self._without_report(run, event["state"], event["message"], event.get("replaced_by", ""))
        store = context.get("task_state_store")
        ordered: Any = store.get(self.external_id_key) if store else None
        return self.get_job_result({**(ordered or {}), **run}, context)

    def on_kill(self) -> None:
        """Stop the run that the task waits for; without one, or if only the task's process is to end, do not.

        Raises AirflowException in the latter case, and while a run is being started or adopted: Airflow's handler of
        SIGTERM would let the task go on until SIGKILL.
        """
        if self._starts_driver:  # neither may the driver be left without its order's report, nor reported as failed
            self._is_killed = True
            return
        starting, self._starting = self._starting, False  # a second signal finds nothing to do
        run = self._running
        by = self._killed_by() if run is not None else None
        if run is not None and by is not None:
            self._stop(run, by=by)
        elif run is not None and not self._has_deferred:
            self._running = None
            raise self._ended(
                f"this process is to end, and nobody has ended the task: job {run['job']}, run {run['run']}, goes on, "
                f"and a next try of the task waits for it. To stop it: wasmline stop {run['job']}"
            )
        if starting and not isinstance(sys.exc_info()[1], AirflowTaskTimeout):
            raise self._ended(f"this process is to end while it starts or adopts a run of job {self.job}")

    def _ended(self, message: str) -> AirflowException:
        """Return the error that ends this process; if anything catches it, no run is ordered later."""
        self._end = AirflowException(message)
        return self._end

    def _killed_by(self) -> StoppedBy | None:
        """Return who has ended the task; None if nobody has, or if Airflow does not say so, which is logged."""
        from wasmline_provider.task_instance_state import killed_by

        if isinstance(sys.exc_info()[1], AirflowTaskTimeout):  # no user then wants the job to stay stopped
            return "system"
        if self._task is None:
            return "user"
        try:
            return killed_by(self._task)
        except Exception as error:
            self.log.error("Airflow does not say whether the task was ended: %s", error_line(error))
            return None

    def _stop(self, run: Mapping[str, str], *, by: StoppedBy) -> None:
        from wasmline_provider.run_wait import stop_run
        from wasmline_provider.stop_writer import stop_failure_message

        try:
            settings = self._settings or KafkaHook(self.kafka_conn_id).get_settings()
        except Exception as error:
            self.log.error("%s", stop_failure_message(run["job"], run["run"], str(error)))
        else:
            stop_run(settings, to_job_run(run), self.log, by=by)

    def _without_report(self, run: Mapping[str, str], state: str, message: str, replaced_by: str) -> dict[str, Any]:
        """Return the result of a stream that a newer run replaced. Raises JobFailed for any other run."""
        if state == "replaced" and self.may_be_stopped:
            self.log.info("%s", message)
            return self._returns({"state": state, "job": run["job"], "run": run["run"], "replaced_by": replaced_by})
        end = log_end(Path(run["log"])) if state == "lost" else ""
        raise JobFailed(
            f"{message}. It ends with:\n{end}" if end else message,
            report={"job": run["job"], "run": run["run"], "state": state},
        )

    def submit_job(self, context: Context) -> Any:
        self._starting = True
        self._require_no_end()
        run = self._submit_job(context)
        if self._is_killed:
            self.on_kill()
        self._starting = False
        return run

    def _require_no_end(self) -> None:
        if self._end is not None:
            raise self._end

    def _submit_job(self, context: Context) -> dict[str, Any]:
        from wasmline.digests import digest_of
        from wasmline.documents import encode, plain
        from wasmline_provider.job_client import task_instance_key

        ti = context["ti"]
        self._settings = KafkaHook(self.kafka_conn_id).get_settings()
        kafka = KafkaHook(self.kafka_conn_id).get_conn()
        spark = self._spark()
        placement = self._placement(spark, kafka)  # raises before anything is ordered
        spec, login = self.spec(context), self.locations().login

        def before_order(run: JobRun) -> None:
            self._require_no_end()
            if placement.launch_request is None:
                spark.prepare(Path(run.log))
            self._running = plain(run)  # a kill stops it from now on

        def start_driver(run: JobRun) -> None:
            self._starts_driver = True
            try:
                spark.start_driver(run.job, run.run, kafka, Path(run.log), login)
            finally:
                self._starts_driver = False

        with self._client() as client:
            ensured = client.ensure(
                spec,
                task_instance_key(ti.dag_id, ti.run_id, ti.task_id, ti.map_index),
                placement.log_folder,
                start_driver,
                before_order=before_order,
                launch_request=placement.launch_request,
                submit_digest=spark.settings_digest(self.launcher, login),
                restart_stopped=self.restarts_stopped,
                earlier_run=self._earlier_run(context),
                silent_run=self._silent_run(context),
                cause=self._cause(context),
            )
        if ensured.action == "left_stopped":
            raise AirflowSkipException(
                f"{ensured}: a user has stopped the job. To start it again: wasmline delete {self.job}, and a new try"
            )
        if ensured.action in ("started", "restarted"):
            self.log.info("%s; on %s; %s %s", ensured, spark.master, placement.description, ensured.run.log)
            if login is not None and (placement.launch_request is not None or spark.on_cluster):
                self.log.info("the driver starts elsewhere, and needs a login to the object store of its own there")
        else:
            self.log.info("%s; its driver's output is on the machine that started it", ensured)
        self._running = plain(ensured.run)
        return {
            **plain(ensured.run),
            "spec": digest_of(encode(spec)),
            "action": ensured.action,
            "changed": list(ensured.changed),
        }

    def _earlier_run(self, context: Context) -> str:
        """Return the run that an earlier try of this task waited for, "" in a first try, also after the task was
        cleared."""
        ti, store = context["ti"], context.get("task_state_store")
        earlier: Any = store.get(self.external_id_key) if store else None
        if not earlier or ti.try_number <= ti.max_tries - (self.retries or 0) + 1:
            return ""
        return str(earlier["run"])

    def _cause(self, context: Context) -> ChangeCause:
        """Return the user and the task, for the order of a run."""
        from wasmline.control import ChangeCause

        ti, dag_run = context["ti"], context.get("dag_run")
        user = getattr(dag_run, "triggering_user_name", None) or self.owner
        return ChangeCause(by=user, run=task_instance_name(ti))

    def _silent_run(self, context: Context) -> SilentRun | None:
        """Return the run of this job that the DeadStreamTrigger of this run of the DAG has watched in vain."""
        from wasmline_provider.job_client import SilentRun

        events = context.get("triggering_asset_events") or {}
        for payload in (event.extra.get("payload") for each in events.values() for event in each):
            with suppress(msgspec.ValidationError):  # of another trigger
                for dead in msgspec.convert(payload, _DeadRuns).jobs:
                    if (dead.job, dead.state) == (self.job, "lost"):
                        return SilentRun(run=dead.run, updated_ms=dead.updated_ms)
        return None

    def get_job_status(self, external_id: Any, context: Context) -> str:
        """Return the state of a run; OUTDATED if the task has another specification by now, or cannot reuse it."""
        from wasmline.digests import digest_of
        from wasmline.documents import encode
        from wasmline.job_specs import JobState

        if external_id.get("spec") != digest_of(encode(self.spec(context))):
            return OUTDATED
        run = to_job_run(external_id)
        with self._client() as client:
            state = client.state(run)
            if state is JobState.SUCCEEDED and not self.is_reusable(client.report(run)):
                return OUTDATED
        return str(state)

    def is_job_active(self, status: str) -> bool:
        return status in ("starting", "running")

    def is_job_succeeded(self, status: str) -> bool:
        return status == "succeeded"

    def poll_until_complete(self, external_id: Any, context: Context) -> Any:
        from wasmline_provider.run_wait import await_end

        self._running, self._starting = external_id, False
        self._settings = KafkaHook(self.kafka_conn_id).get_settings()
        end = await_end(
            self._settings,
            to_job_run(external_id),
            self.log,
            heartbeat_s=self.heartbeat_seconds,
            on_spark_ui=lambda url: SPARK_UI.publish(context["ti"], url),
        )
        self._running = None
        self.has_run_ended = True
        if end is not None and end.state in ("lost", "replaced"):
            self._replaced = self._without_report(external_id, end.state, end.message, end.replaced_by)
        # A task that reconnects returns this value; one that submitted requests the result afterwards.
        return self.get_job_result(external_id, context)

    def get_job_result(self, external_id: Any, context: Context) -> dict[str, Any]:
        from wasmline_provider.asset_events import record

        if self._replaced is not None:
            return self._replaced
        try:
            with self._client() as client:
                report = client.report(to_job_run(external_id))
        except JobNotFound as error:
            return self._without_report(external_id, "replaced", str(error), "")
        require_success(report, external_id["log"], may_be_stopped=self.may_be_stopped)
        ensured = {name: external_id[name] for name in ("action", "changed") if external_id.get(name)}
        own = {"job": report.job, "run": report.run, "state": report.state.value, **ensured}
        found = {**self.result(report, context), **own}
        result = {name: found[name] for name in (*own, *found) if name in self.output_keys}
        if self.outlets:
            kafka = KafkaHook(self.kafka_conn_id).get_conn()
            record(context, self.outlets, {**result, **self.event_facts(kafka)}, kafka=kafka)
        return self._returns(result)

    def _spark(self) -> SparkJobHook:
        from wasmline_provider.hooks.spark import SparkJobHook

        return SparkJobHook(
            self.spark_conn_id,
            name=f"wasmline {self.job}",
            conf=self.conf,
            jars=self.jars,
            options=self.spark_options,
            application=self.application,
        )

    def _placement(self, spark: SparkJobHook, kafka: KafkaConfig) -> DriverPlacement:
        """Return where the driver is to run.

        Raises PrerequisiteMissing for a cluster that cannot run it, and EphemeralContainer where it would end with the
        task.
        """
        from wasmline_provider.driver_placement import place_driver

        folder = Path(airflow_conf.get("logging", "base_log_folder")) / "wasmline"
        return place_driver(spark, kafka, self.launcher, folder)

    @contextmanager
    def _client(self) -> Iterator[JobClient]:
        from wasmline.control import JobTopic
        from wasmline_provider.job_client import JobClient

        jobs = JobClient(JobTopic(KafkaHook(self.kafka_conn_id).get_conn()), heartbeat=self.heartbeat_seconds)
        try:
            yield jobs
        finally:
            jobs.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class _DeadRun:
    job: str
    run: str
    state: str
    updated_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _DeadRuns:
    """The payload of a DeadStreamTrigger."""

    jobs: tuple[_DeadRun, ...]


def to_job_run(external_id: Mapping[str, str]) -> JobRun:
    """Return the run that a task's external id names."""
    from wasmline_provider.job_client import JobRun

    return JobRun(job=external_id["job"], run=external_id["run"], log=external_id["log"])


def require_success(report: JobReport, log: str, *, may_be_stopped: bool) -> None:
    """Raise JobFailed with the reason of a run that has ended otherwise."""
    from wasmline.job_specs import JobState

    if report.state is JobState.FAILED or (report.state is JobState.STOPPED and not may_be_stopped):
        reason = f"{report.error}: {report.message}" if report.error else report.message or "no reason was given"
        raise JobFailed(
            f"job {report.job}, run {report.run}, {report.state.value}: {reason} (driver's output: {log})",
            report={"job": report.job, "run": report.run, "state": report.state.value, "error": report.error},
        )
