"""A deployment as a Structured Streaming query: Kafka in, one Wasm stage, Kafka out, the generation chosen per batch.

Everything happens inside ``foreachBatch``, because a plain ``writeStream`` would freeze the module for the life of the
query. For each batch the generation is chosen and recorded durably before the batch runs. If the driver dies, the
replay of the batch runs the recorded one; if the batch itself fails, it is free to run a better one. Outputs go
through Spark's own Kafka sink: at least once.
"""

from __future__ import annotations

import logging
import threading
import time

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from wasmline.clock import now_ms
from wasmline.deploy import BatchClaim, Deployment, JobDriver, JobLog, StatusLog
from wasmline.errors import (
    DeploymentPaused,
    InvalidJob,
    JobFailed,
    ModuleError,
    TooManyFailures,
    TransformError,
    WasmlineError,
)
from wasmline.jobs import JobReport, JobSpec, JobState, StreamSpec
from wasmline.kafka import KafkaConfig, Topics
from wasmline.pipeline import Tally
from wasmline.spark.failures import cause, guest_failure
from wasmline.spark.generations import Generations
from wasmline.spark.progress import Progress
from wasmline.spark.task import INPUT_COLUMNS, SINK_COLUMNS, TallyParam, TransformTask

log = logging.getLogger(__name__)

POLL = 0.5
"""Seconds between two looks at the query and at what is wanted of the job."""

HEARTBEAT = 5.0
"""Seconds between two reports while nothing happens."""

PATIENCE = 60.0
"""Seconds to wait for a query to come to rest, or for the driver of an earlier run to end."""

MAX_REQUEST = str(32 << 20)
"""The sink's own limit for a record, in bytes: high, so that the broker's limit is the one that counts."""


class _Stopped(Exception):
    pass


