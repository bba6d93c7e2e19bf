"""A deployment as a Structured Streaming query: Kafka in, one Wasm stage, Kafka out, the generation chosen per batch.

Everything happens inside ``foreachBatch``, because a plain ``writeStream`` would freeze the module for the life of the
query. For each batch the generation is chosen and recorded durably before the batch runs. If the driver dies, the
replay of the batch runs the recorded one; if the batch itself fails, it is free to run a better one. Outputs go
through Spark's own Kafka sink, at least once; for exactly once, each task writes its own (``exactly_once``).
"""

from __future__ import annotations

import logging
import threading
from dataclasses import replace

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import expr
from pyspark.sql.streaming.query import StreamingQuery

from wasmline.deploy import BatchClaim, Deployment
from wasmline.errors import (
    DeploymentPaused,
    JobFailed,
    ModuleError,
    ProgressLost,
    TooManyFailures,
    TransformError,
    WasmlineError,
)
from wasmline.jobs import JobReport, JobSpec, JobState, StreamSpec
from wasmline.kafka import KafkaConfig
from wasmline.pipeline import Tally
from wasmline.spark.exactly_once import BATCH_BYTES as EXACT_BATCH_BYTES
from wasmline.spark.exactly_once import ExactProgress
from wasmline.spark.failures import cause, guest_failure
from wasmline.spark.progress import Progress
from wasmline.spark.series import following, progress_of
from wasmline.spark.stream import POLL, StreamJob
from wasmline.spark.task import INPUT_COLUMNS, SINK_COLUMNS, TallyParam, TransformTask

log = logging.getLogger(__name__)

BATCH_BYTES = 16_384
"""What the Java producer puts in a batch by its own default."""

MAX_REQUEST = str(32 << 20)
"""The sink's own limit for a record, in bytes: high, so that the broker's limit is the one that counts."""


def by_key(frame: DataFrame, shards: int) -> DataFrame:
    """Return the records spread over so many tasks, those of one key in one of them.

    They stay in order within a key, because those of a partition are read by one task. Records without a key have none.
    """
    return frame.repartition(shards, "key", expr("if(key IS NULL, offset, 0)"))


class _Stopped(Exception):
    pass


class MicrobatchJob(StreamJob[Deployment]):
    """One run of a streaming job in batches."""

    boundary = "a batch boundary"

    def __init__(self, spark: SparkSession, config: KafkaConfig, job: JobSpec, stream: StreamSpec) -> None:
        super().__init__(spark, config, job, stream)
        self._kafka = {f"kafka.{name}": value for name, value in config.java().items()}
        self._tally = spark.sparkContext.accumulator(Tally(), TallyParam())
        self._failure: WasmlineError | None = None
        self._replay: BatchClaim | None = None
        self._paused = threading.Event()
        self._is_exact = stream.delivery == "exactly_once"
        self._exact: ExactProgress | None = None

    # -- the query's thread ------------------------------------------------------------------------------------------

    def _batch(self, frame: DataFrame, batch_id: int) -> None:
        """Run one batch; Spark calls this on a thread of its own and commits the batch when it returns."""
        try:
            deployment = self._claimed = self._choose(batch_id)
            parts = self._exact.ranges(frame) if self._exact is not None else ()
            self._driver.claim(self._claim(batch_id, deployment))
            wasm = self._generations.module(deployment)
            usual = BATCH_BYTES if self._exact is None else EXACT_BATCH_BYTES
            batch_bytes = self._generations.batch_bytes(deployment, usual)
        except WasmlineError as error:
            self._failure = error
            raise
        self._tally.value = Tally()
        module = self._spark.sparkContext.broadcast(wasm)
        task = TransformTask(deployment=deployment, module=module, tally=self._tally)
        shards = self._stream.shards
        try:
            if self._exact is None:
                self._write(frame if shards is None else by_key(frame, shards), task, batch_bytes)
            elif shards is None:
                self._exact.write(frame, parts, task, batch_bytes)
            else:
                self._exact.write_sharded(by_key(frame, shards), parts, task, batch_bytes)
        except ProgressLost as error:
            self._failure = error
            raise
        finally:
            module.destroy()
        self._progress.batch(batch_id, deployment, self._tally.value)
        self._judge(deployment, self._tally.value)

    def _write(self, frame: DataFrame, task: TransformTask, batch_bytes: int) -> None:
        writer = frame.mapInArrow(task, SINK_COLUMNS).write.format("kafka").options(**self._kafka)
        writer = writer.option("kafka.max.request.size", MAX_REQUEST).option("kafka.buffer.memory", MAX_REQUEST)
        writer = writer.option("kafka.batch.size", str(batch_bytes))
        writer.option("kafka.compression.type", task.deployment.spec.compression).save()

    def _choose(self, batch_id: int) -> Deployment:
        """Return what the batch must run: the recorded generation if it is a replay, else what is deployed now."""
        replay, self._replay = self._replay, None  # only the first batch of a query can be one
        if replay is not None and replay.batch_id == batch_id and replay.deployment is not None:
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

    def _current(self) -> Deployment:
        return self._deployed()

    def _series(self, folder: str, last: BatchClaim | None) -> str:
        self._counted = following(
            last, folder, topic=self._topic, topic_id=self._topic_id(), exact=self._is_exact, run=self._job.run
        )
        return self._counted.checkpoint

    def _takeover(self, last: BatchClaim | None, deployment: Deployment) -> BatchClaim:
        self._replay = last if last and last.checkpoint == self._checkpoint else None
        return self._replay or super()._takeover(last, deployment)

    def _prepare(self, deployment: Deployment) -> None:
        self._generations.check(deployment)
        if self._is_exact:
            self._exact = ExactProgress(self._config, self._job, self._topic)
            self._exact.prepare(self._stream.starting_offsets, known=self._counted.known, is_anew=self._counted.is_anew)
        self._progress = Progress(
            self._config, self._job, deployment, self._jobs, self._status, commits=not self._is_exact
        )

    def _claim(self, batch_id: int, deployment: Deployment) -> BatchClaim:
        known = self._counted.known if self._exact is None else self._exact.partitions
        return replace(super()._claim(batch_id, deployment), partitions=known)

    def _start(self, deployment: Deployment) -> StreamingQuery:
        source = (
            self._spark.readStream.format("kafka")
            .options(**self._kafka)
            .option("kafka.isolation.level", "read_committed")
            .option("subscribe", deployment.spec.input_topic)
            .option("startingOffsets", self._starting_offsets())
            .option("maxOffsetsPerTrigger", self._stream.max_offsets_per_trigger)
            .option("includeHeaders", "true")
            .load()
            .selectExpr(*INPUT_COLUMNS)
        )
        writer = source.writeStream.queryName(f"{self._job.job} {self._job.run}")
        interval = self._stream.trigger_interval
        writer = writer.trigger(availableNow=True) if interval is None else writer.trigger(processingTime=interval)
        return writer.option("checkpointLocation", self._checkpoint).foreachBatch(self._batch).start()

    def _starting_offsets(self) -> str:
        otherwise = self._stream.starting_offsets
        return (
            progress_of(self._config, self._job.group, self._topic, otherwise) if self._counted.resumes else otherwise
        )

    def _follow(self, query: StreamingQuery) -> bool:
        if self._exact is not None:
            self._exact.keep()
        return self._progress.follow(query.recentProgress, paused=self._paused.is_set())

    def _report(self, state: JobState, message: str = "", error: str | None = None) -> JobReport:
        return self._progress.report(state, message, error)

    def _explain(self, exception: StreamingQueryException) -> None:
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
