"""Spark's role in a streaming job: it plans batches, keeps offsets and commits of a checkpoint, runs and repeats tasks.

Only what our code uses of PySpark is here, by PySpark's names. The rules are those of MicroBatchExecution: a batch's
offsets are in the checkpoint before it runs, its commit is there after, and a batch without a commit is run again.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException
from pyspark.errors import StreamingQueryException

from support.simulation.clients import EVERYTHING, Environment, MemoryProducer
from support.simulation.virtual import EPOCH_S, Actor, Killed, Process
from wasmline.record_batches import TIMESTAMP
from wasmline.topic_partitions import TopicPartition

MAX_FAILURES = 2
"""Attempts of a task."""

SLOTS = 2
"""Tasks that run at once."""

POLL_S = 0.25
"""Seconds until a query without anything to do looks again."""

REQUEST_S = 60.0
"""Seconds that a request of the Java client waits for a broker (default.api.timeout.ms)."""

EARLIEST, LATEST = -2, -1


class Interrupted(Exception):
    """The query was stopped."""


class Checkpoint:
    """A query's checkpoint: offsets and commits by batch."""

    def __init__(self) -> None:
        self.initial: Any = None
        self.offsets: dict[int, Any] = {}
        self.commits: set[int] = set()


class Cluster:
    """The machines that drivers and executors run on, and the storage that they share."""

    def __init__(self, environment: Environment) -> None:
        self.environment = environment
        self.storage: dict[str, Checkpoint] = {}
        self.executors: dict[str, list[Process]] = {}
        """The worker processes of each run that work on a task."""
        self.batches: set[str] = set()
        """The runs with a micro-batch under way."""
        self.known: set[str] = set()
        """The runs that have done a micro-batch, or given out a lease: they know what is committed after it."""


class Spark:
    """A session of one driver."""

    def __init__(self, cluster: Cluster, process: Process) -> None:
        self.cluster = cluster
        self.process = process
        self.conf = SimpleNamespace(set=lambda *_: None)
        self.sources: dict[str, Any] = {}
        self.dataSource = SimpleNamespace(register=lambda source: self.sources.update({source.name(): source}))
        self.idle: list[Process] = []
        self.sparkContext = SimpleNamespace(
            uiWebUrl=None,
            accumulator=lambda value, _: Accumulator(value),
            broadcast=lambda value: SimpleNamespace(value=value, destroy=lambda: None),
            statusTracker=lambda: SimpleNamespace(getActiveStageIds=list),
            defaultParallelism=SLOTS,
        )
        self._workers = 0

    @property
    def readStream(self) -> Stream:  # noqa: N802 - Spark's name
        return Stream(self)

    def range(self, start: int, end: int, step: int, tasks: int) -> Frame:
        """Return rows of numbers, which nobody looks at: each task is given those of its part."""
        return Frame(self, (), [()] * tasks)

    def stop(self) -> None:
        pass

    # -- tasks --------------------------------------------------------------------------------------------------------

    def run(self, tasks: Sequence[Callable[[], Any]]) -> list[Any]:
        """Run tasks, a few at a time, and return what they returned; raise what one failed with for the last time."""
        runtime = self.cluster.environment.runtime
        waiting = [(number, 1) for number in range(len(tasks))]
        running: dict[int, tuple[Attempt, int]] = {}
        results: dict[int, Any] = {}
        try:
            while waiting or running:
                while waiting and len(running) < SLOTS:
                    number, attempt = waiting.pop(0)
                    running[number] = Attempt(self, number, tasks[number]), attempt
                runtime.block(lambda: any(each.is_over for each, _ in running.values()), None)
                for number, (each, attempt) in [entry for entry in running.items() if entry[1][0].is_over]:
                    del running[number]
                    if each.is_lost:
                        waiting.append((number, attempt))
                    elif each.actor.error is None:
                        results[number] = each.actor.result
                        self.idle.append(each.process)
                    elif attempt < MAX_FAILURES:
                        waiting.append((number, attempt + 1))
                    else:
                        raise TaskFailed("".join(traceback.format_exception(each.actor.error)))
        finally:
            runtime.kill(each.process for each, _ in running.values() if not each.process.is_frozen)
            for each, _ in running.values():
                each.leave()
        return [results[number] for number in range(len(tasks))]

    def worker(self) -> Process:
        while self.idle:
            process = self.idle.pop()
            if process.is_alive and not process.is_frozen:
                return process
        self._workers += 1
        return Process(self.process.run, f"{self.process.name}/worker-{self._workers}")


class TaskFailed(Exception):
    """A task failed as often as it may."""


