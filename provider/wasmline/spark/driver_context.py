"""The shared objects of a stream job's driver: its session, its order, and its clients of the control topics."""

from __future__ import annotations

import threading
import uuid
from contextlib import suppress
from dataclasses import dataclass, replace

from pyspark.sql import SparkSession

from wasmline.control import ClaimWriter, DriverClaim, DriverRecords, JobTopic, StatusTopic
from wasmline.errors import UnsupportedSpecVersion
from wasmline.job_specs import JobReport, JobSpec, StreamSpec
from wasmline.kafka import KafkaConfig
from wasmline.spark.deployment_tracker import DeploymentTracker
from wasmline.spark.timings import StreamTimings


def newest_claim(jobs: JobTopic, job: str) -> DriverClaim | None:
    """Return the newest claim of a job; None if it is of another release, which the run meets and reports."""
    with suppress(UnsupportedSpecVersion):
        return jobs.last_claim(job)
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewDriver:
    """The name in a driver's claims, which no other one has, and the claim that was the newest when it began."""

    name: str
    began_after: DriverClaim | None

    @classmethod
    def of(cls, jobs: JobTopic, job: str) -> NewDriver:
        """Return a driver of ``job`` that begins now."""
        return cls(name=uuid.uuid4().hex, began_after=newest_claim(jobs, job))

    def is_superseded_by(self, claim: DriverClaim | None, run: str) -> bool:
        """Return whether ``claim`` is by another driver of ``run`` that has claimed the job since this one began.

        A driver of the run before may claim until this run takes the job over.
        """
        if claim is None or claim.driver == self.name or claim == self.began_after:
            return False
        return (claim.driver_run or claim.run) == run

    def may_replace(self, claim: DriverClaim | None, run: str) -> bool:
        """Return whether this driver of ``run`` may take the job over from the driver of ``claim``.

        From one of its run only if that had the job when this one began: another one was started to replace this one.
        """
        before = self.began_after
        is_before = claim is not None and before is not None and claim.driver == before.driver
        return is_before or not self.is_superseded_by(claim, run)


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverContext:
    """One driver of a stream job.

    stopping: set once a stop is requested, or the query has ended.
    """

    spark: SparkSession
    config: KafkaConfig
    job: JobSpec
    stream: StreamSpec
    timings: StreamTimings
    new_driver: NewDriver
    jobs: JobTopic
    claims: ClaimWriter
    records: DriverRecords
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
        driver: NewDriver | None = None,
    ) -> DriverContext:
        """Return the context of ``driver``, by default of one that begins now."""
        jobs = JobTopic(config)
        driver = driver or NewDriver.of(jobs, job.job)
        return cls(
            spark=spark,
            config=config,
            job=job,
            stream=stream,
            timings=timings,
            new_driver=driver,
            jobs=jobs,
            claims=ClaimWriter(config, job.job, driver.name),
            records=DriverRecords(config, job.job, driver.name, jobs),
            statuses=StatusTopic(config),
            deployments=DeploymentTracker(config, stream.transform, run=f"{job.job}/{job.run}"),
            stopping=threading.Event(),
        )

    @property
    def driver(self) -> str:
        """The driver's name in claims."""
        return self.new_driver.name

    @property
    def has_authoritative_claims(self) -> bool:
        """Whether this job's claims, not the group, hold its progress: micro-batches at least once."""
        return (self.stream.mode, self.stream.delivery) == ("microbatch", "at_least_once")

    def write_report(self, report: JobReport) -> None:
        """Write a report of this driver, which has claimed the job. Raises Fenced if a newer one has.

        The last report is of the run, not of the driver: it is written also where the next run has claimed the job.
        """
        if report.state.final:
            self.jobs.write_report(report)
        else:
            self.records.write_report(replace(report, spark_ui=self.spark.sparkContext.uiWebUrl or ""))

    def close(self) -> None:
        """Close the Kafka clients."""
        for client in (self.deployments, self.claims, self.records, self.statuses, self.jobs):
            client.close()
