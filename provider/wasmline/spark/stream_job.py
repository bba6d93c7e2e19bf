"""One run of a streaming job in either mode: claim, supervision of the query, stop, final report."""

from __future__ import annotations

import logging
import math
import time
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import Generic

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from wasmline.clock import now_ms
from wasmline.control import DriverClaim, fenced_error
from wasmline.errors import DeploymentPaused, Fenced, KafkaError, ProducerFenced, WasmlineError
from wasmline.job_offsets.resume_offset_commit import reset_offsets
from wasmline.job_offsets.resume_plan import takeover_claim
from wasmline.job_specs import HEARTBEAT_INTERVAL_S, JobReport, JobSpec, JobState, StreamSpec
from wasmline.kafka import KafkaConfig
from wasmline.spark.driver_claim_builder import final_claim, first_claim
from wasmline.spark.driver_context import DriverContext, NewDriver
from wasmline.spark.job_query import JobQuery, PartitionsAdded
from wasmline.spark.run_planner import D, PlannedRun, PreparedRun, RunPlanner
from wasmline.spark.timings import DEFAULT_TIMINGS, POLL_INTERVAL_S, StreamTimings

log = logging.getLogger(__name__)

QUERY_STOP_TIMEOUT_S = 60.0
"""Seconds to wait for a running batch before the query is stopped."""

START_ATTEMPTS = 5
"""Planning attempts of a run that is fenced by an older driver meanwhile."""

MAX_REPORT_AGE_MS = 600_000
"""Maximum age of the report of a driver to wait for, in milliseconds: more than clock skew."""


class _StopRequested(Exception):
    """A stop was requested before the run took the job over."""


class _Superseded(Exception):
    """A driver that was started to replace this one has the job. No error of the cluster: no takeover tries again."""