class Attempt:
    """One attempt of a task, in a process of an executor."""

    def __init__(self, spark: Spark, number: int, task: Callable[[], Any]) -> None:
        self.process = spark.worker()
        self._busy = spark.cluster.executors.setdefault(self.process.run, [])
        self._busy.append(self.process)

        def call() -> Any:
            self.process.slept_s = 0.0  # before its first step is nothing to it
            self.process.globals["task"] = {"number": number}
            return task()

        self.actor: Actor = spark.cluster.environment.runtime.spawn(call, self.process)

    @property
    def is_lost(self) -> bool:
        return not self.process.is_alive or self.process.is_frozen

    @property
    def is_over(self) -> bool:
        if self.actor.is_done or self.is_lost:
            self.leave()
            return True
        return False

    def leave(self) -> None:
        if self.process in self._busy:
            self._busy.remove(self.process)


class Accumulator:
    def __init__(self, value: Any) -> None:
        self.value = value

    def add(self, value: Any) -> None:
        self.value += value


# -- queries -----------------------------------------------------------------------------------------------------------


class Stream:
    """``spark.readStream`` up to ``start``."""

    def __init__(self, spark: Spark) -> None:
        self._spark = spark
        self._options: dict[str, str] = {}
        self._format = ""
        self._interval: str | None = ""
        self._batch: Callable[[Any, int], None] | None = None

    def format(self, name: str) -> Stream:
        if not self._format:
            self._format = name
        return self

    def option(self, name: str, value: Any) -> Stream:
        self._options[name] = str(value)
        return self

    def options(self, **options: Any) -> Stream:
        self._options.update(options)
        return self

    def load(self) -> Stream:
        return self

    def selectExpr(self, *_: str) -> Stream:  # noqa: N802 - Spark's name
        return self

    @property
    def writeStream(self) -> Stream:  # noqa: N802 - Spark's name
        return self

    def queryName(self, _: str) -> Stream:  # noqa: N802 - Spark's name
        return self

    def trigger(self, *, availableNow: bool = False, processingTime: str | None = None) -> Stream:  # noqa: N803
        self._interval = None if availableNow else processingTime
        return self

    def foreachBatch(self, call: Callable[[Any, int], None]) -> Stream:  # noqa: N802 - Spark's name
        self._batch = call
        return self

    def start(self) -> Query:
        path = self._options["checkpointLocation"]
        if self._format == "kafka":
            assert self._batch is not None
            source: Source = KafkaSource(self._spark, self._options)
            return Query(self._spark, source, path, self._batch, is_available_now=self._interval is None)
        reader = self._spark.sources[self._format](self._options).streamReader(None)
        run: Callable[[Any, int], None] = lambda tasks, _: (self._spark.run(tasks), None)[1]  # noqa: E731
        return Query(self._spark, PythonSource(reader), path, run, is_available_now=False)


class Source:
    """Where a query reads."""

    def initial(self) -> Any:
        raise NotImplementedError

    def latest(self) -> Any:
        """Return where the source ends now."""
        raise NotImplementedError

    def following(self, start: Any, until: Any) -> Any:
        """Return where a batch from ``start`` on ends, or ``start`` where there is none; None: no end is set."""
        raise NotImplementedError

    def frame(self, start: Any, end: Any) -> Any:
        raise NotImplementedError


