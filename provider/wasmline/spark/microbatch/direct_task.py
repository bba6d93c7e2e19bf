"""Tasks that read their records and write their outputs themselves, by compiled code.

Spark plans the offsets of a batch and decides when it is done; the records pass through neither its Kafka source nor
its sink. It needs no shuffle, so it is for batches that run as the source planned them.
"""

from __future__ import annotations

import atexit
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame

from wasmline.job_offsets.batch_outputs import BatchOutputs
from wasmline.job_offsets.exactly_once_task import OffsetRange
from wasmline.job_offsets.range_reader import RangeReader
from wasmline.job_specs import StreamSpec
from wasmline.kafka.compiled_columns import compiled_columns
from wasmline.kafka.config import KafkaConfig
from wasmline.pipeline import BatchStats, TransformRunner
from wasmline.spark.microbatch.task import TransformTask, warm_instance, with_host
from wasmline.spark.task_release import ReleaseBound

# Spark reuses its Python workers, and a worker process runs one task at a time.
_readers: dict[tuple[str, str, str], RangeReader] = {}


def is_direct(stream: StreamSpec) -> bool:
    """Return whether the tasks of a stream's batches read and write by themselves."""
    return stream.shards is None and compiled_columns() is not None


def one_row_per_task(frame: DataFrame, tasks: int) -> DataFrame:
    """Return a frame of so many tasks, each of which is given one row, for a function that reads by itself."""
    return frame.sparkSession.range(0, tasks, 1, tasks)


def drain(batches: Iterator[pa.RecordBatch]) -> None:
    """Read what Spark gives a task to the end: otherwise it does not use the worker again."""
    for _ in batches:
        pass


def reset_of(stream: StreamSpec) -> str:
    """Return the ``auto.offset.reset`` of readers: what retention has removed is an error, or is left out."""
    return "error" if stream.fail_on_data_loss else "earliest"


def read_parts(config: str, parts: Sequence[OffsetRange], reset: str) -> Iterator[pa.RecordBatch]:
    """Yield the records of some parts of one topic as batches of RECORD_SCHEMA.

    ``config``: KafkaConfig.to_json. ``reset``: see reset_of. Raises OffsetOutOfRange, BrokerUnavailable.
    """
    if not parts:
        return
    key = config, parts[0].source.topic, reset
    reader = _readers.pop(key, None)
    if reader is None:
        _close_readers()  # those of an earlier job
        reader = RangeReader(KafkaConfig.from_json(config), key[1], compiled_columns(), reset=reset)
    try:
        yield from reader.read({part.source.partition: (part.begin, part.end) for part in parts})
    except BaseException:
        reader.close()
        raise
    _readers[key] = reader


@atexit.register  # the client's own end would wait for what it has read
def _close_readers() -> None:
    while _readers:
        _readers.popitem()[1].close()


def run_directly(
    frame: DataFrame,
    parts: Sequence[OffsetRange],
    work: TransformTask,
    config: KafkaConfig,
    batch_bytes: int,
    reset: str,
) -> None:
    """Run a batch at least once: its outputs are written when this returns. ``reset``: see reset_of."""
    task = DirectTask(parts=tuple(parts), work=work, config=config.to_json(), batch_bytes=batch_bytes, reset=reset)
    one_row_per_task(frame, len(parts)).mapInArrow(task, "done boolean").collect()


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectTask(ReleaseBound):
    """The function that Spark's mapInArrow runs: it processes the part of its number, and yields nothing."""

    parts: tuple[OffsetRange, ...]
    work: TransformTask
    config: str = field(repr=False)
    batch_bytes: int
    reset: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        drain(batches)
        stats = BatchStats()
        with warm_instance(self.work.deployment.spec, self.work.module) as instance:
            runner = TransformRunner(self.work.deployment, instance, stats, self.work.limits)
            with BatchOutputs(self.config, self.work.deployment.spec.compression, self.batch_bytes) as outputs:
                for records in read_parts(self.config, [self.parts[context.partitionId()]], self.reset):
                    for rows in runner.run_placed(records):
                        outputs.write(rows)
        self.work.stats.add(with_host(stats))
        yield from ()