class StreamJob(ABC, Generic[D]):
    """One run of a streaming job, from the claim to the final report. A subclass for each mode makes the query.

    The steps, each of which needs the result of the one before: PreparedRun, PlannedRun, JobQuery, StreamingQuery.
    """

    safe_point: str
    """The point at which a stop takes effect."""

    def __init__(
        self,
        spark: SparkSession,
        config: KafkaConfig,
        job: JobSpec,
        stream: StreamSpec,
        timings: StreamTimings = DEFAULT_TIMINGS,
        driver: NewDriver | None = None,
    ) -> None:
        self._context = DriverContext.open(spark, config, job, stream, timings, driver)
        self._reported = time.monotonic()

    def run(self) -> JobReport:
        """Run until caught up, stopped or failed; write the final report, and return it unless the run failed.

        Raises DeploymentNotFound, DeploymentPaused, TopicNotFound, ProgressLost and other obstacles to a start before
        any other driver is fenced; Fenced when a newer driver claimed the job, JobFailed with the cause for a failed
        query. The starting point of the next run changes only with the first claim of a checkpoint, once all is ready.
        """
        try:
            prepared = self._await_deployment()
            self._wait_for_earlier_driver()
            if self._poll_stop_request():
                return self._stopped_early()
            planner = RunPlanner(self._context, prepared)
            has_open_transactions = planner.check()
            self._context.claims.take_over(self._build_takeover_claim)
            self._context.records.open()
            while True:
                with suppress(PartitionsAdded):
                    return self._run_query(self._plan(planner, ends_transactions=has_open_transactions))
        except _StopRequested:
            return self._stopped_early()
        except _Superseded:
            raise fenced_error(self._context.job.job) from None
        finally:
            self._context.close()

    # -- defined by the mode -----------------------------------------------------------------------------------------

    @abstractmethod
    def _prepare(self) -> PreparedRun[D]:
        """Check whether the run can start; raise if not. Writes nothing that another driver uses."""

    @abstractmethod
    def _begin(self, run: PlannedRun[D]) -> JobQuery:
        """Return the query, which is not started yet. The group has the plan's offsets."""

    def _await_deployment(self) -> PreparedRun[D]:
        """Prepare the run; a continuous one waits while its deployment is paused, as a run that has started does."""
        context, reported = self._context, -math.inf
        while True:
            try:
                prepared = self._prepare()
            except DeploymentPaused as paused:
                if not context.job.is_continuous:
                    raise
                message = str(paused)
            else:
                if reported > 0:  # planning sends no heartbeats
                    self._report_before_takeover(JobState.STARTING, "the deployment was resumed")
                return prepared
            if self._poll_stop_request():
                raise _StopRequested
            if time.monotonic() - reported > HEARTBEAT_INTERVAL_S:
                self._report_before_takeover(JobState.RUNNING, message)
                reported = time.monotonic()
            time.sleep(POLL_INTERVAL_S)

    # -- the steps of a run ------------------------------------------------------------------------------------------

    def _plan(self, planner: RunPlanner[D], *, ends_transactions: bool) -> PlannedRun[D]:
        """Plan the run and commit its first offsets; retry if an older driver that starts fenced this one."""
        attempts = START_ATTEMPTS
        while True:
            try:
                return self._plan_once(planner, ends_transactions=ends_transactions)
            except ProducerFenced:
                self._context.claims.require_newest()
                attempts -= 1
                if not attempts:
                    raise

    def _plan_once(self, planner: RunPlanner[D], *, ends_transactions: bool) -> PlannedRun[D]:
        run = planner.plan(ends_transactions=ends_transactions)
        context = self._context
        if not context.has_authoritative_claims:
            require_newest = context.claims.require_newest
            reset_offsets(context.config, context.job, run.topic.name, run.plan.corrections, require_newest)
        return run

    def _run_query(self, run: PlannedRun[D]) -> JobReport:
        job_query = self._begin(run)
        self._context.claims.claim(first_claim(self._context, run), run.earlier)
        job_query.report(JobState.RUNNING, "started")
        try:
            return self._await_query(run, job_query, job_query.start())
        except Fenced:
            raise  # the reports and the statuses may be those of a newer driver of this run
        except Exception as error:
            self._context.claims.require_newest()
            if isinstance(error, WasmlineError):
                job_query.report(JobState.FAILED, str(error), type(error).__name__)
            raise

    def _await_query(self, run: PlannedRun[D], job_query: JobQuery, query: StreamingQuery) -> JobReport:
        """Watch the query until it ends; stop it at a safe point when a stop is requested."""
        context, job = self._context, self._context.job.job
        try:
            while not query.awaitTermination(POLL_INTERVAL_S):  # type: ignore[arg-type]  # a part of a second does
                try:
                    self._poll(job_query, query)
                except KafkaError as error:
                    if not error.retryable:
                        raise
                    log.warning("job %s: polling Kafka failed, retrying: %s", job, error)
        except StreamingQueryException as exception:
            context.claims.require_newest()
            run.topic.require_not_recreated(context.config)
            job_query.raise_cause(query, exception)
        finally:
            self._stop_query(job_query, query)
            self._record_end(run, job_query)  # before the last report, for which the next run waits
        job_query.poll(query)
        newest = context.jobs.last_claim(job)
        if newest is not None and newest.run == context.job.run and newest.driver != context.driver:
            # A newer run waits for the report; a newer driver of this one writes it.
            raise fenced_error(context.job.job)
        if context.stopping.is_set():
            return job_query.report(JobState.STOPPED, f"stopped at {self.safe_point}")
        return job_query.report(JobState.SUCCEEDED, "caught up")

    def _poll(self, job_query: JobQuery, query: StreamingQuery) -> None:
        self._send_heartbeat(job_query)  # first: what is polled next may be unavailable for long
        if job_query.poll(query):
            job_query.report(JobState.RUNNING)
            self._reported = time.monotonic()
        if self._poll_stop_request() and not query.status["isTriggerActive"]:
            query.stop()

    def _send_heartbeat(self, job_query: JobQuery) -> None:
        silent_s = time.monotonic() - self._reported
        if silent_s > self._context.timings.heartbeat_timeout_s:
            self._context.claims.require_newest()  # it stood still: a newer driver may have been started
        if silent_s > HEARTBEAT_INTERVAL_S:
            job_query.report(JobState.RUNNING)
            self._reported = time.monotonic()

    def _stop_query(self, job_query: JobQuery, query: StreamingQuery) -> None:
        """Stop the query, whatever ended the supervision: let a running batch finish, then stop."""
        if not query.isActive:
            return
        job_query.before_stop()
        self._context.stopping.set()
        deadline = time.monotonic() + QUERY_STOP_TIMEOUT_S
        while query.isActive and query.status["isTriggerActive"] and time.monotonic() < deadline:
            with suppress(KafkaError, Fenced):
                self._send_heartbeat(job_query)
            time.sleep(POLL_INTERVAL_S)
        query.stop()

    def _record_end(self, run: PlannedRun[D], job_query: JobQuery) -> None:
        """Record the query's final progress and that its checkpoint has ended; else the next run begins its own."""
        context = self._context
        try:
            newest = context.jobs.last_claim(context.job.job)
            if newest is not None and newest.driver == context.driver:
                context.claims.claim(final_claim(newest, job_query.certain_offsets(newest)))
        except (KafkaError, Fenced) as error:
            checkpoint = run.plan.checkpoint
            log.warning("the next run of job %s does not continue %s: %s", context.job.job, checkpoint, error)

    # -- other drivers, and the stop ---------------------------------------------------------------------------------

    def _poll_stop_request(self) -> bool:
        context = self._context
        if not context.stopping.is_set():
            order = context.jobs.order(context.job.job)
            if order.spec.run != context.job.run or order.wanted == "stopped":
                log.info("stop requested: ending at %s", self.safe_point)
                context.stopping.set()
        return context.stopping.is_set()

    def _wait_for_earlier_driver(self) -> None:
        """Wait for the driver of an earlier run, which this run's order stops, while it sends heartbeats.

        A checkpoint that was not ended by its driver is not reused: this run then begins one of its own.
        """
        jobs, job = self._context.jobs, self._context.job
        seen, since, waited, read_at = -1, time.monotonic(), False, time.monotonic()
        while not self._poll_stop_request():
            last = jobs.last_claim(job.job)
            if last is None or last.ended or last.run == job.run:
                break
            report = jobs.report(job.job, last.run)
            if report is None or report.state.final or now_ms() - report.updated_ms > MAX_REPORT_AGE_MS:
                break
            if report.updated_ms != seen or time.monotonic() - read_at > HEARTBEAT_INTERVAL_S:
                seen, since = report.updated_ms, time.monotonic()  # where this took long, that driver waited, too
            if time.monotonic() - since > self._context.timings.heartbeat_timeout_s:
                log.warning("run %s of job %s sends no heartbeats: it is fenced", last.run, job.job)
                break
            if not waited or time.monotonic() - self._reported > HEARTBEAT_INTERVAL_S:
                waiting = f"waiting for run {last.run} to end at {self.safe_point}"
                self._report_before_takeover(JobState.STARTING, waiting)
                self._reported, waited = time.monotonic(), True
            time.sleep(POLL_INTERVAL_S)
            read_at = time.monotonic()

    def _build_takeover_claim(self, last: DriverClaim | None) -> DriverClaim:
        """Return the claim of the takeover.

        Raises _Superseded if a newer driver of this run has the job, and _StopRequested if a newer run was ordered,
        before all other drivers are fenced: a driver that was frozen until now would take the job from these.
        """
        context = self._context
        if not context.new_driver.may_replace(last, context.job.run):
            raise _Superseded
        context.records.open()
        if self._poll_stop_request():
            raise _StopRequested
        return takeover_claim(context.job, context.stream, context.driver, last)

    def _stopped_early(self) -> JobReport:
        return self._report_before_takeover(JobState.STOPPED, "stopped before it began")

    def _report_before_takeover(self, state: JobState, message: str) -> JobReport:
        """Write a report of the run. Raises Fenced if another driver of it has claimed the job since this one began."""
        context = self._context
        if context.new_driver.is_superseded_by(context.jobs.last_claim(context.job.job), context.job.run):
            raise fenced_error(context.job.job)
        report = JobReport.now(context.job.job, context.job.run, state, message)
        context.jobs.write_report(report)
        return report