class Query:
    """A running query, in an actor of the driver's process."""

    def __init__(
        self, spark: Spark, source: Source, path: str, batch: Callable[[Any, int], None], *, is_available_now: bool
    ) -> None:
        self.isActive = True
        self.status = {"isTriggerActive": False}
        self.recentProgress: list[Any] = []
        self._spark = spark
        self._runtime = spark.cluster.environment.runtime
        self._source = source
        self._checkpoint = spark.cluster.storage.setdefault(path, Checkpoint())
        self._path = path
        self._batch = batch
        self._is_available_now = is_available_now
        self._is_stopping = False
        self._failure: str | None = None
        self._runtime.spawn(self._run)

    def awaitTermination(self, timeout: float) -> bool:  # noqa: N802 - Spark's name
        ended = self._runtime.block(lambda: not self.isActive, timeout)
        if ended and self._failure is not None:
            raise StreamingQueryException(self._failure)
        return ended

    def stop(self) -> None:
        self._is_stopping = True
        self._runtime.block(lambda: not self.isActive, None)

    def _run(self) -> None:
        try:
            self._execute()
        except Interrupted:
            pass
        except Exception as error:
            self._failure = "".join(traceback.format_exception(error))
        finally:
            self.status["isTriggerActive"] = False
            self._spark.cluster.batches.discard(self._spark.process.run)
            self.isActive = False

    def _execute(self) -> None:
        log = self._checkpoint
        number = max(log.offsets, default=-1)
        if number < 0:
            if log.initial is None:
                self._step()
                log.initial = self._source.initial()
            end = log.initial
        else:
            end = log.offsets[number]
            if number not in log.commits:
                self._trigger(number, log.offsets.get(number - 1, log.initial), end, end)
        until = self._source.latest() if self._is_available_now else None
        while True:
            self._step()
            start, number = end, max(log.offsets, default=-1) + 1
            end = self._source.following(start, until)
            if end == start:
                if until is not None:
                    return
                self._runtime.block(lambda: self._is_stopping, POLL_S)
                continue
            self._step("plan")
            if number in log.offsets:
                raise RuntimeError(f"Concurrent update to the log. Multiple streaming jobs detected for {number}")
            log.offsets[number] = end
            self._trigger(number, start, end, end if until is None else until)

    def _trigger(self, number: int, start: Any, end: Any, newest: Any) -> None:
        began = self._runtime.seconds
        self.status["isTriggerActive"] = True
        cluster, run = self._spark.cluster, self._spark.process.run
        (cluster.batches if isinstance(self._source, KafkaSource) else cluster.known).add(run)
        self._batch(self._source.frame(start, end), number)
        self._step("done")
        self._checkpoint.commits.add(number)
        self._note(number, start, end, newest, began)
        cluster.batches.discard(run)
        cluster.known.add(run)
        self.status["isTriggerActive"] = False

    def _note(self, number: int, start: Any, end: Any, newest: Any, began: float) -> None:
        progress: dict[str, Any] = {
            "batchId": number,
            "durationMs": {"addBatch": 1, "triggerExecution": 1},
            "timestamp": datetime.fromtimestamp(EPOCH_S + began, UTC).isoformat(),
            "sources": [{"startOffset": start, "endOffset": end, "latestOffset": newest}],
        }
        self.recentProgress = [*self.recentProgress[-99:], Progress(progress)]

    def _step(self, what: str = "start") -> None:
        self._spark.cluster.environment.reach(what)
        if self._is_stopping:
            raise Interrupted


class Progress(dict[str, Any]):
    @property
    def json(self) -> str:
        return json.dumps(self)


# -- Kafka as a source and as a sink -----------------------------------------------------------------------------------


class KafkaSource(Source):
    """The Kafka source: offsets are ``{topic: {partition: offset}}`` with text as keys."""

    def __init__(self, spark: Spark, options: Mapping[str, str]) -> None:
        self._spark = spark
        self._environment = spark.cluster.environment
        self._topic = options["subscribe"]
        self._starting = options["startingOffsets"]
        self._most = int(options["maxOffsetsPerTrigger"])
        self._fails = options.get("failOnDataLoss", "true") == "true"

    def initial(self) -> Any:
        begins, ends = self._bounds()
        if self._starting in ("earliest", "latest"):
            return {self._topic: begins if self._starting == "earliest" else ends}
        wanted = json.loads(self._starting)[self._topic]
        if wanted.keys() != begins.keys():
            raise AssertionError("startingOffsets must name every partition")
        at = {EARLIEST: begins, LATEST: ends}
        return {self._topic: {each: at[offset][each] if offset < 0 else offset for each, offset in wanted.items()}}

    def latest(self) -> Any:
        return {self._topic: self._bounds()[1]}

    def following(self, start: Any, until: Any) -> Any:
        begins, ends = self._bounds()
        left, end = self._most, {}
        for each, last in sorted((ends if until is None else until[self._topic]).items()):
            first = start[self._topic].get(each)
            if first is None:
                first = begins[each]
            if last < first and self._fails:
                raise RuntimeError(f"Partition {self._topic}-{each}'s offset was changed from {first} to {last}")
            end[each] = min(last, first + left)
            left -= end[each] - first
        return {self._topic: end}

    def frame(self, start: Any, end: Any) -> Frame:
        begins, _ = self._bounds()
        ranges = []
        for each, until in sorted(end[self._topic].items()):
            begin = start[self._topic].get(each, begins.get(each, 0))
            if begin < until:
                ranges.append(Range(TopicPartition(self._topic, int(each)), begin, until, fails=self._fails))
        return Frame(self._spark, ranges)

    def _bounds(self) -> tuple[dict[str, int], dict[str, int]]:
        cluster = self._environment.request(REQUEST_S)
        logs = cluster.topic(self._topic).logs
        return (
            {str(number): log.start for number, log in enumerate(logs)},
            {str(number): log.stable for number, log in enumerate(logs)},
        )


class PythonSource(Source):
    """A data source in Python, whose batches are partitions to be read."""

    def __init__(self, reader: Any) -> None:
        self._reader = reader

    def initial(self) -> Any:
        return self._reader.initialOffset()

    def following(self, start: Any, until: Any) -> Any:
        return self._reader.latestOffset(start, None)

    def frame(self, start: Any, end: Any) -> Any:
        return [partial(self._read, each) for each in self._reader.partitions(start, end)]

    def _read(self, partition: Any) -> list[Any]:
        return list(self._reader.read(partition))


