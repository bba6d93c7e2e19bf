"""One run of a streaming job in either mode: claim, supervision of the query, stop, final report."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Set
from contextlib import suppress
from dataclasses import replace
from typing import Generic, TypeVar

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from wasmline.clock import now_ms
from wasmline.consumer.backends.kafka import REQUEST_TIMEOUT_S as COMMITTED
from wasmline.control import ClaimWriter, Deployment, DriverClaim, JobTopic, StatusTopic
from wasmline.errors import (
    BrokerUnavailable,
    DeploymentPaused,
    Fenced,
    InvalidJob,
    KafkaError,
    ProducerFenced,
    ProgressLost,
    WasmlineError,
)
from wasmline.job_offsets.committed_offsets import stable_offsets
from wasmline.job_offsets.data_loss_check import DataLossCheck
from wasmline.job_offsets.offset_renewal import renew_offsets
from wasmline.job_offsets.start_offsets import (
    CheckpointState,
    RunPlan,
    TopicState,
    claim_is_authoritative,
    late_commit_offsets,
    matches_topic,
    plan_run,
)
from wasmline.jobs import JobReport, JobSpec, JobState, StreamSpec
from wasmline.kafka import ConsumerGroups, KafkaConfig, Topics
from wasmline.spark.checkpoint import checkpoint_state
from wasmline.spark.deployment_tracker import DeploymentTracker
from wasmline.transactional_ids import VIRTUAL_SHARDS

log = logging.getLogger(__name__)

POLL_INTERVAL_S = 0.5
"""Seconds between two polls of the query and of the job's order."""

HEARTBEAT_INTERVAL_S = 5.0
"""Seconds between two reports of an idle job."""

QUERY_STOP_TIMEOUT_S = 60.0
"""Seconds to wait for a running batch before the query is stopped."""

HEARTBEAT_TIMEOUT_S = 3 * HEARTBEAT_INTERVAL_S
"""Seconds without a report after which a run stops waiting for the driver of an earlier run."""

START_ATTEMPTS = 5
"""Planning attempts of a run that is fenced by an older driver meanwhile."""

OPEN_TRANSACTION_WAIT_S = 10.0
"""Seconds to wait for open transactions, possibly of a dead driver, before they are ended."""

MAX_REPORT_AGE_MS = 600_000
"""Maximum age of the report of a driver to wait for, in milliseconds: more than clock skew."""

D = TypeVar("D", bound=Deployment | None)
"""The object of a mode: a deployment, or None in a mode that also runs functions."""


class _Undecided(Exception):
    """The progress cannot be determined while another driver may be active."""


class _Unwanted(Exception):
    """A stop was requested before the run took the job over."""


class PartitionsAdded(Exception):
    """Partitions were added to the topic after the run was planned."""


