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

PROJECT = Path(__file__).parents[3] / "wasm_modules" / "delivery_distance"


def module() -> bytes:
    """Return the deliveries' transform."""
    with TemporaryDirectory() as folder:
        build(load_project(PROJECT), output=Path(folder) / "built.wasm")
        return (Path(folder) / "built.wasm").read_bytes()


def main(mode: Any, bootstrap: str, delivery: Any, topic: str, folder: str) -> None:
    """Run a job for each line of standard input."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    config = KafkaConfig({"bootstrap.servers": bootstrap})
    wasm = module()
    kind = {"microbatch": MicrobatchJob, "parallel": ParallelJob}[mode]
    with local_spark("bench-throughput", "2g") as spark:
        prepare_session(spark, config)
        for line in sys.stdin:
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
            stream = StreamSpec(transform=job, mode=mode, delivery=delivery, max_offsets_per_trigger=BATCH)
            order = JobSpec(job=job, run="r1", storage=folder, stream=stream)
            JobTopic(config).submit(order)
            kind(spark, config, order, stream).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