class Range:
    """A task's input: the offsets of one partition; ``until`` is excluded. ``fails``: where some of them are gone."""

    def __init__(self, source: TopicPartition, begin: int, until: int, *, fails: bool) -> None:
        self.source, self.begin, self.until, self.fails = source, begin, until, fails

    # What the plan of a batch tells by way of the JVM.
    def inputPartition(self) -> Any:  # noqa: N802 - Spark's name
        return SimpleNamespace(get=lambda: SimpleNamespace(offsetRange=lambda: self))

    def topic(self) -> str:
        return self.source.topic

    def partition(self) -> int:
        return self.source.partition

    def fromOffset(self) -> int:  # noqa: N802 - Spark's name
        return self.begin

    def untilOffset(self) -> int:  # noqa: N802 - Spark's name
        return self.until


class Frame:
    """The records of some ranges, each of them a task, or gathered into other tasks."""

    def __init__(self, spark: Spark, ranges: Sequence[Range], tasks: Sequence[Sequence[Range]] | None = None) -> None:
        self.sparkSession = self._spark = spark
        self._ranges = ranges
        self._tasks = [[each] for each in ranges] if tasks is None else tasks
        rdd = SimpleNamespace(partitions=lambda: ranges)
        self._jdf = SimpleNamespace(queryExecution=lambda: SimpleNamespace(toRdd=lambda: rdd))

    def repartitionById(self, count: int, by: str) -> Frame:  # noqa: N802 - Spark's name
        """Gather ranges into so many tasks; ``by`` is "partition % N"."""
        shards = int(by.rpartition(" % ")[2])
        tasks = [[each for each in self._ranges if each.partition() % shards == number] for number in range(count)]
        return Frame(self._spark, self._ranges, tasks)

    def mapInArrow(self, function: Callable[..., Any], _: str) -> Mapped:  # noqa: N802 - Spark's name
        def task(its: Sequence[Range]) -> list[pa.RecordBatch]:
            return list(function(chain.from_iterable(records(self._spark.cluster.environment, each) for each in its)))

        return Mapped(self._spark, [partial(task, its) for its in self._tasks])


class Mapped:
    """What a function makes of each task's records."""

    def __init__(self, spark: Spark, tasks: Sequence[Callable[[], list[pa.RecordBatch]]]) -> None:
        self._spark = spark
        self._tasks = tasks

    def collect(self) -> list[Any]:
        made = self._spark.run(self._tasks)
        return [SimpleNamespace(**row) for batches in made for batch in batches for row in batch.to_pylist()]

    @property
    def write(self) -> Mapped:
        return self

    def format(self, _: str) -> Mapped:
        return self

    def option(self, *_: Any) -> Mapped:
        return self

    def options(self, **_: Any) -> Mapped:
        return self

    def save(self) -> None:
        """Write the rows to Kafka, without a transaction."""
        self._spark.run([partial(sink, task) for task in self._tasks])


def records(environment: Environment, each: Range) -> Iterator[pa.RecordBatch]:
    """Yield the committed records of a range; raise where the log does not have its offsets any more."""
    cluster = environment.request(REQUEST_S)
    log = cluster.log(each.source)
    if each.fails and (each.begin < log.start or log.end < each.until):
        where = f"{each.source.topic}-{each.source.partition}"
        raise RuntimeError(f"Some data may have been lost because they are not available in Kafka any more: {where}")
    found, _ = cluster.fetch(each.source, max(each.begin, log.start), EVERYTHING, committed=True)
    rows = [record for record in found if record.offset < each.until]
    yield pa.RecordBatch.from_arrays(
        [
            pa.array([row.key for row in rows], pa.binary()),
            pa.array([row.value for row in rows], pa.binary()),
            pa.nulls(len(rows), pa.string()),
            pa.array([row.timestamp for row in rows], pa.int64()).cast(TIMESTAMP),
            pa.array([row.partition for row in rows], pa.int32()),
            pa.array([row.offset for row in rows], pa.int64()),
        ],
        names=["key", "value", "headers", "timestamp", "partition", "offset"],
    )


def sink(task: Callable[[], Iterable[pa.RecordBatch]]) -> None:
    """Write what a task makes, as Spark's sink does: in order, acknowledged at the end."""
    producer = MemoryProducer({})
    failed: list[KafkaError] = []
    for batch in task():
        for row in batch.to_pylist():
            producer.produce(
                row["topic"],
                row["value"],
                row["key"],
                on_delivery=lambda error, _: failed.append(error) if error else None,
            )
            producer.poll(0)
    producer.flush()
    if failed:
        raise KafkaException(failed[0])


__all__ = ["Checkpoint", "Cluster", "Killed", "Spark"]
