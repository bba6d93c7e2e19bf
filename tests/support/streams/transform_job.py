"""A transform between topics of a real broker, and jobs that run it: what the tests of streams begin with."""

from __future__ import annotations

import threading
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from wasmline.control import DeploymentSpec, JobTopic, deploy
from wasmline.digests import digest_of
from wasmline.job_specs import JobReport, JobSpec, JobState, StreamSpec
from wasmline.kafka import KafkaConfig, Topics, produce_all, read_to_end
from wasmline.spark.main import make_stream_job
from wasmline.spark.timings import DEFAULT_TIMINGS, StreamTimings


def unique(noun: str) -> str:
    return f"{noun}-{uuid.uuid4().hex[:8]}"


@dataclass
class TransformJob:
    """One transform between fresh topics, and a job that runs it."""

    config: KafkaConfig
    spark: SparkSession | None
    folder: Path
    spec: DeploymentSpec
    job: str
    timings: StreamTimings = DEFAULT_TIMINGS

    def deploy(self, wasm: bytes, **changes: object) -> int:
        self.spec = replace(self.spec, digest=digest_of(wasm), **changes)  # type: ignore[arg-type]
        return deploy(self.config, self.spec, wasm).generation

    def produce(self, records: Iterable[tuple[bytes | None, bytes]]) -> int:
        rows = ((key, value, [("h", b"x")], None) for key, value in records)
        return produce_all(self.config, self.spec.input_topic, rows)

    def order(self, **stream: object) -> JobSpec:
        what = {} if "function" in stream else {"transform": self.spec.name}
        spec = StreamSpec(**what, **stream)  # type: ignore[arg-type]
        order = JobSpec(job=self.job, run=unique("run"), storage=str(self.folder), stream=spec)
        JobTopic(self.config).submit(order)
        return order

    def run(self, **stream: object) -> JobReport:
        order = self.order(**stream)
        assert self.spark is not None
        assert order.stream is not None
        return make_stream_job(self.spark, self.config, order, order.stream, self.timings).run()

    @contextmanager
    def running(self, **stream: object) -> Iterator[JobSpec]:
        """Run for ever in the background; stop by record at the end."""
        order = self.order(trigger_interval="200 milliseconds", **stream)
        assert self.spark is not None
        assert order.stream is not None
        job = make_stream_job(self.spark, self.config, order, order.stream, self.timings)
        with ThreadPoolExecutor(1) as thread:
            outcome = thread.submit(job.run)
            try:
                yield order
            finally:
                JobTopic(self.config).stop(self.job, order.run)
                report = outcome.result(90)
        assert report.state is JobState.STOPPED

    def written(self) -> list[tuple[bytes, bytes]]:
        """Return the input, in order within each partition.

        It is read: a producer that repeats a request whose answer was lost learns no offset.
        """
        return [(key, value) for key, value, _ in self._records(self.spec.input_topic)]

    def out(self) -> list[tuple[bytes, bytes, dict[str, bytes]]]:
        return self._records(self.spec.output_topics[0])

    def expected_headers(
        self, deployed: Callable[[int, int], DeploymentSpec] | None = None
    ) -> dict[bytes, dict[str, bytes]]:
        """Return the headers that the output of each value has, from the inputs and what was deployed.

        ``deployed`` returns the specification that ran on a partition and offset, by default the current one.
        """
        inputs: Iterator[Any] = read_to_end(self.config, self.spec.input_topic)
        expected = {}
        for each in inputs:
            spec = deployed(each.partition(), each.offset()) if deployed else self.spec
            fields = [each.topic(), str(each.partition()), str(each.offset())]
            fields += [f"{spec.name}@{spec.version}", spec.digest[len("sha256:") :][:12]]
            if model := spec.model:
                fields += [f"{model.name}@{model.version}", model.digest[7:19], model.dataset[7:19]]
            expected[each.value()] = {"h": b"x", "wasmline.provenance": " ".join(fields).encode()}
        return expected

    def letters(self) -> list[tuple[bytes, dict[str, bytes]]]:
        assert self.spec.dead_letter_topic is not None
        return [(value, headers) for _, value, headers in self._records(self.spec.dead_letter_topic)]

    def _records(self, topic: str) -> list[tuple[bytes, bytes, dict[str, bytes]]]:
        messages: Iterator[Any] = read_to_end(self.config, topic)
        return [(message.key(), message.value(), dict(message.headers() or [])) for message in messages]


def make_transform_job(
    config: KafkaConfig, spark: SparkSession | None, folder: Path, partitions: int = 3
) -> TransformJob:
    source, target, letters = unique("in"), unique("out"), unique("dlq")
    for topic in (source, target, letters):
        Topics(config).create(topic, partitions if topic == source else 3)
    spec = DeploymentSpec(
        name=unique("t"), version="1.0.0", digest="sha256:" + "0" * 64, input_topic=source,
        output_topics=(target,), dead_letter_topic=letters,
    )  # fmt: skip
    return TransformJob(config=config, spark=spark, folder=folder, spec=spec, job=unique("job"))


def keyed(count: int, first: int = 0) -> list[tuple[bytes, bytes]]:
    return [(f"k{number % 17}".encode(), str(number).encode()) for number in range(first, first + count)]


def by_key(records: Iterable[tuple[bytes, bytes]]) -> dict[bytes, list[bytes]]:
    grouped = defaultdict(list)
    for key, value in records:
        grouped[key].append(value)
    return dict(grouped)


def until(condition: Callable[[], bool], patience: float = 60) -> None:
    done = threading.Event()
    for _ in range(int(patience / 0.2)):
        if condition():
            return
        done.wait(0.2)
    raise AssertionError("it never came true")
