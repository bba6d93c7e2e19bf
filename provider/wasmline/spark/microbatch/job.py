"""A deployment as a Structured Streaming query: Kafka in, one Wasm stage, Kafka out, a generation per batch.

Everything runs inside ``foreachBatch``, because a plain ``writeStream`` would fix the module for the life of the query.
For each batch the generation is chosen and recorded durably before the batch runs. If the driver fails, the replay of
the batch runs the recorded one; if the batch itself fails, it may run a newer one. Outputs go through Spark's own Kafka
sink, at least once; for exactly once, each task writes its own (``exactly_once``).
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import expr
from pyspark.sql.streaming.query import StreamingQuery

from wasmline.clock import now_ms
from wasmline.control import Deployment, DriverClaim
from wasmline.errors import (
    DeploymentPaused,
    HangingTransaction,
    JobFailed,
    ModuleError,
    ProgressLost,
    TooManyFailures,
    TransformError,
    WasmlineError,
)
from wasmline.job_offsets.exactly_once_batch import OffsetRange
from wasmline.job_offsets.start_offsets import overlaps
from wasmline.jobs import JobReport, JobSpec, JobState, StreamSpec
from wasmline.kafka import KafkaConfig, Topics
from wasmline.pipeline import BatchStats
from wasmline.spark.checkpoint import checkpoint_state
from wasmline.spark.error_parsing import cause, guest_failure, refusal
from wasmline.spark.microbatch.exactly_once import PRODUCER_BATCH_BYTES as EXACT_BATCH_BYTES
from wasmline.spark.microbatch.exactly_once import TransactionalBatches, planned_offset_ranges
from wasmline.spark.microbatch.report import MicrobatchReporter
from wasmline.spark.microbatch.task import INPUT_COLUMNS, SINK_COLUMNS, BatchStatsParam, TransformTask
from wasmline.spark.stream_job import POLL_INTERVAL_S, PartitionsAdded, StreamJob

log = logging.getLogger(__name__)

JAVA_PRODUCER_BATCH_BYTES = 16_384
"""The default batch.size of the Java producer."""

MAX_REQUEST_BYTES = str(32 << 20)
"""The sink's own limit for a record, in bytes: high, so that the broker's limit applies."""


def repartition_by_key(frame: DataFrame, shards: int) -> DataFrame:
    """Return the records spread over ``shards`` tasks, all records of a key in one task.

    Records of a key stay in order, because one task reads a partition. Records without a key have no order.
    """
    return frame.repartition(shards, "key", expr("if(key IS NULL, offset, 0)"))


def _lowest(parts: Sequence[OffsetRange]) -> dict[int, int]:
    """Return the first offset of a batch in each partition."""
    return {part.source.partition: part.begin for part in sorted(parts, key=lambda part: -part.begin)}


class _Stopped(Exception):
    pass


class MicrobatchJob(StreamJob[Deployment]):
    """One run of a streaming job in batches."""

    boundary = "a batch boundary"

    def __init__(self, spark: SparkSession, config: KafkaConfig, job: JobSpec, stream: StreamSpec) -> None:
        super().__init__(spark, config, job, stream)
        self._kafka = {f"kafka.{name}": value for name, value in config.java().items()}
        self._tally = spark.sparkContext.accumulator(BatchStats(), BatchStatsParam())
        self._failure: WasmlineError | None = None
        self._paused = threading.Event()
        self._exact = None if self._is_plain else TransactionalBatches(config, job)
        self._offsets: dict[int, int] = {}
        """The next offset of each partition after the last batch."""

    # -- the query's thread ------------------------------------------------------------------------------------------

    def _batch(self, frame: DataFrame, batch_id: int) -> None:
        """Run one batch; Spark calls this on a thread of its own and commits the batch when it returns."""
        try:
            parts = planned_offset_ranges(frame)
            self._tally.value = BatchStats()
            self._began_ms = now_ms()
            deployment = self._choose(parts)
            self._refuse_made_anew(Topics(self._config).describe(self._topic).id)
            if self._exact is not None:
                self._exact.look_after(parts)
            left = self._left(parts)
            self._retention.refuse_loss({partition: at for partition, (at, _) in left.items()})
            offsets = self._offsets | {partition: at for partition, (at, _) in left.items()}
            ends = offsets | {partition: max(at, end) for partition, (at, end) in left.items()}
            claim = self._claim(batch_id, deployment, offsets, ends)
            self._claimed = claim if self._exact is None else replace(claim, left=self._exact.leaves(parts))
            self._claims.claim(self._claimed)
            wasm = self._generations.module(deployment)
            usual = JAVA_PRODUCER_BATCH_BYTES if self._exact is None else EXACT_BATCH_BYTES
            batch_bytes = self._generations.batch_bytes(deployment, usual)
            limits = self._generations.limits(deployment)
        except WasmlineError as error:
            self._failure = error
            raise
        module = self._spark.sparkContext.broadcast(wasm)
        task = TransformTask(deployment=deployment, module=module, tally=self._tally, limits=limits)
        shards = self._stream.shards
        try:
            if self._exact is None:
                self._write(frame if shards is None else repartition_by_key(frame, shards), task, batch_bytes)
            elif shards is None:
                self._exact.write(frame, parts, task, batch_bytes)
            else:
                self._exact.write_sharded(repartition_by_key(frame, shards), parts, task, batch_bytes)
        except ProgressLost as error:
            self._failure = error
            raise
        finally:
            module.destroy()
        self._offsets = ends
        tally = self._tally.value
        if self._exact is not None:
            tally.hangs.update(self._exact.hangs)
        tally.lost_offsets += self._retention.lost(left)
        self._progress.batch(batch_id, deployment, tally)
        self._judge(deployment, tally)

    def _left(self, parts: tuple[OffsetRange, ...]) -> dict[int, tuple[int, int]]:
        """Return the unprocessed ranges of a batch, by partition."""
        done = {} if self._exact is None else self._exact.progress
        return {
            part.source.partition: (max(part.begin, done.get(part.source.partition, 0)), part.end) for part in parts
        }

    def _write(self, frame: DataFrame, task: TransformTask, batch_bytes: int) -> None:
        writer = frame.mapInArrow(task, SINK_COLUMNS).write.format("kafka").options(**self._kafka)
        writer = writer.option("kafka.max.request.size", MAX_REQUEST_BYTES).option(
            "kafka.buffer.memory", MAX_REQUEST_BYTES
        )
        writer = writer.option("kafka.batch.size", str(batch_bytes))
        writer.option("kafka.compression.type", task.deployment.spec.compression).save()

    def _choose(self, parts: Sequence[OffsetRange]) -> Deployment:
        """Return the deployment that the batch must run: the recorded generation for a replay, else the current one."""
        replayed = self._plan.replayed
        if replayed is not None and replayed.deployment is not None and overlaps(replayed, _lowest(parts)):
            return replayed.deployment
        while not self._stopping.is_set():
            deployment = self._generations.current()
            self._refuse_other_topic(deployment)
            if self._stream.trigger_interval is None:
                self._refuse_paused(deployment)
            if deployment.state == "running" and self._starts(deployment):
                self._paused.clear()
                return deployment
            self._paused.set()
            self._stopping.wait(POLL_INTERVAL_S)
        raise _Stopped

    def _starts(self, deployment: Deployment) -> bool:
        """Return whether the generation can run. If not, an endless job waits for a newer one."""
        try:
            self._generations.check(deployment)
        except (ModuleError, TransformError):
            if self._stream.trigger_interval is None:
                raise
            log.exception("generation %d of %s is paused", deployment.generation, deployment.spec.name)
            return False
        return True

    def _judge(self, deployment: Deployment, tally: BatchStats) -> None:
        """Pause the deployment if too many records failed over several small batches; this batch counts as done."""
        window = self._generations.window(deployment)
        try:
            window.add(tally.records_in.total(), tally.failures)
        except TooManyFailures as error:
            self._generations.pause(deployment, str(error))

    # -- the driver's thread -----------------------------------------------------------------------------------------

    def _current(self) -> Deployment:
        return self._deployed()

    def _prepare(self, deployment: Deployment) -> None:
        self._generations.check(deployment)
        if self._exact is not None:
            self._exact.prepare(self._topic)

    def _begin(self, deployment: Deployment) -> None:
        if self._exact is not None:
            self._exact.begin(self._plan, self._mapped, self._claims.refuse_others, is_renewed=self._is_renewed)
        self._claimed = self._first_claim(deployment)
        self._offsets = self._plan.offsets
        driver = self._name if self._is_plain else None
        self._progress = MicrobatchReporter(
            self._config, self._job, deployment, self._jobs, self._status, begins=self._offsets, driver=driver
        )

    def _came_to(self, newest: DriverClaim) -> Mapping[int, int]:
        if self._exact is not None:
            return self._exact.left
        is_done = checkpoint_state(self._spark, newest.checkpoint).committed >= newest.batch_id >= 0
        return newest.ends if is_done else newest.offsets

    def _is_outgrown(self) -> bool:
        """Return whether Spark may have failed to start because its starting offsets lack a new partition."""
        is_begun = checkpoint_state(self._spark, self._plan.checkpoint).planned >= 0
        return not is_begun and Topics(self._config).describe(self._topic).partitions > len(self._plan.offsets)

    def _report_done(self, deployment: Deployment) -> None:
        """Report the progress of a failed batch: exactly once, a partition is done completely or not at all."""
        self._progress.follow(self._query.recentProgress)
        if self._exact is None or self._claimed.batch_id < 0:
            return
        try:
            self._exact.look_again(self._claimed)
        except WasmlineError as error:
            log.warning(
                "the progress of batch %d of job %s is unknown: %s", self._claimed.batch_id, self._job.job, error
            )
            return
        begins = self._claimed.offsets
        done = {each: (begin, self._exact.left.get(each, begin)) for each, begin in begins.items()}
        if any(end > begin for begin, end in done.values()):
            self._progress.failed(self._claimed.batch_id, deployment, self._tally.value, done, self._began_ms)

    def _start(self, deployment: Deployment) -> StreamingQuery:
        source = (
            self._spark.readStream.format("kafka")
            .options(**self._kafka)
            .option("kafka.isolation.level", "read_committed")
            .option("subscribe", deployment.spec.input_topic)
            .option("startingOffsets", json.dumps({self._topic: self._plan.offsets}))
            .option("maxOffsetsPerTrigger", self._stream.max_offsets_per_trigger)
            .option("includeHeaders", "true")
            .option("failOnDataLoss", str(self._stream.fail_on_data_loss).lower())
            .load()
            .selectExpr(*INPUT_COLUMNS)
        )
        writer = source.writeStream.queryName(f"{self._job.job} {self._job.run}")
        interval = self._stream.trigger_interval
        writer = writer.trigger(availableNow=True) if interval is None else writer.trigger(processingTime=interval)
        self._query = writer.option("checkpointLocation", self._plan.checkpoint).foreachBatch(self._batch).start()
        return self._query

    def _follow(self, query: StreamingQuery) -> bool:
        if self._exact is not None:
            self._exact.keep()
        return self._progress.follow(query.recentProgress, paused=self._paused.is_set())

    def _report(self, state: JobState, message: str = "", error: str | None = None) -> JobReport:
        return self._progress.report(state, message, error)

    def _explain(self, exception: StreamingQueryException) -> None:
        """Raise the error that ended the query, unless it was a stop. A failed batch may run a newer generation."""
        if self._failure is not None:
            raise self._failure from exception
        text = str(exception)
        if self._stopping.is_set() and _Stopped.__name__ in text:
            return
        if self._is_outgrown():
            raise PartitionsAdded from exception
        deployment = self._claimed.deployment
        assert deployment is not None
        self._claims.claim(replace(self._claimed, batch_id=-1))
        self._report_done(deployment)
        if isinstance(refused := refusal(text), HangingTransaction):
            raise refused from exception
        failure = guest_failure(text)
        if failure is None:
            self._retention.refuse_loss(self._offsets if self._exact is None else self._exact.left)
            message = f"a batch of job {self._job.job} failed and does not count as done: {cause(text)}"
            raise JobFailed(message, report={}) from exception
        spec = deployment.spec
        paused = self._generations.pause(deployment, failure)
        message = f"{spec.name} failed at generation {deployment.generation}{', and is paused' if paused else ''}: "
        message += f"{failure}; the batch does not count as done: deploy again, and run the job again"
        raise DeploymentPaused(message, name=spec.name) from exception
