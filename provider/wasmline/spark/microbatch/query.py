"""A deployment as a Structured Streaming query: Kafka in, one Wasm stage, Kafka out, a generation per batch.

Everything runs inside ``foreachBatch``, because a plain ``writeStream`` would fix the module for the life of the query.
For each batch the generation is chosen and recorded durably before the batch runs. If the driver fails, the replay of
the batch runs the recorded one; if the batch itself fails, it may run a newer one. Tasks read their ranges and write
their outputs themselves (``direct_task``, ``transactional_batches``). With shards, or without compiled code, Spark
reads the records and, at least once, its own Kafka sink writes the outputs.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar
from weakref import WeakMethod

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql.functions import expr
from pyspark.sql.streaming.query import StreamingQuery

from wasmline.clock import now_ms
from wasmline.control import Deployment, DriverClaim
from wasmline.errors import (
    DeploymentPaused,
    HangingTransaction,
    JobFailed,
    ModuleError,
    NotAuthorized,
    ProgressLost,
    ReleaseMismatch,
    TooManyFailures,
    TransformError,
    WasmlineError,
)
from wasmline.job_offsets.exactly_once_task import OffsetRange
from wasmline.job_offsets.resume_plan import overlaps
from wasmline.job_specs import JobReport, JobState
from wasmline.kafka import Topics
from wasmline.pipeline import BatchStats
from wasmline.pipeline.preflight import require_input_topic
from wasmline.spark.checkpoint_reader import checkpoint_state
from wasmline.spark.deployment_tracker import require_running
from wasmline.spark.driver_claim_builder import batch_claim, first_claim
from wasmline.spark.driver_context import DriverContext
from wasmline.spark.error_parsing import cause, guest_failure, job_error
from wasmline.spark.job_query import JobQuery, PartitionsAdded
from wasmline.spark.microbatch.direct_task import is_direct, reset_of, run_directly
from wasmline.spark.microbatch.job_reporter import MicrobatchReporter
from wasmline.spark.microbatch.task import INPUT_COLUMNS, SINK_COLUMNS, BatchStatsParam, TransformTask
from wasmline.spark.microbatch.transactional_batches import PRODUCER_BATCH_BYTES as TRANSACTIONAL_BATCH_BYTES
from wasmline.spark.microbatch.transactional_batches import TransactionalBatches, planned_offset_ranges
from wasmline.spark.run_planner import PlannedRun
from wasmline.spark.timings import POLL_INTERVAL_S

log = logging.getLogger(__name__)

T = TypeVar("T")

JAVA_PRODUCER_BATCH_BYTES = 16_384
"""The default batch.size of the Java producer."""

RETRY_BACKOFF_S = 1.0
"""Seconds until an unavailable cluster is asked again, before and after the tasks of a batch."""

PLANNING_OPTIONS = {
    "kafka.request.timeout.ms": "5000",
    "kafka.default.api.timeout.ms": "5000",
    "fetchOffset.numRetries": "24",
}
"""Options of a Kafka source that plans offsets only: a request of Kafka's admin client to a broker that dies waits for
that until its time-out, a minute by default, and Spark gives up after three. Consumers may need longer for a fetch."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class _ClaimedBatch:
    """A batch that may run. left: its unprocessed range by partition. ends: the next offset of each afterwards."""

    deployment: Deployment
    parts: tuple[OffsetRange, ...]
    left: dict[int, tuple[int, int]]
    ends: dict[int, int]
    wasm: bytes
    limits: dict[str, int]
    batch_bytes: int


