"""Waits for the end of a job's run without holding a worker."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from wasmline.errors import JobError, JobFailed
from wasmline.repeated_errors import RepeatedErrors, error_line
from wasmline_provider.hooks.kafka import KafkaHook
from wasmline_provider.job_client import HEARTBEAT_TIMEOUT_S, POLL_INTERVAL_S, JobClient, JobRun, RunMonitor
from wasmline_provider.triggers.daemon_thread import call_in_thread

if TYPE_CHECKING:
    from wasmline.control import JobTopic
    from wasmline.kafka import KafkaConfig


class JobTrigger(BaseTrigger):
    """Fires once, when the run has ended, is lost, or was replaced; a user's kill stops the run at its next safe point.

    The event is ``{"job": …, "run": …, "log": …, "state": …, "message": …}``; other facts are in the job's
    report. The trigger holds no secret: the connection is read in the triggerer. A cluster that cannot be reached, even
    at first, counts as a missing heartbeat.

    :param job: the job's name.
    :param run: the run to wait for.
    :param log: the location of the driver's output, for messages.
    :param kafka_conn_id: the connection of the cluster that holds the job's reports.
    :param poll_seconds: the time between two polls.
    :param heartbeat_seconds: seconds without a heartbeat before a run counts as lost.
    """

    def __init__(
        self,
        *,
        job: str,
        run: str,
        log: str,
        kafka_conn_id: str = KafkaHook.default_conn_name,
        poll_seconds: float = POLL_INTERVAL_S,
        heartbeat_seconds: float = HEARTBEAT_TIMEOUT_S,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.run_of = JobRun(job=job, run=run, log=log)
        self.kafka_conn_id = kafka_conn_id
        self.poll_seconds = poll_seconds
        self.heartbeat_seconds = heartbeat_seconds

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return (
            "wasmline_provider.triggers.job.JobTrigger",
            {
                "job": self.run_of.job,
                "run": self.run_of.run,
                "log": self.run_of.log,
                "kafka_conn_id": self.kafka_conn_id,
                "poll_seconds": self.poll_seconds,
                "heartbeat_seconds": self.heartbeat_seconds,
            },
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        jobs: JobTopic | None = None
        try:
            jobs = await self._connect()
            watch = RunMonitor(jobs, self.run_of, self.log.info, heartbeat=self.heartbeat_seconds)
            while (report := await call_in_thread(watch.poll)) is None:
                await asyncio.sleep(self.poll_seconds)
            yield self._event(report.state.value, report.message)
        except JobError as error:
            yield self._event("lost", str(error))
        finally:
            if jobs is not None:
                jobs.close()

    async def on_kill(self) -> None:
        jobs = await self._jobs()
        try:
            report = await call_in_thread(lambda: JobClient(jobs).stop(self.run_of))
        finally:
            jobs.close()
        ended = report.state.value if report else "stop requested; still running"
        self.log.info("job %s, run %s: %s", self.run_of.job, self.run_of.run, ended)

    async def _connect(self) -> JobTopic:
        """Return the jobs' reports, however often it takes. Raises JobFailed after the time of a missing heartbeat."""
        deadline, errors = time.monotonic() + self.heartbeat_seconds, RepeatedErrors()
        while True:
            try:
                return await self._jobs()
            except Exception as error:
                if time.monotonic() > deadline:
                    raise JobFailed(
                        f"the reports of job {self.run_of.job} could not be read for {self.heartbeat_seconds:.0f} s "
                        f"(run {self.run_of.run}): {error_line(error)}. Its driver's output is in {self.run_of.log}",
                        report={"job": self.run_of.job, "run": self.run_of.run, "state": "lost"},
                    ) from error
                if told := errors.changed("connect", error):
                    self.log.warning("cannot connect, and tries again: %s", told)
            await asyncio.sleep(self.poll_seconds)

    async def _jobs(self) -> JobTopic:
        config = await KafkaHook(self.kafka_conn_id).aget_conn()
        return await call_in_thread(lambda: _job_topic(config))

    def _event(self, state: str, message: str) -> TriggerEvent:
        run = {"job": self.run_of.job, "run": self.run_of.run, "log": self.run_of.log}
        return TriggerEvent({**run, "state": state, "message": message})  # type: ignore[no-untyped-call]


def _job_topic(config: KafkaConfig) -> JobTopic:
    from wasmline.control import JobTopic  # in the thread of the call: the loop is every trigger's

    return JobTopic(config)
