"""The shared objects of a stream job's driver: its session, its order, and its clients of the control topics."""

from __future__ import annotations

import threading
import uuid
from dataclasses import dataclass

from pyspark.sql import SparkSession

from wasmline.control import ClaimWriter, JobTopic, StatusTopic
from wasmline.errors import Fenced
from wasmline.job_specs import JobSpec, StreamSpec
from wasmline.kafka import KafkaConfig
from wasmline.spark.deployment_tracker import DeploymentTracker
from wasmline.spark.timings import StreamTimings


def new_driver() -> str:
    """Return a name for a driver that no other one has."""
    return uuid.uuid4().hex


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverContext:
    """One driver of a stream job.

    driver: its name in claims. stopping: set once a stop is requested, or the query has ended.
    """

    spark: SparkSession
    config: KafkaConfig
    job: JobSpec
    stream: StreamSpec
    timings: StreamTimings
    driver: str
    jobs: JobTopic
    claims: ClaimWriter
    statuses: StatusTopic
    deployments: DeploymentTracker
    stopping: threading.Event

    @classmethod
    def open(
        cls,
        spark: SparkSession,
        config: KafkaConfig,
        job: JobSpec,
        stream: StreamSpec,
        timings: StreamTimings,
        driver: str | None = None,
    ) -> DriverContext:
        """Return that of the driver named ``driver``, by default of a new one."""
        driver = driver or new_driver()
        return cls(
            spark=spark,
            config=config,
            job=job,
            stream=stream,
            timings=timings,
            driver=driver,
            jobs=JobTopic(config),
            claims=ClaimWriter(config, job.job, driver),
            statuses=StatusTopic(config),
            deployments=DeploymentTracker(config, stream.transform),
            stopping=threading.Event(),
        )

    @property
    def claims_are_authoritative(self) -> bool:
        """Whether this job's claims, not the group, hold its progress: micro-batches at least once."""
        return (self.stream.mode, self.stream.delivery) == ("microbatch", "at_least_once")

    def fenced(self) -> Fenced:
        """Return the error of a driver whose job another one has claimed."""
        return Fenced(f"a newer driver claimed job {self.job.job}; this one ends", job=self.job.job)

    def close(self) -> None:
        """Close the Kafka clients."""
        for client in (self.deployments, self.claims, self.statuses, self.jobs):
            client.close()