class MicrobatchQuery(JobQuery):
    """The query of a run in batches. ``transactions``: for exactly once; the tasks then write and commit."""

    def __init__(
        self, context: DriverContext, run: PlannedRun[Deployment], transactions: TransactionalBatches | None
    ) -> None:
        self._context = context
        self._run = run
        self._transactions = transactions
        self._kafka = {f"kafka.{name}": value for name, value in context.config.java().items()}
        self._stats = context.spark.sparkContext.accumulator(BatchStats(), BatchStatsParam())
        self._failure: WasmlineError | None = None
        self._paused = threading.Event()
        self._claimed = first_claim(context, run)
        """The newest claim."""
        self._claimed_ms = now_ms()
        self._offsets: dict[int, int] = run.plan.offsets
        """The next offset of each partition after the last batch."""
        self._reporter = MicrobatchReporter(
            context.config,
            context.job,
            run.deployment,
            context.jobs,
            context.write_report,
            context.statuses,
            begins=run.plan.offsets,
            driver=context.driver if transactions is None else None,
        )

    # -- the query's thread ------------------------------------------------------------------------------------------

    def _run_batch(self, frame: DataFrame, batch_id: int) -> None:
        """Run one batch; Spark calls this on a thread of its own and commits the batch when it returns."""
        try:
            batch = self._retried(partial(self._claim_batch, planned_offset_ranges(frame), batch_id))
        except WasmlineError as error:
            self._failure = error
            raise
        module = self._context.spark.sparkContext.broadcast(batch.wasm)
        task = TransformTask(deployment=batch.deployment, module=module, stats=self._stats, limits=batch.limits)
        try:
            self._write(frame, batch, task)
        except ProgressLost as error:
            self._failure = error
            raise
        finally:
            module.destroy()
        self._offsets = batch.ends
        stats = self._stats.value
        if self._transactions is not None:
            stats.hangs.update(self._transactions.hangs)
        stats.lost_offsets += self._retried(partial(self._run.prepared.data_loss.lost, batch.left))
        self._reporter.batch(batch_id, batch.deployment, stats)
        self._check_failures(batch.deployment, stats)

    def _claim_batch(self, parts: tuple[OffsetRange, ...], batch_id: int) -> _ClaimedBatch:
        """Choose the generation of a batch and record it durably."""
        context = self._context
        self._stats.value = BatchStats()
        self._claimed_ms = now_ms()
        deployment = self._choose(parts)
        self._run.topic.require_not_recreated(context.config)
        if self._transactions is not None:
            self._transactions.check(parts)
        left = self._left(parts)
        self._run.prepared.data_loss.require_no_loss({partition: at for partition, (at, _) in left.items()})
        offsets = self._offsets | {partition: at for partition, (at, _) in left.items()}
        ends = offsets | {partition: max(at, end) for partition, (at, end) in left.items()}
        claim = batch_claim(context, self._run, batch_id, deployment, offsets, ends)
        if self._transactions is not None:
            claim = replace(claim, left=self._transactions.offsets_after(parts))
        self._claimed = claim
        context.claims.claim(claim)
        usual = JAVA_PRODUCER_BATCH_BYTES if self._writes_by_sink else TRANSACTIONAL_BATCH_BYTES
        return _ClaimedBatch(
            deployment=deployment,
            parts=parts,
            left=left,
            ends=ends,
            wasm=context.deployments.module(deployment),
            batch_bytes=context.deployments.batch_bytes(deployment, usual),
            limits=context.deployments.limits(deployment),
        )

    def _retried(self, call: Callable[[], T]) -> T:
        """Return the result of a call, which is repeated while the cluster is unavailable, until a stop."""
        while True:
            try:
                return call()
            except WasmlineError as error:
                if not error.retryable:
                    raise
                log.warning("job %s: retrying in %.0f s: %s", self._context.job.job, RETRY_BACKOFF_S, error)
            if self._context.stopping.wait(RETRY_BACKOFF_S):
                raise _Stopped

    def _left(self, parts: tuple[OffsetRange, ...]) -> dict[int, tuple[int, int]]:
        """Return the unprocessed ranges of a batch, by partition."""
        done = {} if self._transactions is None else self._transactions.progress
        return {
            part.source.partition: (max(part.begin, done.get(part.source.partition, 0)), part.end) for part in parts
        }

    def _choose(self, parts: Sequence[OffsetRange]) -> Deployment:
        """Return the deployment that the batch must run: the recorded generation for a replay, else the current one."""
        replayed = self._run.plan.replayed
        if replayed is not None and replayed.deployment is not None and overlaps(replayed, _lowest(parts)):
            return replayed.deployment
        stopping = self._context.stopping
        while not stopping.is_set():
            deployment = self._context.deployments.current()
            require_input_topic(deployment, self._run.topic.name)
            if self._context.stream.trigger_interval is None:
                require_running(deployment)
            if deployment.state == "running" and self._starts(deployment):
                self._paused.clear()
                return deployment
            self._paused.set()
            stopping.wait(POLL_INTERVAL_S)
        raise _Stopped

    def _starts(self, deployment: Deployment) -> bool:
        """Return whether the generation can run. If not, an endless job waits for a newer one."""
        try:
            self._context.deployments.check(deployment)
        except (ModuleError, TransformError):
            if self._context.stream.trigger_interval is None:
                raise
            log.exception("generation %d of %s is paused", deployment.generation, deployment.spec.name)
            return False
        return True

    @property
    def _writes_by_sink(self) -> bool:
        """Whether outputs go through Spark's own sink: at least once, and not by tasks that also read."""
        return self._transactions is None and not is_direct(self._context.stream)

    def _write(self, frame: DataFrame, batch: _ClaimedBatch, task: TransformTask) -> None:
        shards = self._context.stream.shards
        if self._writes_by_sink:
            self._write_to_sink(frame if shards is None else repartition_by_key(frame, shards), batch, task)
        elif self._transactions is None:
            reset = reset_of(self._context.stream)
            run_directly(frame, batch.parts, task, self._context.config, batch.batch_bytes, reset)
        elif shards is None:
            self._transactions.write(frame, batch.parts, task, batch.batch_bytes)
        else:
            by_key = repartition_by_key(frame, shards)
            self._transactions.write_sharded(by_key, batch.parts, task, batch.batch_bytes)

    def _write_to_sink(self, frame: DataFrame, batch: _ClaimedBatch, task: TransformTask) -> None:
        writer = frame.mapInArrow(task, SINK_COLUMNS).write.format("kafka").options(**self._kafka)
        writer = writer.option("kafka.max.request.size", MAX_REQUEST_BYTES).option(
            "kafka.buffer.memory", MAX_REQUEST_BYTES
        )
        writer = writer.option("kafka.batch.size", str(batch.batch_bytes))
        writer.option("kafka.compression.type", task.deployment.spec.compression).save()

    def _check_failures(self, deployment: Deployment, stats: BatchStats) -> None:
        """Pause the deployment if too many records failed over several small batches; this batch counts as done."""
        window = self._context.deployments.window(deployment)
        try:
            window.add(stats.records_in.total(), stats.failures)
        except TooManyFailures as error:
            self._context.deployments.pause(deployment, str(error))

    # -- the driver's thread -----------------------------------------------------------------------------------------

    def start(self) -> StreamingQuery:
        run_batch = WeakMethod(self._run_batch)

        def run_if_watched(frame: DataFrame, batch_id: int) -> None:
            """Run a batch. The JVM keeps this function after the query, and with it would keep all clients."""
            if (run := run_batch()) is None:
                raise _Stopped
            run(frame, batch_id)

        job, stream, plan = self._context.job, self._context.stream, self._run.plan
        source = (
            self._context.spark.readStream.format("kafka")
            .options(**(PLANNING_OPTIONS if is_direct(stream) else {}), **self._kafka)
            .option("kafka.isolation.level", "read_committed")
            .option("subscribe", self._run.topic.name)
            .option("startingOffsets", json.dumps({self._run.topic.name: plan.offsets}))
            .option("maxOffsetsPerTrigger", stream.max_offsets_per_trigger)
            .option("includeHeaders", "true")
            .option("failOnDataLoss", str(stream.fail_on_data_loss).lower())
            .load()
            .selectExpr(*INPUT_COLUMNS)
        )
        writer = source.writeStream.queryName(f"{job.job} {job.run}")
        interval = stream.trigger_interval
        writer = writer.trigger(availableNow=True) if interval is None else writer.trigger(processingTime=interval)
        return writer.option("checkpointLocation", plan.checkpoint).foreachBatch(run_if_watched).start()

    def poll(self, query: StreamingQuery) -> bool:
        if self._transactions is not None:
            self._transactions.renew_if_due()
        return self._reporter.follow(query.recentProgress, paused=self._paused.is_set())

    def report(self, state: JobState, message: str = "", error: str | None = None) -> JobReport:
        return self._reporter.report(state, message, error)

    def before_stop(self) -> None:
        """Do nothing: the stop of a query leaves its next batch to the next run."""

    def certain_offsets(self, newest: DriverClaim) -> Mapping[int, int]:
        if self._transactions is not None:
            return self._transactions.left
        is_done = checkpoint_state(self._context.spark, newest.checkpoint).committed >= newest.batch_id >= 0
        return newest.ends if is_done else newest.offsets

    def raise_cause(self, query: StreamingQuery, exception: StreamingQueryException) -> None:
        """Raise the error that ended the query, unless it was a stop. A failed batch may run a newer generation."""
        if self._failure is not None:
            raise self._failure from exception
        text = str(exception)
        if self._context.stopping.is_set() and _Stopped.__name__ in text:
            return
        if self._lacks_partitions():
            raise PartitionsAdded from exception
        deployment = self._claimed.deployment
        assert deployment is not None
        self._context.claims.claim(replace(self._claimed, batch_id=-1))
        try:
            self._report_done(query, deployment)
        except NotAuthorized as denied:  # what has failed the query is the error of the run
            log.warning("the progress of the failed batch is not reported: %s", denied)
        if isinstance(error := job_error(text), HangingTransaction | ReleaseMismatch):
            raise error from exception
        failure = guest_failure(text)
        if failure is None:
            reached = self._offsets if self._transactions is None else self._transactions.left
            self._run.prepared.data_loss.require_no_loss(reached)
            job = self._context.job.job
            message = f"a batch of job {job} failed and does not count as done: {cause(text)}"
            raise JobFailed(message, report={}) from exception
        spec = deployment.spec
        paused = self._context.deployments.pause(deployment, failure)
        message = f"{spec.name} failed at generation {deployment.generation}{', and is paused' if paused else ''}: "
        message += f"{failure}; the batch does not count as done: deploy again, and run the job again"
        raise DeploymentPaused(message, name=spec.name) from exception

    def _lacks_partitions(self) -> bool:
        """Return whether Spark may have failed to start because its starting offsets lack a new partition."""
        plan, topics = self._run.plan, Topics(self._context.config)
        is_begun = checkpoint_state(self._context.spark, plan.checkpoint).planned >= 0
        return not is_begun and topics.describe(self._run.topic.name).partitions > len(plan.offsets)

    def _report_done(self, query: StreamingQuery, deployment: Deployment) -> None:
        """Report the progress of a failed batch: exactly once, a partition is done completely or not at all."""
        self._reporter.follow(query.recentProgress)
        claim = self._claimed
        if self._transactions is None or claim.batch_id < 0:
            return
        try:
            self._transactions.read_failed(claim)
        except WasmlineError as error:
            log.warning(
                "the progress of batch %d of job %s is unknown: %s", claim.batch_id, self._context.job.job, error
            )
            return
        left = self._transactions.left
        done = {each: (begin, left.get(each, begin)) for each, begin in claim.offsets.items()}
        if any(end > begin for begin, end in done.values()):
            self._reporter.failed(claim.batch_id, deployment, self._stats.value, done, self._claimed_ms)