class StreamJob(ABC, Generic[D]):
    """One run of a streaming job, from the claim to the final report. A subclass for each mode defines the query."""

    boundary: str
    """The point at which a stop takes effect."""

    def __init__(self, spark: SparkSession, config: KafkaConfig, job: JobSpec, stream: StreamSpec) -> None:
        self._spark = spark
        self._config = config
        self._job = job
        self._stream = stream
        self._name = uuid.uuid4().hex
        """This driver's."""
        self._jobs = JobTopic(config)
        self._claims = ClaimWriter(config, job.job, self._name)
        self._status = StatusTopic(config)
        self._generations = DeploymentTracker(config, stream.transform)
        self._reported = time.monotonic()
        self._stopping = threading.Event()
        self._is_plain = (stream.mode, stream.delivery) == ("microbatch", "at_least_once")
        self._is_renewed = False
        self._is_undecided = False
        """Progress is in open transactions that were not ended within OPEN_TRANSACTION_WAIT_S."""
        self._mapped: Set[int] = frozenset()
        """Partitions with an offset map in the group when this run began."""
        self._keeps_maps = True

    def run(self) -> JobReport:
        """Run until caught up, stopped or failed; write the final report, and return it unless the run failed.

        Raises DeploymentNotFound, DeploymentPaused, TopicNotFound, ProgressLost and other obstacles to a start before
        any other driver is fenced; Fenced when a newer driver claimed the job, JobFailed with the cause for a failed
        query. The starting point of the next run changes only with the first claim of a checkpoint, once all is ready.
        """
        try:
            deployment = self._current()
            self._retention = DataLossCheck(self._config, self._topic, fails=self._stream.fail_on_data_loss)
            self._prepare(deployment)
            self._await_earlier()
            if self._stop_wanted():
                return self._stopped_early()
            with suppress(_Undecided):
                self._make_plan()
            self._claims.take_over(self._takeover)
            while True:
                with suppress(PartitionsAdded):
                    return self._carry_out(deployment)
        except _Unwanted:
            return self._stopped_early()
        finally:
            for client in (self._generations, self._claims, self._status, self._jobs):
                client.close()

    # -- defined by the mode -----------------------------------------------------------------------------------------

    @abstractmethod
    def _current(self) -> D:
        """Return the current deployment and set the input topic. Raises an error if it cannot run."""

    @abstractmethod
    def _prepare(self, deployment: D) -> None:
        """Check whether the run can start; raise if not. Writes nothing that another driver uses."""

    @abstractmethod
    def _begin(self, deployment: D) -> None:
        """Prepare the start after the takeover: afterwards the group has the plan's offsets."""

    @abstractmethod
    def _start(self, deployment: D) -> StreamingQuery:
        """Start the query."""

    @abstractmethod
    def _follow(self, query: StreamingQuery) -> bool:
        """Record the query's progress since the last call; return whether there is anything to report."""

    @abstractmethod
    def _report(self, state: JobState, message: str = "", error: str | None = None) -> JobReport:
        """Write and return a report."""

    @abstractmethod
    def _explain(self, exception: StreamingQueryException) -> None:
        """Raise the error that ended the query, unless it was the stop; PartitionsAdded to plan the run again."""

    @abstractmethod
    def _came_to(self, newest: DriverClaim) -> Mapping[int, int]:
        """Return the progress of this driver, whose newest claim is ``newest``, as far as it is certain."""

    # -- the driver's thread -----------------------------------------------------------------------------------------

    def _carry_out(self, deployment: D) -> JobReport:
        self._plan_and_begin(deployment)
        self._claims.claim(self._first_claim(deployment), self._earlier)
        self._report(JobState.RUNNING, "started")
        try:
            return self._supervise(self._start(deployment))
        except WasmlineError as error:
            self._report(JobState.FAILED, str(error), type(error).__name__)
            raise

    def _plan_and_begin(self, deployment: D) -> None:
        """Plan the run and commit its first offsets; retry if an older driver that starts fenced this one."""
        for attempt in range(START_ATTEMPTS):
            try:
                self._make_plan(fences=True)
                self._begin(deployment)
                break
            except ProducerFenced:
                if attempt == START_ATTEMPTS - 1:
                    raise
                self._claims.refuse_others()

    def _supervise(self, query: StreamingQuery) -> JobReport:
        """Watch the query until it ends; stop it at a boundary when a stop is requested."""
        try:
            while not query.awaitTermination(POLL_INTERVAL_S):  # type: ignore[arg-type]  # a part of a second does
                try:
                    self._look_after(query)
                except KafkaError as error:
                    if not error.retryable:
                        raise
                    log.warning("job %s: polling Kafka failed, retrying: %s", self._job.job, error)
        except StreamingQueryException as exception:
            newest = self._jobs.last_batch(self._job.job)
            if newest is not None and newest.driver != self._name:
                raise self._fenced() from exception
            self._refuse_made_anew(Topics(self._config).describe(self._topic).id)
            self._explain(exception)
        finally:
            self._bring_to_rest(query)
            self._conclude()  # before the last report, for which the next run waits
        self._follow(query)
        if self._stopping.is_set():
            return self._report(JobState.STOPPED, f"stopped at {self.boundary}")
        return self._report(JobState.SUCCEEDED, "caught up")

    def _look_after(self, query: StreamingQuery) -> None:
        if self._follow(query) or time.monotonic() - self._reported > HEARTBEAT_INTERVAL_S:
            self._report(JobState.RUNNING)
            self._reported = time.monotonic()
        if self._stop_wanted() and not query.status["isTriggerActive"]:
            query.stop()

    def _fenced(self) -> Fenced:
        return Fenced(f"a newer driver claimed job {self._job.job}; this one ends", job=self._job.job)

    def _stop_wanted(self) -> bool:
        if not self._stopping.is_set():
            order = self._jobs.order(self._job.job)
            if order.spec.run != self._job.run or order.wanted == "stopped":
                log.info("stop requested: ending at %s", self.boundary)
                self._stopping.set()
        return self._stopping.is_set()

    def _bring_to_rest(self, query: StreamingQuery) -> None:
        """Stop the query, whatever ended the supervision: let a running batch finish, then stop."""
        if not query.isActive:
            return
        self._stopping.set()
        deadline = time.monotonic() + QUERY_STOP_TIMEOUT_S
        while query.isActive and query.status["isTriggerActive"] and time.monotonic() < deadline:
            time.sleep(POLL_INTERVAL_S)
        query.stop()

    # -- the start and the end ---------------------------------------------------------------------------------------

    def _await_earlier(self) -> None:
        """Wait for the driver of an earlier run, which this run's order stops, while it sends heartbeats.

        A checkpoint that was not ended by its driver is not reused: this run then begins one of its own.
        """
        seen, since, waited = -1, time.monotonic(), False
        while not self._stop_wanted():
            last = self._jobs.last_batch(self._job.job)
            if last is None or last.ended or last.run == self._job.run:
                break
            report = self._jobs.report(self._job.job, last.run)
            if report is None or report.state.final or now_ms() - report.updated_ms > MAX_REPORT_AGE_MS:
                break
            if report.updated_ms != seen:
                seen, since = report.updated_ms, time.monotonic()
            if time.monotonic() - since > HEARTBEAT_TIMEOUT_S:
                log.warning("run %s of job %s sends no heartbeats: it is fenced", last.run, self._job.job)
                break
            if not waited or time.monotonic() - self._reported > HEARTBEAT_INTERVAL_S:
                waiting = f"waiting for run {last.run} to end at {self.boundary}"
                self._jobs.write_report(JobReport.now(self._job.job, self._job.run, JobState.STARTING, waiting))
                self._reported, waited = time.monotonic(), True
            time.sleep(POLL_INTERVAL_S)

    def _make_plan(self, *, fences: bool = False) -> None:
        """Plan the run from claims, checkpoint and committed offsets. Raises ProgressLost, OffsetOutOfRange.

        ``fences``: no other driver commits progress any more, except a newer one: Fenced. Without it, raises _Undecided
        while another driver may commit.
        """
        self._input = TopicState.now(self._config, self._topic)
        newest = self._jobs.last_batch(self._job.job)
        last = self._jobs.last_batch(self._job.job, self._input.id)
        self._earlier = None if newest is None or not newest.topic_id or matches_topic(newest, self._input) else newest
        state = CheckpointState()
        if last is not None and last.mode == "microbatch" and last.checkpoint.startswith(f"{self._job.storage}/"):
            state = checkpoint_state(self._spark, last.checkpoint)
        committed = self._committed(last, fences=fences)
        try:
            self._plan: RunPlan = plan_run(last, state, committed, self._input, self._job, self._name)
        except ProgressLost as error:
            if self._jobs.last_batch(self._job.job) != newest:  # an active driver changed it
                raise (self._fenced() if fences else _Undecided()) from error
            raise
        self._retention.refuse_loss(self._plan.offsets, self._input.begins)

    def _committed(self, last: DriverClaim | None, *, fences: bool) -> Mapping[int, int]:
        """Return the group's committed offsets, as far as the plan needs them; renewed if other drivers are fenced."""
        known = last if last is not None and matches_topic(last, self._input) else None
        is_claimed = known is not None and claim_is_authoritative(known) and bool(known.offsets)
        if self._is_plain and (known is None or (is_claimed and self._stream.fail_on_moved_progress)):
            return {}
        partitions = self._input.begins
        if not fences:
            ConsumerGroups(self._config).require_no_members(self._job.group)
            try:
                return self._stable(partitions, OPEN_TRANSACTION_WAIT_S)
            except BrokerUnavailable as error:
                log.warning("a transaction of job %s may be open; it is ended first: %s", self._job.job, error)
                self._is_undecided = True
                raise _Undecided from error
        deliveries = self._stream.delivery, known.delivery if known is not None else None
        # A run that was killed at its start may have left a transaction open without having claimed any progress.
        is_fenced = self._is_undecided or "exactly_once" in deliveries
        if is_fenced or not (known is None or self._is_plain):
            arguments = self._config, self._job, self._topic, partitions
            renew_offsets(*arguments, keeps_maps=self._keeps_maps, fences=is_fenced)
            self._is_renewed = True
        return self._stable(partitions)

    def _stable(self, partitions: Iterable[int], limit: float = COMMITTED) -> Mapping[int, int]:
        arguments = self._config, self._job, self._topic, partitions, limit
        found = stable_offsets(*arguments, keeps_maps=self._keeps_maps)
        self._mapped = {partition for partition, each in found.items() if each.metadata}
        return {partition: each.offset for partition, each in found.items()}

    def _takeover(self, last: DriverClaim | None) -> DriverClaim:
        """Return the claim that makes this the job's driver and does not change the job's progress.

        Raises _Unwanted if a newer run was ordered before all other drivers are fenced: a driver that was frozen until
        now would take the job from that run.
        """
        if self._stop_wanted():
            raise _Unwanted
        if last is not None:
            return replace(last, driver=self._name)
        return DriverClaim(
            run=self._job.run,
            driver=self._name,
            checkpoint="",
            batch_id=-1,
            deployment=None,
            virtual_shards=VIRTUAL_SHARDS,
        )

    def _first_claim(self, deployment: D) -> DriverClaim:
        """Return the claim of the checkpoint, before the query starts."""
        if self._plan.replayed is not None:
            replayed = self._plan.replayed
            claim = self._claim(replayed.batch_id, deployment, self._plan.offsets, replayed.ends)
            claim = replace(claim, deployment=replayed.deployment)
        else:
            claim = self._claim(-1, deployment, self._plan.offsets, self._plan.offsets)
        return replace(claim, left=self._plan.offsets) if self._stream.delivery == "exactly_once" else claim

    def _stopped_early(self) -> JobReport:
        report = JobReport.now(self._job.job, self._job.run, JobState.STOPPED, "stopped before it began")
        self._jobs.write_report(report)
        return report

    def _conclude(self) -> None:
        """Record the query's final progress and that its checkpoint has ended; else the next run begins its own."""
        try:
            newest = self._jobs.last_batch(self._job.job)
            if newest is not None and newest.driver == self._name:
                reached = dict(self._came_to(newest))
                offsets, left = newest.offsets | reached, newest.left | reached
                ended = replace(
                    newest, offsets=offsets, left=left, late=late_commit_offsets(newest, offsets), ended=True
                )
                self._claims.claim(ended)
        except (KafkaError, Fenced) as error:
            log.warning("the next run of job %s does not continue %s: %s", self._job.job, self._plan.checkpoint, error)

    def _deployed(self) -> Deployment:
        """Return the current deployment of the stream's transform, and read its input topic."""
        deployment = self._generations.current()
        self._refuse_paused(deployment)
        self._topic = deployment.spec.input_topic
        return deployment

    def _refuse_paused(self, deployment: Deployment) -> None:
        if deployment.state == "paused":
            name = deployment.spec.name
            raise DeploymentPaused(f"{name} is paused ({deployment.reason}): resume it or deploy again", name=name)

    def _refuse_made_anew(self, topic_id: str) -> None:
        """Raise InvalidJob if the topic was replaced after this run began."""
        if topic_id != self._input.id:
            raise InvalidJob(f"{self._topic} was deleted and recreated while this run read it: run the job again")

    def _refuse_other_topic(self, deployment: Deployment) -> None:
        spec = deployment.spec
        if spec.input_topic != self._topic:
            raise InvalidJob(
                f"generation {deployment.generation} of {spec.name} reads {spec.input_topic}, but this run reads "
                f"{self._topic}: run the job again"
            )

    def _claim(self, batch_id: int, deployment: D, offsets: Mapping[int, int], ends: Mapping[int, int]) -> DriverClaim:
        return DriverClaim(
            run=self._job.run,
            virtual_shards=VIRTUAL_SHARDS,
            mode=self._stream.mode,
            delivery=self._stream.delivery,
            driver=self._name,
            partitions=len(offsets),
            topic=self._topic,
            topic_id=self._input.id,
            offsets=dict(offsets),
            ends=dict(ends),
            late=self._plan.late,
            checkpoint=self._plan.checkpoint,
            batch_id=batch_id,
            deployment=deployment,
        )