class MicrobatchJob:
    """One run of a streaming job, from the claim to the final report."""

    def __init__(self, spark: SparkSession, config: KafkaConfig, job: JobSpec, stream: StreamSpec) -> None:
        self._spark = spark
        self._config = config
        self._job = job
        self._stream = stream
        self._kafka = {f"kafka.{name}": value for name, value in config.java().items()}
        self._jobs = JobLog(config)
        self._driver = JobDriver(config, job.job)
        self._status = StatusLog(config)
        self._generations = Generations(config, stream.transform)
        self._tally = spark.sparkContext.accumulator(Tally(), TallyParam())
        self._stopping = threading.Event()
        self._paused = threading.Event()
        self._failure: WasmlineError | None = None

    def run(self) -> JobReport:
        """Run until caught up, stopped or failed; write the report of what happened, and return it if it ended well.

        Raises DeploymentNotFound, DeploymentPaused or TopicNotFound before anything starts, Fenced when a newer driver
        came, JobFailed with the cause for a batch that failed.
        """
        try:
            deployment = self._generations.current()
            self._refuse_paused(deployment)
            self._topic = deployment.spec.input_topic
            topic_id = Topics(self._config).describe(self._topic).id
            self._checkpoint = f"{self._job.storage}/checkpoints/{self._job.job}/{topic_id}"
            last = self._jobs.last_batch(self._job.job)
            self._replay = last if last and last.checkpoint == self._checkpoint else None
            self._driver.claim(self._replay or self._claim(-1, deployment))
            self._await_end_of(last)
            self._generations.check(deployment)
            self._progress = Progress(self._config, self._job, deployment, self._jobs, self._status)
            self._progress.report(JobState.RUNNING, "started")
            try:
                return self._supervise(self._start(deployment))
            except WasmlineError as error:
                self._progress.report(JobState.FAILED, str(error), type(error).__name__)
                raise
        finally:
            for client in (self._generations, self._driver, self._status, self._jobs):
                client.close()

    # -- the query's thread ------------------------------------------------------------------------------------------

    def _batch(self, frame: DataFrame, batch_id: int) -> None:
        """Run one batch; Spark calls this on a thread of its own and commits the batch when it returns."""
        try:
            deployment = self._claimed = self._choose(batch_id)
            self._driver.claim(self._claim(batch_id, deployment))
            wasm = self._generations.module(deployment)
            batch_bytes = self._generations.batch_bytes(deployment)
        except WasmlineError as error:
            self._failure = error
            raise
        self._tally.value = Tally()
        module = self._spark.sparkContext.broadcast(wasm)
        task = TransformTask(deployment=deployment, module=module, tally=self._tally)
        try:
            writer = frame.mapInArrow(task, SINK_COLUMNS).write.format("kafka").options(**self._kafka)
            writer = writer.option("kafka.max.request.size", MAX_REQUEST).option("kafka.buffer.memory", MAX_REQUEST)
            writer = writer.option("kafka.batch.size", str(batch_bytes))
            writer.option("kafka.compression.type", deployment.spec.compression).save()
        finally:
            module.destroy()
        self._progress.batch(batch_id, deployment, self._tally.value)
        self._judge(deployment, self._tally.value)

    def _choose(self, batch_id: int) -> Deployment:
        """Return what the batch must run: the recorded generation if it is a replay, else what is deployed now."""
        replay, self._replay = self._replay, None  # only the first batch of a query can be one
        if replay is not None and replay.batch_id == batch_id:
            return replay.deployment
        while not self._stopping.is_set():
            deployment = self._generations.current()
            self._refuse_other_topic(deployment)
            if self._stream.trigger_interval is None:
                self._refuse_paused(deployment)
            if deployment.state == "running" and self._starts(deployment):
                self._paused.clear()
                return deployment
            self._paused.set()
            self._stopping.wait(POLL)
        raise _Stopped

    def _starts(self, deployment: Deployment) -> bool:
        """Return whether the generation can run. An endless job waits for a better one where it can't."""
        try:
            self._generations.check(deployment)
        except (ModuleError, TransformError):
            if self._stream.trigger_interval is None:
                raise
            log.exception("generation %d of %s is paused", deployment.generation, deployment.spec.name)
            return False
        return True

    def _judge(self, deployment: Deployment, tally: Tally) -> None:
        """Pause the deployment when too many records failed over several small batches; this one counts as done."""
        window = self._generations.window(deployment)
        try:
            window.add(tally.records_in.total(), tally.failures)
        except TooManyFailures as error:
            self._generations.pause(deployment, str(error))

    # -- the driver's thread -----------------------------------------------------------------------------------------

    def _start(self, deployment: Deployment) -> StreamingQuery:
        source = (
            self._spark.readStream.format("kafka")
            .options(**self._kafka)
            .option("kafka.isolation.level", "read_committed")
            .option("subscribe", deployment.spec.input_topic)
            .option("startingOffsets", self._stream.starting_offsets)
            .option("maxOffsetsPerTrigger", self._stream.max_offsets_per_trigger)
            .option("includeHeaders", "true")
            .load()
            .selectExpr(*INPUT_COLUMNS)
        )
        writer = source.writeStream.queryName(f"{self._job.job} {self._job.run}")
        interval = self._stream.trigger_interval
        writer = writer.trigger(availableNow=True) if interval is None else writer.trigger(processingTime=interval)
        return writer.option("checkpointLocation", self._checkpoint).foreachBatch(self._batch).start()

    def _supervise(self, query: StreamingQuery) -> JobReport:
        """Watch the query until it ends; stop it at a batch boundary when that is wanted."""
        reported = time.monotonic()
        try:
            while not query.awaitTermination(POLL):  # type: ignore[arg-type]  # a part of a second does
                moved = self._progress.follow(query.recentProgress, paused=self._paused.is_set())
                if moved or time.monotonic() - reported > HEARTBEAT:
                    self._progress.report(JobState.RUNNING)
                    reported = time.monotonic()
                if self._stop_wanted() and not query.status["isTriggerActive"]:
                    query.stop()
        except StreamingQueryException as exception:
            self._raise_unless_stopped(exception)
        finally:
            self._bring_to_rest(query)
        self._progress.follow(query.recentProgress)
        if self._stopping.is_set():
            return self._progress.report(JobState.STOPPED, "stopped at a batch boundary")
        return self._progress.report(JobState.SUCCEEDED, "caught up")

    def _stop_wanted(self) -> bool:
        if not self._stopping.is_set():
            order = self._jobs.order(self._job.job)
            if order.spec.run != self._job.run or order.wanted == "stopped":
                log.info("a stop is wanted: ending at the next batch boundary")
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

    def _raise_unless_stopped(self, exception: StreamingQueryException) -> None:
        """Raise what ended the query, unless that was a stop. A batch that failed may run a better generation."""
        if self._failure is not None:
            raise self._failure from exception
        text = str(exception)
        if self._stopping.is_set() and _Stopped.__name__ in text:
            return
        deployment = self._claimed
        self._driver.claim(self._claim(-1, deployment))
        failure = guest_failure(text)
        if failure is None:
            message = f"a batch of job {self._job.job} failed and does not count as done: {cause(text)}"
            raise JobFailed(message, report={}) from exception
        spec = deployment.spec
        paused = self._generations.pause(deployment, failure)
        message = f"{spec.name} failed at generation {deployment.generation}{', and is paused' if paused else ''}: "
        message += f"{failure}; the batch does not count as done: deploy again, and run the job again"
        raise DeploymentPaused(message, name=spec.name) from exception

    def _await_end_of(self, last: BatchClaim | None) -> None:
        """Wait until the driver of an earlier run, which our claim has fenced, has left the checkpoint."""
        deadline = time.monotonic() + PATIENCE
        while last is not None and last.run != self._job.run and time.monotonic() < deadline:
            report = self._jobs.report(self._job.job, last.run)
            if report is None or report.state.final or now_ms() - report.updated_ms > 3 * HEARTBEAT * 1000:
                return
            time.sleep(POLL)

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

    def _claim(self, batch_id: int, deployment: Deployment) -> BatchClaim:
        return BatchClaim(run=self._job.run, checkpoint=self._checkpoint, batch_id=batch_id, deployment=deployment)
