"""The contestants, and why each is the best that its users would write."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol

from consumer.environment import installed
from throughput.outputs import Outputs
from throughput.running import REPOSITORY, Job, Running
from throughput.window import Window

from support.java_peer.java_peer import class_path
from wasmline.build import build, load_project
from wasmline.kafka import KafkaConfig
from wasmline.local.jvm import find_java

FOLDER = Path(__file__).parent
JAVA = FOLDER / "kafka_streams"
JAVA_LOCK = JAVA / "kafka_streams.lock"
QUIX_LOCK = FOLDER / "quix.lock"
MODULE = Path("wasm_modules/delivery_distance")
WARM_UP_RECORDS = 600_000
"""Least records that a JVM processes before it is measured: its compilers are done with the transform by then."""


class Contestant(Protocol):
    """A way from Kafka to Kafka."""

    @property
    def title(self) -> str:
        """The name in the report."""

    def prepare(self) -> None:
        """Fetch and build what is not yet in the cache folder."""

    def start(self, job: Job, records: int) -> Running:
        """Start a job on a topic of so many records, warmed up where that makes a difference."""


@dataclass(frozen=True, slots=True)
class KafkaStreams:
    """Kafka Streams in Java.

    The best that its users would write: the Processor API with byte arrays, without the DSL's steps and serdes between
    them; fields by ``indexOf``, JSON into one buffer, violations without stack traces; a thread for each core, the
    JVM's own defaults with both its compilers, and a JVM that has processed the same topic before.
    """

    title: str = "Kafka Streams, Java"

    def prepare(self) -> None:
        class_path(JAVA, JAVA_LOCK)

    def start(self, job: Job, records: int) -> Running:
        guarantee = "exactly_once_v2" if job.delivery == "exactly_once" else job.delivery
        log = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
        program = ["DeliveryStreams", job.bootstrap, guarantee, str(job.folder / "state"), job.topic]
        return _warm([find_java().path, log, "-cp", class_path(JAVA, JAVA_LOCK), *program], job, records)


def _warm(command: Sequence[str | Path], job: Job, records: int) -> Running:
    """Start a JVM that takes orders from its standard input, and give it the job once it is warm."""
    running = Running(command, job.folder)
    config = KafkaConfig({"bootstrap.servers": job.bootstrap})
    try:
        for number in range(math.ceil(WARM_UP_RECORDS / records)):
            outputs = Outputs.create(config)
            running.tell(f"{job.group}-warm-up-{number} {outputs.features} {outputs.dead_letters}")
            Window(config, outputs, job.broker).follow(records, running.tree(), running.check)
            # The topics stay until the broker ends: the application is closed only when the next one starts.
    except BaseException:
        running.kill()
        raise
    running.tell(f"{job.group} {job.outputs.features} {job.outputs.dead_letters}")
    return running


@dataclass(frozen=True, slots=True)
class PythonLoop:
    """A loop of confluent-kafka, one process for each core.

    The best that its users would write: batches of 10,000 from C, the transform in plain Python with msgspec for the
    JSON, no callback for an output, batches of the producer that fill, and one commit for a batch.
    """

    title: str = "Python loop, 2 processes"

    def prepare(self) -> None:
        pass

    def start(self, job: Job, records: int) -> Running:
        return Running([sys.executable, FOLDER / "python_loop.py", *job.arguments()], job.folder, processes=2)


@dataclass(frozen=True, slots=True)
class Quix:
    """Quix Streams, one process for each core.

    The best that its users would write: bytes in and out, so that nothing is parsed twice, the same transform as the
    Python loop's in one step, and one sink that selects the topic.
    """

    title: str = "Quix Streams, 2 processes"

    def prepare(self) -> None:
        installed(QUIX_LOCK, Path(sys.executable))

    def start(self, job: Job, records: int) -> Running:
        python = installed(QUIX_LOCK, Path(sys.executable))
        return Running([python, FOLDER / "quix_app.py", *job.arguments()], job.folder, processes=2)


@dataclass(frozen=True, slots=True)
class Worker:
    """``wasmline worker --module`` as it is: one process or more, no options but topics and delivery."""

    title: str
    processes: int = 1
    environment: Mapping[str, str] = field(default_factory=dict)

    def prepare(self) -> None:
        with TemporaryDirectory() as folder:
            build(load_project(REPOSITORY / MODULE), output=Path(folder) / "built.wasm")

    def start(self, job: Job, records: int) -> Running:
        command = worker_command(job, transform_options(job.outputs))
        return Running(command, job.folder, processes=self.processes, more=self.environment)


def worker_command(job: Job, options: Sequence[str]) -> list[str]:
    """Return the command of a worker; ``options`` are those of what it runs."""
    return [
        *(sys.executable, "-m", "wasmline.cli", "worker", job.topic, *options),
        *(f"--group={job.group}", f"--delivery={job.delivery}"),
        *(f"--dead-letter-topic={job.outputs.dead_letters}", "-X", f"bootstrap.servers={job.bootstrap}"),
    ]


def transform_options(outputs: Outputs) -> list[str]:
    """Return the options of a worker that runs the deliveries' transform."""
    topics = (outputs.features, outputs.dead_letters)
    return [f"--module={MODULE}", *(f"--output-topic={topic}" for topic in topics)]


@dataclass(frozen=True, slots=True)
class Spark:
    """A job on a local Spark of two cores, in a session that has run the same job before."""

    title: str
    mode: str

    def prepare(self) -> None:
        pass

    def start(self, job: Job, records: int) -> Running:
        program = [str(FOLDER / "spark_job.py"), self.mode, job.bootstrap, job.delivery, job.topic, str(job.folder)]
        return _warm([sys.executable, *program], job, records)


UNCOMPILED = {"WASMLINE_COMPILED_COLUMNS": "0"}
BASE = "streams"
"""The contestant that the others are compared with."""

CONTESTANTS: dict[str, Contestant] = {
    BASE: KafkaStreams(),
    "python": PythonLoop(),
    "quix": Quix(),
    "wasmline": Worker("wasmline worker"),
    "wasmline-2": Worker("wasmline worker, 2 processes", processes=2),
    "wasmline-parallel": Spark("wasmline on Spark, parallel mode", "parallel"),
    "wasmline-microbatch": Spark("wasmline on Spark, micro-batches", "microbatch"),
    "wasmline-uncompiled": Worker("wasmline worker, no compiled columns", environment=UNCOMPILED),
}
"""All of them, by the name for ``--only``."""
