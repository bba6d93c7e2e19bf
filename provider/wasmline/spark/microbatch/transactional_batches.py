"""Exactly-once micro-batches: a transaction for each task of a batch; the group's progress is authoritative.

Spark plans the ranges and retries tasks; the progress that each task reads after fencing earlier tasks decides which
records are done. A replayed batch, a rolled back or lost checkpoint, and a second driver repeat nothing.
The protocol: docs/protocols/exactly_once.md.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql.functions import expr

from wasmline.consumer.backends.kafka import LazyOffsetStore, require_exactly_once
from wasmline.control import DriverClaim
from wasmline.errors import InvalidJob, JobError
from wasmline.job_offsets.committed_offset_reader import progress_lost_error, require_committed, stable_offsets
from wasmline.job_offsets.exactly_once_task import CommittedRange, OffsetRange, process_and_commit
from wasmline.job_offsets.microbatch_transactions import BatchTransactions
from wasmline.job_offsets.offset_renewal import OffsetRenewer, renew_offsets
from wasmline.job_offsets.resume_offset_commit import begin_added_partitions
from wasmline.job_offsets.resume_plan import RunPlan, is_possible_offset
from wasmline.job_specs import JobSpec, stream_of
from wasmline.kafka import ConsumerGroups, KafkaConfig, Topics
from wasmline.kafka.committed_offset_store import require_tested_client
from wasmline.kafka.librdkafka_ctypes import CLIENT
from wasmline.pipeline import BatchStats, TransformRunner
from wasmline.spark.microbatch.direct_task import drain, is_direct, one_row_per_task, read_parts, reset_of
from wasmline.spark.microbatch.task import PLACED_COLUMNS, TransformTask, record_batch, warm_instance, with_host
from wasmline.spark.spark_releases import MINOR, input_partition, require_tasks_by_number
from wasmline.spark.task_release import ReleaseBound
from wasmline.topic_partitions import TopicPartition
from wasmline.transactional_ids import VIRTUAL_SHARDS, virtual_shard

PRODUCER_BATCH_BYTES = 1_000_000
"""Maximum size of a record batch: the default of librdkafka."""

DONE_COLUMNS = "partition int, before bigint, after bigint, hangs int"
"""Committed offsets of each part before and after the batch, and how often lost markers delayed it."""

# Spark reuses its Python workers, and a worker process runs one task at a time.
_transactions: dict[TaskTransactions, BatchTransactions] = {}


def require_transactions(config: KafkaConfig, job: JobSpec, topic: str) -> None:
    """Check that cluster and Spark support exactly-once for ``topic``.

    Raises UnsafeBroker, GroupInUse; PrerequisiteMissing for a Spark that cannot gather outputs by their virtual shard.
    """
    require_gathering(config, job, topic)
    ConsumerGroups(config).require_no_members(job.group)
    offset_store = LazyOffsetStore(config, job.group)
    require_exactly_once(config, job.transactional_id, TopicPartition(topic, 0), offset_store)


def require_gathering(config: KafkaConfig, job: JobSpec, topic: str, minor: tuple[int, ...] = MINOR) -> None:
    """Raise PrerequisiteMissing if batches are gathered by virtual shard, and Spark is too old for that."""
    if minor >= (4, 1):
        return
    if stream_of(job).shards is not None:
        require_tasks_by_number("shards with exactly_once in micro-batches", minor)
    _require_gathering_of(topic, Topics(config).describe(topic).partitions, minor)


def _require_gathering_of(topic: str, partitions: int, minor: tuple[int, ...] = MINOR) -> None:
    """Raise PrerequisiteMissing if so many partitions share virtual shards, and Spark is too old for that."""
    if partitions > VIRTUAL_SHARDS:
        reason = f"exactly_once in micro-batches of {topic}, which has more than {VIRTUAL_SHARDS} partitions,"
        require_tasks_by_number(reason, minor)


class TransactionalBatches:
    """The driver's side: the job's own group, which holds the progress of every partition from the start on."""

    def __init__(
        self,
        config: KafkaConfig,
        job: JobSpec,
        topic: str,
        plan: RunPlan,
        mapped: Set[int],
        require_newest: Callable[[], None],
        *,
        is_renewed: bool,
        max_renewal_interval_s: float,
    ) -> None:
        """The group has the plan's offsets. ``is_renewed``: those without corrections were committed just now.

        ``mapped``: partitions with an offset map, which stays unless the plan corrects their offsets.
        ``require_newest`` raises unless this driver has the job.
        """
        self._config = config
        self._require_newest = require_newest
        self._job = job
        self._topic = topic
        self._groups = ConsumerGroups(config)
        is_renewed = is_renewed or plan.corrections.keys() == plan.offsets.keys()
        self._renewer = OffsetRenewer(config, topic, is_renewed=is_renewed, max_interval_s=max_renewal_interval_s)
        self._working = threading.Lock()
        self.partitions = len(plan.offsets)
        """Number of partitions with committed offsets in the group. From then on a missing one is an error."""
        self.hangs: dict[int, int] = {}
        """How often lost transaction markers delayed each partition of the last batch."""
        self.left = dict(plan.offsets)
        """Committed offsets of the partitions that no batch is processing."""
        self._mapped = set(mapped) - plan.corrections.keys()
        """Partitions that may have an offset map in the group."""
        self._late = plan.late
        """Offsets that tasks of earlier drivers may still commit: one that was fenced may be retried."""
        self.progress: dict[int, int] = {}
        """The group's progress when the last batch was checked."""

    def check(self, parts: Sequence[OffsetRange]) -> None:
        """Check a batch before it is claimed: members of the group, and new partitions.

        Raises GroupInUse; InvalidJob if a partition is split over tasks; PrerequisiteMissing for new partitions that
        this Spark cannot gather; ProgressLost if the progress differs from what the last batch left.
        """
        self._groups.require_no_members(self._job.group)
        if len({part.source for part in parts}) < len(parts):
            text = "a partition's range is split over tasks, but exactly-once needs it in one task: "
            raise InvalidJob(text + "set neither minPartitions nor maxRecordsPerPartition")
        if any(part.source.partition >= self.partitions for part in parts):
            begins = Topics(self._config).beginning_offsets(self._topic)
            added = {each: begin for each, begin in begins.items() if each >= self.partitions}
            self.left |= begin_added_partitions(self._config, self._job, self._topic, added, self._require_newest)
            self.partitions += len(added)
            _require_gathering_of(self._topic, self.partitions)
        self.progress = self._groups.committed(self._job.group, self._topic)
        if self.left.items() <= self.progress.items():
            return
        # The markers of the last batch's transactions may not be written yet.
        self.progress = self._stable(range(self.partitions))
        for partition, before in self.left.items():
            found = self.progress.get(partition)
            if found != before and (found is None or found < before or found not in self._late.get(partition, ())):
                raise progress_lost_error(self._job.group, self._topic, partition, found, before)
            self.left[partition] = found

    def write(self, frame: DataFrame, parts: tuple[OffsetRange, ...], work: TransformTask, batch_bytes: int) -> None:
        """Run a batch as the Kafka source planned it; partitions of one virtual shard run in one task.

        Where there is compiled code, each task reads its records itself, and the frame is not evaluated.

        Raises ProgressLost if the progress has changed.
        """
        writing = self._task_transactions(work, batch_bytes)
        if is_direct(stream_of(self._job)):
            tasks = tuple(filter(None, self._by_shard(parts)))
            self._run(one_row_per_task(frame, len(tasks)), tasks, writing, work, reads=True)
        elif len({virtual_shard(part.source.partition) for part in parts}) == len(parts):
            self._run(frame, tuple((part,) for part in parts), writing, work)
        else:
            self._run_gathered(frame, parts, writing, work)

    def write_sharded(
        self, shards: DataFrame, parts: tuple[OffsetRange, ...], work: TransformTask, batch_bytes: int
    ) -> None:
        """Run a batch that was spread over tasks by key, as ``write`` does.

        Outputs are gathered by the virtual shard of their input, and written in that shard's transaction. Outputs of
        one key come from one task, so they stay in order. Records done before are run, and their outputs dropped.
        """
        made = shards.mapInArrow(replace(work, placed=True), PLACED_COLUMNS)
        self._run_gathered(made, parts, self._task_transactions(work, batch_bytes), None)

    def offsets_after(self, parts: Sequence[OffsetRange]) -> dict[int, int]:
        """Return the offsets committed after a batch, as far as known: an offset map may lead above the batch's end."""
        ends = {part.source.partition: max(part.end, self.progress.get(part.source.partition, 0)) for part in parts}
        return {each: at for each, at in (self.left | ends).items() if each not in ends or each not in self._mapped}

    def read_failed(self, claim: DriverClaim) -> None:
        """Record the progress that the tasks of a failed batch left. They commit nothing any more."""
        partitions = claim.offsets.keys() - self.left.keys()
        renew_offsets(self._config, self._job, self._topic, partitions, fences=True)
        found = self._stable(partitions)
        self.left |= {partition: at for partition, at in found.items() if is_possible_offset(claim, partition, at)}

    def renew_if_due(self) -> None:
        """Renew the progress if it is due and no batch is being written. Thread-safe."""
        if self._working.acquire(blocking=False):
            try:
                self._renewer.renew_if_due(self._job, range(self.partitions))
            finally:
                self._working.release()

    def _task_transactions(self, work: TransformTask, batch_bytes: int) -> TaskTransactions:
        return TaskTransactions(
            config=self._config.to_json(),
            group=self._job.group,
            transactional_id=self._job.transactional_id,
            compression=work.deployment.spec.compression,
            topics=work.deployment.spec.topics[1:],
            client=CLIENT,
            batch_bytes=batch_bytes,
        )

    def _run_gathered(
        self, frame: DataFrame, parts: tuple[OffsetRange, ...], writing: TaskTransactions, work: TransformTask | None
    ) -> None:
        """Run each virtual shard in the task of its number, which receives the rows of one task in order."""
        shards = self._by_shard(parts)
        shard = expr(f"partition % {VIRTUAL_SHARDS}")
        self._run(frame.repartitionById(len(shards), shard), shards, writing, work)

    def _by_shard(self, parts: Sequence[OffsetRange]) -> tuple[tuple[OffsetRange, ...], ...]:
        """Return the parts of each virtual shard."""
        shards: list[list[OffsetRange]] = [[] for _ in range(min(self.partitions, VIRTUAL_SHARDS))]
        for part in parts:
            shards[virtual_shard(part.source.partition)].append(part)
        return tuple(map(tuple, shards))

    def _run(
        self,
        frame: DataFrame,
        tasks: tuple[tuple[OffsetRange, ...], ...],
        writing: TaskTransactions,
        work: TransformTask | None,
        *,
        reads: bool = False,
    ) -> None:
        for part in chain.from_iterable(tasks):
            self.left.pop(part.source.partition, None)
        with self._working:
            reset = reset_of(stream_of(self._job)) if reads else None
            task = TransactionalTask(tasks=tasks, writing=writing, work=work, reset=reset)
            rows = frame.mapInArrow(task, DONE_COLUMNS).collect()
        found = {TopicPartition(self._topic, row.partition): row.before for row in rows}
        self.hangs = {row.partition: row.hangs for row in rows}
        require_committed(self._job.group, found, {part.source: part.begin for parts in tasks for part in parts})
        self.left |= {row.partition: row.after for row in rows}
        ends = {part.source.partition: part.end for parts in tasks for part in parts}
        self._mapped -= {partition for partition, end in ends.items() if self.left[partition] == end}

    def _stable(self, partitions: Iterable[int]) -> dict[int, int]:
        found = stable_offsets(self._config, self._job, self._topic, partitions, require_newest=self._require_newest)
        return {partition: each.offset for partition, each in found.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskTransactions:
    """Settings of a task's Kafka clients. ``client``: the release of confluent-kafka that the driver has tested."""

    config: str = field(repr=False)
    group: str
    transactional_id: str
    compression: str
    batch_bytes: int
    topics: tuple[str, ...]
    client: str = ""

    def transactions(self) -> BatchTransactions:
        """Return this process's transactions, and close those of an earlier deployment.

        Raises ReleaseMismatch if this process has another Kafka client than the driver, which has tested its own.
        """
        require_tested_client(self.client)
        if self not in _transactions:
            while _transactions:
                _transactions.popitem()[1].close()
            settings = {"compression.type": self.compression, "batch.size": str(self.batch_bytes)}
            config = KafkaConfig.from_json(self.config)
            _transactions[self] = BatchTransactions(config, self.group, self.transactional_id, settings, self.topics)
        return _transactions[self]


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionalTask(ReleaseBound):
    """The function that Spark's mapInArrow runs: the records of some parts in, DONE_COLUMNS out.

    ``tasks``: the parts of each task, by its number. ``work=None``: the transform has run; the records are
    PLACED_COLUMNS. ``reset``: if each task reads the records of its parts itself, and is given none.
    """

    tasks: tuple[tuple[OffsetRange, ...], ...]
    writing: TaskTransactions
    work: TransformTask | None
    reset: str | None = None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        parts = self.tasks[context.partitionId()]
        if parts:
            done = self._run(parts, batches, self.work) if self.work else self._write(parts, batches)
            hangs = self.writing.transactions().hangs
            rows = [
                {"partition": partition, **each._asdict(), "hangs": hangs.pop(partition, 0)}
                for partition, each in done.items()
            ]
            yield pa.RecordBatch.from_pylist(rows, schema=_DONE)
        elif any(batch.num_rows for batch in batches):  # a worker that has not read to the end is not used again
            raise JobError("a task without a part of the batch received records")

    def _run(
        self, parts: tuple[OffsetRange, ...], batches: Iterator[pa.RecordBatch], work: TransformTask
    ) -> dict[int, CommittedRange]:
        stats = BatchStats()
        with warm_instance(work.deployment.spec, work.module) as instance:
            pipeline = TransformRunner(work.deployment, instance, stats, work.limits)
            read = partial(self._read, batches)
            done = process_and_commit(parts, read, self.writing.transactions(), pipeline.run_placed)
        work.stats.add(with_host(stats))
        return done

    def _read(self, batches: Iterator[pa.RecordBatch], left: Sequence[OffsetRange]) -> Iterable[pa.RecordBatch]:
        """Return the records that Spark has read, or read those that are left."""
        if self.reset is None:
            return map(record_batch, batches)
        drain(batches)
        return read_parts(self.writing.config, left, self.reset)

    def _write(self, parts: tuple[OffsetRange, ...], batches: Iterator[pa.RecordBatch]) -> dict[int, CommittedRange]:
        return process_and_commit(parts, lambda _: batches, self.writing.transactions(), lambda rows: [rows])


_DONE = pa.schema([("partition", pa.int32()), ("before", pa.int64()), ("after", pa.int64()), ("hangs", pa.int32())])


def planned_offset_ranges(frame: DataFrame) -> tuple[OffsetRange, ...]:
    """Return the ranges that the Kafka source planned for the tasks of a batch, read from the query plan.

    Records do not show them: a range may end with offsets without records, and a task may have no records at all.
    """
    parts = []
    for task in frame._jdf.queryExecution().toRdd().partitions():
        planned = input_partition(task).offsetRange()
        source = TopicPartition(planned.topic(), planned.partition())
        parts.append(OffsetRange(source=source, begin=planned.fromOffset(), end=planned.untilOffset()))
    return tuple(parts)
