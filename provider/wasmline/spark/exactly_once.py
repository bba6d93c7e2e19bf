"""Micro-batches exactly once: a transaction for each task of a batch, and the group's progress as the truth.

Spark plans the ranges and tries tasks again; what is done is decided by the progress that each task reads after it has
fenced those before it. A batch that is replayed, a checkpoint that is rolled back or lost, and a second driver repeat
nothing. The protocol: ``reference/spark.md`` §6.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql.functions import expr

from wasmline.consumer.backend import VIRTUAL_SHARDS, virtual_shard
from wasmline.consumer.confluent.assigned import refuse_lost
from wasmline.consumer.confluent.batch_transactions import BatchTransactions
from wasmline.consumer.confluent.door import GroupDoor
from wasmline.consumer.confluent.transactions import assure_safe
from wasmline.errors import InvalidJob, JobError
from wasmline.jobs import JobSpec
from wasmline.kafka import ConsumerGroups, KafkaConfig
from wasmline.pipeline import Tally, TransformPipeline
from wasmline.pipeline.group_progress import settle
from wasmline.pipeline.part import Part, carry_out
from wasmline.pipeline.renewal import Renewal
from wasmline.records import TopicPartition
from wasmline.spark.series import Starting
from wasmline.spark.task import PLACED_COLUMNS, TransformTask, record_batch, warm_instance

BATCH_BYTES = 1_000_000
"""The most that a batch of records may have: what the C client has by default."""

FOUND_COLUMNS = "partition int, found bigint"
"""What the group had committed for each part before."""

# Spark reuses its Python workers, and a worker process runs one task at a time.
_transactions: dict[ExactWriting, BatchTransactions] = {}


class ExactProgress:
    """The driver's side: a group of the job's own that holds its progress, for every partition, from its start on."""

    def __init__(self, config: KafkaConfig, job: JobSpec, topic: str) -> None:
        self._config = config
        self._job = job
        self._topic = topic
        self._groups = ConsumerGroups(config)
        self._renewal = Renewal(config, topic)
        self._working = threading.Lock()
        self.partitions = 0
        """How many partitions have their progress in the group. It must be found there from then on."""

    def prepare(self, starting: Starting, *, known: int, is_anew: bool) -> None:
        """Make sure that exactly-once can be promised, and that every partition has progress.

        For the arguments see ``settle``. Raises UnsafeBroker, GroupInUse, ProgressLost.
        """
        self._groups.refuse_members(self._job.group)
        door = GroupDoor(self._config, self._job.group)
        assure_safe(self._config, self._job.transactional_id, TopicPartition(self._topic, 0), door)
        self._settle(starting, known, is_anew=is_anew)

    def ranges(self, frame: DataFrame) -> tuple[Part, ...]:
        """Return what each task of a batch reads, in the order of the tasks; look after what is new among it.

        Raises GroupInUse; InvalidJob where a partition is split over tasks.
        """
        self._groups.refuse_members(self._job.group)
        parts = _planned(frame)
        if len({part.source for part in parts}) < len(parts):
            text = "a partition's range is split over tasks, and exactly-once needs it whole: "
            raise InvalidJob(text + "set neither minPartitions nor maxRecordsPerPartition")
        if any(part.source.partition >= self.partitions for part in parts):
            self._settle("earliest", self.partitions)
        return parts

    def write(self, frame: DataFrame, parts: tuple[Part, ...], work: TransformTask, batch_bytes: int) -> None:
        """Run a batch as the Kafka source planned it; partitions of one virtual shard come together in one task.

        Raises ProgressLost where the progress is not where it was.
        """
        if len({virtual_shard(part.source.partition) for part in parts}) == len(parts):
            self._run(frame, tuple((part,) for part in parts), self._writing(work, batch_bytes), work)
        else:
            self._run_gathered(frame, parts, self._writing(work, batch_bytes), work)

    def write_sharded(self, shards: DataFrame, parts: tuple[Part, ...], work: TransformTask, batch_bytes: int) -> None:
        """Run a batch that was spread over tasks by key, as ``write`` does.

        What the tasks made comes together again by the virtual shard of its input, whose transaction it is. Outputs of
        one key come from one task, so that they stay in order. What was done before is run, and left out then.
        """
        made = shards.mapInArrow(replace(work, placed=True), PLACED_COLUMNS)
        self._run_gathered(made, parts, self._writing(work, batch_bytes), None)

    def keep(self) -> None:
        """Renew the progress if it is time and no batch is written; any thread may ask for it."""
        if self._working.acquire(blocking=False):
            try:
                self._renewal.keep(self._job, range(self.partitions))
            finally:
                self._working.release()

    def _writing(self, work: TransformTask, batch_bytes: int) -> ExactWriting:
        return ExactWriting(
            config=self._config.to_json(),
            group=self._job.group,
            transactional_id=self._job.transactional_id,
            compression=work.deployment.spec.compression,
            batch_bytes=batch_bytes,
        )

    def _run_gathered(
        self, frame: DataFrame, parts: tuple[Part, ...], writing: ExactWriting, work: TransformTask | None
    ) -> None:
        """Run each virtual shard in the task of its number, to which the rows of one task come in their order."""
        shards: list[list[Part]] = [[] for _ in range(min(self.partitions, VIRTUAL_SHARDS))]
        for part in parts:
            shards[virtual_shard(part.source.partition)].append(part)
        shard = expr(f"partition % {VIRTUAL_SHARDS}")
        self._run(frame.repartitionById(len(shards), shard), tuple(map(tuple, shards)), writing, work)

    def _run(
        self, frame: DataFrame, tasks: tuple[tuple[Part, ...], ...], writing: ExactWriting, work: TransformTask | None
    ) -> None:
        with self._working:
            rows = frame.mapInArrow(ExactTask(tasks=tasks, writing=writing, work=work), FOUND_COLUMNS).collect()
        found = {TopicPartition(self._topic, row.partition): row.found for row in rows}
        refuse_lost(self._job.group, found, {part.source: part.begin for parts in tasks for part in parts})

    def _settle(self, starting: Starting, known: int, *, is_anew: bool = False) -> None:
        progress = settle(self._config, self._job.group, self._topic, starting, known=known, is_anew=is_anew)
        self.partitions = len(progress)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactWriting:
    """Who writes, and how: what the clients of a task are made of."""

    config: str = field(repr=False)
    group: str
    transactional_id: str
    compression: str
    batch_bytes: int

    def transactions(self) -> BatchTransactions:
        """Return this process's, and let go of those of an earlier deployment."""
        if self not in _transactions:
            while _transactions:
                _transactions.popitem()[1].close()
            settings = {"compression.type": self.compression, "batch.size": str(self.batch_bytes)}
            config = KafkaConfig.from_json(self.config)
            _transactions[self] = BatchTransactions(config, self.group, self.transactional_id, settings)
        return _transactions[self]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactTask:
    """The function that Spark's mapInArrow runs: the records of some parts in, FOUND_COLUMNS out.

    ``tasks`` has the parts of each task, by its number. ``work`` None means that the work is done: the records are
    PLACED_COLUMNS.
    """

    tasks: tuple[tuple[Part, ...], ...]
    writing: ExactWriting
    work: TransformTask | None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        parts = self.tasks[context.partitionId()]
        if parts:
            found = self._run(parts, batches, self.work) if self.work else self._write(parts, batches)
            rows = [{"partition": partition, "found": offset} for partition, offset in found.items()]
            yield pa.RecordBatch.from_pylist(rows, schema=_FOUND)
        elif any(batch.num_rows for batch in batches):  # a worker that has not read to the end is not used again
            raise JobError("a task without a part of the batch was given records")

    def _run(
        self, parts: tuple[Part, ...], batches: Iterator[pa.RecordBatch], work: TransformTask
    ) -> dict[int, int | None]:
        tally = Tally()
        with warm_instance(work.deployment.spec, work.module) as instance:
            pipeline = TransformPipeline(work.deployment, instance, tally)
            records = (record_batch(batch) for batch in batches)
            found = carry_out(parts, records, self.writing.transactions(), pipeline.run_placed)
        work.tally.add(tally)
        return found

    def _write(self, parts: tuple[Part, ...], batches: Iterator[pa.RecordBatch]) -> dict[int, int | None]:
        return carry_out(parts, batches, self.writing.transactions(), lambda rows: [rows])


_FOUND = pa.schema([("partition", pa.int32()), ("found", pa.int64())])


def _planned(frame: DataFrame) -> tuple[Part, ...]:
    """Return the ranges that the Kafka source planned for the tasks of a batch, which only its plan tells.

    The records do not: a range may end with offsets that are none, and a task without records would not know its own.
    """
    parts = []
    for task in frame._jdf.queryExecution().toRdd().partitions():
        planned = task.inputPartition().get().offsetRange()
        source = TopicPartition(planned.topic(), planned.partition())
        parts.append(Part(source=source, begin=planned.fromOffset(), end=planned.untilOffset()))
    return tuple(parts)
