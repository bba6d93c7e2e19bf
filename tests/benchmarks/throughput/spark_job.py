"""A stream on Spark, one run after the other in one session: ``spark_job.py mode bootstrap delivery topic folder``.

Each line of standard input, a job and its two output topics, starts a run over what the topic has. The program ends in
order on SIGTERM, and when standard input does.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from support.leases.lease_driver import prepare_session
from wasmline.build import build, load_project
from wasmline.control import DeploymentSpec, JobTopic, deploy
from wasmline.job_specs import JobSpec, StreamSpec
from wasmline.kafka import KafkaConfig
from wasmline.registry import digest_of
from wasmline.spark.microbatch.job import MicrobatchJob
from wasmline.spark.parallel.job import ParallelJob
from wasmline.testing.spark import local_spark

BATCH = 200_000
"""Records of a micro-batch: a batch costs the driver about a tenth of a second, however many there are."""

WARM_UP_BATCH = 10_000
"""Records of a micro-batch of the first run: the JVM compiles what it does for each batch, which takes dozens of them,
and a stream runs for days."""

PROJECT = Path(__file__).parents[3] / "wasm_modules" / "delivery_distance"


def module() -> bytes:
    """Return the deliveries' transform."""
    with TemporaryDirectory() as folder:
        build(load_project(PROJECT), output=Path(folder) / "built.wasm")
        return (Path(folder) / "built.wasm").read_bytes()


class End:
    """Ends the program when it is asked to, but for a run: the Kafka client cannot be left in the middle of a call."""

    def __init__(self) -> None:
        self.is_allowed = True
        self._is_asked = False

    def ask(self, *_: object) -> None:
        """End, at once or when it is allowed: a handler of signals."""
        self._is_asked = True
        if self.is_allowed:
            sys.exit(0)

    def allow(self) -> None:
        """End now if it was asked for."""
        self.is_allowed = True
        if self._is_asked:
            sys.exit(0)


def main(mode: Any, bootstrap: str, delivery: Any, topic: str, folder: str) -> None:
    """Run a job for each line of standard input."""
    end = End()
    signal.signal(signal.SIGTERM, end.ask)
    config = KafkaConfig({"bootstrap.servers": bootstrap})
    wasm = module()
    kind = {"microbatch": MicrobatchJob, "parallel": ParallelJob}[mode]
    with local_spark("bench-throughput", "2g") as spark:
        prepare_session(spark, config)
        for number, line in enumerate(sys.stdin):
            job, features, letters = line.split()
            spec = DeploymentSpec(
                name=job,
                version="1.0.0",
                digest=digest_of(wasm),
                input_topic=topic,
                output_topics=(features, letters),
                dead_letter_topic=letters,
            )
            deploy(config, spec, wasm)
            batch = BATCH if number else WARM_UP_BATCH
            stream = StreamSpec(transform=job, mode=mode, delivery=delivery, max_offsets_per_trigger=batch)
            order = JobSpec(job=job, run="r1", storage=folder, stream=stream)
            JobTopic(config).submit(order)
            end.is_allowed = False
            kind(spark, config, order, stream).run()
            end.allow()


if __name__ == "__main__":
    main(*sys.argv[1:])
