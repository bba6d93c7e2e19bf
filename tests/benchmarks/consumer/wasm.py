"""A transform that computes, in the consumer: how much two workers do beside what one does."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from consumer.calls import Call
from consumer.contestant import run_until
from consumer.ledger import Run
from consumer.workload import PARTITIONS, Topic

from wasmline.build import build, load_project
from wasmline.consumer import BatchResult, ConsumedRecord, ConsumerOptions, ParallelConsumer
from wasmline.consumer.columns import ColumnResult, RecordColumns
from wasmline.control import DeploymentSpec
from wasmline.kafka import Topics
from wasmline.pipeline.transform_handler import BUFFERED_RECORDS, MAX_CALL_RECORDS, ThreadHandler, TransformHandler
from wasmline.registry import digest_of

SOURCES = Path(__file__).parent / "transforms" / "busy"
ROUNDS = {"0.1 ms": 50_000, "1 ms": 500_000}
"""Of the transform's loop, by about what a record takes with them."""


class Busy:
    """The transform, built into ``folder``, on the records of a topic; HandlerFactory, and notes its calls."""

    def __init__(self, topic: Topic, folder: Path) -> None:
        self._topic = topic
        self._target = f"busy-{uuid.uuid4().hex[:6]}"
        Topics(topic.config).create(self._target, PARTITIONS)
        path = folder / "busy.wasm"
        build(load_project(SOURCES), output=path)
        self._module = path.read_bytes()
        self._spec = DeploymentSpec(
            name="busy",
            version="1.0.0",
            digest=digest_of(self._module),
            input_topic=topic.name,
            output_topics=(self._target,),
        )

    def run(self, work: str, workers: int) -> Run:
        """Run all records through so many workers, as a new group; ``work`` is one of ROUNDS."""
        spec = replace(self._spec, env={"ROUNDS": str(ROUNDS[work])})
        options = ConsumerOptions(
            topics=(self._topic.name,),
            group_id=f"bench-{uuid.uuid4()}",
            max_concurrency=workers,
            batch_size=MAX_CALL_RECORDS,
            buffer_records=BUFFERED_RECORDS,
            kafka=self._topic.config.properties,
        )
        noting = Noting(TransformHandler(spec, self._module), self._topic.records)
        before = time.process_time()
        run_until(ParallelConsumer(options), noting, noting.enough)
        return self._topic.ledger.judge(noting.calls, workers, cpu_s=time.process_time() - before)


class Noting:
    """A transform's handler that notes its calls; each record of a call has a share of it, in order."""

    takes_columns = True

    def __init__(self, handler: TransformHandler, wanted: int) -> None:
        self.calls: list[Call] = []
        self.enough = threading.Event()
        self._handler = handler
        self._wanted = wanted

    def make(self) -> NotingThread:
        """Return the handler of one thread."""
        return NotingThread(self._handler.make(), self)

    def note(self, calls: Iterable[Call]) -> None:
        """Write down what a thread did."""
        self.calls += calls
        if len(self.calls) >= self._wanted:
            self.enough.set()


class NotingThread:
    """The guest of one thread."""

    def __init__(self, guest: ThreadHandler, noting: Noting) -> None:
        self._guest = guest
        self._noting = noting

    def __call__(self, records: Sequence[ConsumedRecord]) -> BatchResult:
        raise AssertionError("the records are taken as columns")

    def handle_columns(self, columns: RecordColumns) -> ColumnResult:
        begin = time.perf_counter()
        result = self._guest.handle_columns(columns)
        took = time.perf_counter() - begin
        ends = [begin + took * (number / len(columns)) for number in range(len(columns) + 1)]
        partition = columns.partition.partition
        self._noting.note(
            Call(first, last, partition, offset)
            for first, last, offset in zip(ends, ends[1:], columns.offsets.tolist(), strict=False)
        )
        return result

    def close(self) -> None:
        """Free the guest."""
        self._guest.close()
