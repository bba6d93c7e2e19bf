"""One run of a streaming job, whatever its mode: the claim, the watch over its query, the stop, the final report."""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from typing import Generic, TypeVar

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from wasmline.clock import now_ms
from wasmline.deploy import BatchClaim, Deployment, JobDriver, JobLog, StatusLog
from wasmline.errors import DeploymentPaused, InvalidJob, KafkaError, WasmlineError
from wasmline.jobs import JobReport, JobSpec, JobState, StreamSpec
from wasmline.kafka import KafkaConfig, Topics
from wasmline.spark.generations import Generations

log = logging.getLogger(__name__)

POLL = 0.5
"""Seconds between two looks at the query and at what is wanted of the job."""

HEARTBEAT = 5.0
"""Seconds between two reports while nothing happens."""

PATIENCE = 60.0
"""Seconds to wait for a query to come to rest, or for the driver of an earlier run to end."""


D = TypeVar("D", bound=Deployment | None)
"""What a mode runs: a deployment, or where it runs functions too, perhaps none."""


class StreamJob(ABC, Generic[D]):
    """One run of a streaming job, from the claim to the final report. Its mode says what the query is."""

    boundary: str
    """Where a stop takes effect."""

    def __init__(self, spark: SparkSession, config: KafkaConfig, job: JobSpec, stream: StreamSpec) -> None:
        self._spark = spark
        self._config = config
        self._job = job
        self._stream = stream
        self._jobs = JobLog(config)
        self._driver = JobDriver(config, job.job)
        self._status = StatusLog(config)
        self._generations = Generations(config, stream.transform)
        self._reported = time.monotonic()
        self._stopping = threading.Event()

    def run(self) -> JobReport:
        """Run until caught up, stopped or failed; write the report of what happened, and return it if it ended well.

        Raises DeploymentNotFound, DeploymentPaused or TopicNotFound before anything starts, Fenced when a newer driver
        came, JobFailed with the cause for a query that failed.
        """
        try:
            deployment = self._current()
            last = self._jobs.last_batch(self._job.job)
            self._checkpoint = self._series(f"{self._job.storage}/checkpoints/{self._job.job}", last)
            self._driver.claim(self._takeover(last, deployment))
            self._await_end_of(last)
            self._prepare(deployment)
            self._report(JobState.RUNNING, "started")
            try:
                return self._supervise(self._start(deployment))
            except WasmlineError as error:
                self._report(JobState.FAILED, str(error), type(error).__name__)
                raise
        finally:
            for client in (self._generations, self._driver, self._status, self._jobs):
                client.close()

    # -- what the mode says ------------------------------------------------------------------------------------------

    @abstractmethod
    def _current(self) -> D:
        """Return what is deployed, having noted the topic that is read. Raises what speaks against running it."""

    @abstractmethod
    def _series(self, folder: str, last: BatchClaim | None) -> str:
        """Return the checkpoint, below the job's folder: batches are counted in it. ``last`` is the job's last one."""

    def _takeover(self, last: BatchClaim | None, deployment: D) -> BatchClaim:
        """Return the claim that makes this the job's driver."""
        return self._claim(-1, deployment)

    @abstractmethod
    def _prepare(self, deployment: D) -> None:
        """Get ready, once the job is claimed and the driver of an earlier run is gone."""

    @abstractmethod
    def _start(self, deployment: D) -> StreamingQuery:
        """Start the query."""

    @abstractmethod
    def _follow(self, query: StreamingQuery) -> bool:
        """Take note of what the query did since the last call, and say whether there is anything to report."""

    @abstractmethod
    def _report(self, state: JobState, message: str = "", error: str | None = None) -> JobReport:
        """Write and return a report."""

    @abstractmethod
    def _explain(self, exception: StreamingQueryException) -> None:
        """Raise what ended the query, unless it was the stop."""

    # -- the driver's thread -----------------------------------------------------------------------------------------

    def _supervise(self, query: StreamingQuery) -> JobReport:
        """Watch the query until it ends; stop it at a boundary when that is wanted."""
        try:
            while not query.awaitTermination(POLL):  # type: ignore[arg-type]  # a part of a second does
                try:
                    self._look_after(query)
                except KafkaError as error:
                    if not error.retryable:
                        raise
                    log.warning("job %s is not looked after for now: %s", self._job.job, error)
        except StreamingQueryException as exception:
            self._explain(exception)
        finally:
            self._bring_to_rest(query)
        self._follow(query)
        if self._stopping.is_set():
            return self._report(JobState.STOPPED, f"stopped at {self.boundary}")
        return self._report(JobState.SUCCEEDED, "caught up")

    def _look_after(self, query: StreamingQuery) -> None:
        if self._follow(query) or time.monotonic() - self._reported > HEARTBEAT:
            self._report(JobState.RUNNING)
            self._reported = time.monotonic()
        if self._stop_wanted() and not query.status["isTriggerActive"]:
            query.stop()

    def _stop_wanted(self) -> bool:
        if not self._stopping.is_set():
            order = self._jobs.order(self._job.job)
            if order.spec.run != self._job.run or order.wanted == "stopped":
                log.info("a stop is wanted: ending at %s", self.boundary)
                self._stopping.set()
        return self._stopping.is_set()

    def _bring_to_rest(self, query: StreamingQuery) -> None:
        """Leave no query behind, whatever ended the watch: let a batch that runs end, then stop."""
        if not query.isActive:
            return
        self._stopping.set()
        deadline = time.monotonic() + PATIENCE
        while query.isActive and query.status["isTriggerActive"] and time.monotonic() < deadline:
            time.sleep(POLL)
        query.stop()

    def _await_end_of(self, last: BatchClaim | None) -> None:
        """Wait until the driver of an earlier run, which our claim has fenced, has left the checkpoint."""
        deadline = time.monotonic() + PATIENCE
        while last is not None and last.run != self._job.run and time.monotonic() < deadline:
            report = self._jobs.report(self._job.job, last.run)
            if report is None or report.state.final or now_ms() - report.updated_ms > 3 * HEARTBEAT * 1000:
                return
            time.sleep(POLL)

    def _deployed(self) -> Deployment:
        """Return what is deployed as the stream's transform, whose topic is the one that is read."""
        deployment = self._generations.current()
        self._refuse_paused(deployment)
        self._topic = deployment.spec.input_topic
        return deployment

    def _refuse_paused(self, deployment: Deployment) -> None:
        if deployment.state == "paused":
            name = deployment.spec.name
            raise DeploymentPaused(f"{name} is paused ({deployment.reason}): resume it or deploy again", name=name)

    def _refuse_other_topic(self, deployment: Deployment) -> None:
        spec = deployment.spec
        if spec.input_topic != self._topic:
            raise InvalidJob(
                f"generation {deployment.generation} of {spec.name} reads {spec.input_topic}, and this run reads "
                f"{self._topic}: run the job again"
            )

    def _topic_id(self) -> str:
        return Topics(self._config).describe(self._topic).id

    def _claim(self, batch_id: int, deployment: D) -> BatchClaim:
        return BatchClaim(
            run=self._job.run,
            mode=self._stream.mode,
            delivery=self._stream.delivery,
            checkpoint=self._checkpoint,
            batch_id=batch_id,
            deployment=deployment,
        )
