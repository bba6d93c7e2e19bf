"""Runs Arrow batches through a transform inside a Spark task: one warm instance per process and deployment."""

from __future__ import annotations

import gc
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import msgspec
import pyarrow as pa
from pyspark import Accumulator, AccumulatorParam, Broadcast

from wasmline.control import Deployment, DeploymentSpec
from wasmline.documents import encode
from wasmline.pipeline import BatchStats, TransformRunner
from wasmline.pipeline.record_sizes import Limits
from wasmline.record_batches import HEADERS, RECORD_SCHEMA
from wasmline.spark.task_release import ReleaseBound
from wasmline.wasm import TransformInstance, TransformRuntime

INPUT_COLUMNS = ("key", "value", "to_json(headers) AS headers", "timestamp", "partition", "offset")
"""The columns of the Kafka source that make a record batch, as SQL.

Headers come as JSON with Base64 values: Spark measures a nested Arrow column again after every row, which more than
doubles the cost of a batch even if all headers are null.
"""

SINK_COLUMNS = "topic string, key binary, value binary, headers array<struct<key: string, value: binary>>"

PLACED_COLUMNS = f"{SINK_COLUMNS}, timestamp bigint, partition int, offset bigint"

# Spark reuses its Python workers: an instance outlives the task, so that the next batch finds its module compiled and
# started. A worker process runs one task at a time; an instance is taken while in use and put back only after success.
_idle: dict[bytes, TransformInstance] = {}


class BatchStatsParam(AccumulatorParam[BatchStats]):
    """Adds up the BatchStats of the tasks that succeeded."""

    def zero(self, value: BatchStats) -> BatchStats:
        return BatchStats()

    def addInPlace(self, value1: BatchStats, value2: BatchStats) -> BatchStats:  # noqa: N802 - Spark's name
        value1 += value2
        return value1


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformTask(ReleaseBound):
    """The function that Spark's mapInArrow runs: record batches in, sink batches out, BatchStats to the driver.

    With ``placed`` the output batches have PLACED_COLUMNS, else SINK_COLUMNS. ``limits``: record sizes of the topics.
    """

    deployment: Deployment
    module: Broadcast[bytes]
    stats: Accumulator[BatchStats]
    placed: bool = False
    limits: Limits = field(default_factory=dict)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        stats = BatchStats()
        with warm_instance(self.deployment.spec, self.module) as instance:
            pipeline = TransformRunner(self.deployment, instance, stats, self.limits)
            run = pipeline.run_placed if self.placed else pipeline.run
            for batch in batches:
                if batch.num_rows:
                    yield from run(record_batch(batch))
        self.stats.add(with_host(stats))


def with_host(stats: BatchStats) -> BatchStats:
    """Return the counts of a task with this machine as the host of its partitions."""
    stats.hosts = dict.fromkeys(stats.records_in, socket.gethostname())
    return stats


@contextmanager
def warm_instance(spec: DeploymentSpec, module: Broadcast[bytes]) -> Iterator[TransformInstance]:
    """Yield a started instance of the module, which the next task of this process reuses; one that fails is closed."""
    key = encode(spec)
    instance = _idle.pop(key, None) or _instantiate(spec, module.value)
    try:
        yield instance
    except BaseException:
        instance.close()
        raise
    _idle[key] = instance


def _instantiate(spec: DeploymentSpec, wasm: bytes) -> TransformInstance:
    while _idle:  # an earlier generation's
        _idle.popitem()[1].close()
    instance = TransformRuntime().compile(wasm).instantiate(spec.context(), spec.limits())
    # Arrow's own allocator gives pages back and takes them again with each call: a tenth of the CPU time.
    pa.set_memory_pool(pa.system_memory_pool())
    # A worker collects garbage after each task, for 30 ms of CPU if it scans every imported module.
    gc.collect()
    gc.freeze()
    return instance


class _Header(msgspec.Struct):
    key: str
    value: bytes | None = None


def record_batch(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return the INPUT_COLUMNS of some rows as a batch of RECORD_SCHEMA."""
    columns = [
        _headers(rows.column(field.name)) if field.name == "headers" else rows.column(field.name).cast(field.type)
        for field in RECORD_SCHEMA
    ]
    return pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA)


def _headers(texts: pa.Array) -> pa.Array:
    if texts.null_count == len(texts):
        return pa.nulls(len(texts), HEADERS)
    joined = ",".join(text or "null" for text in texts.to_pylist())
    lists = msgspec.json.decode(f"[{joined}]", type=list[list[_Header] | None])
    pairs = [None if each is None else [(header.key, header.value) for header in each] for each in lists]
    return pa.array(pairs, HEADERS)
