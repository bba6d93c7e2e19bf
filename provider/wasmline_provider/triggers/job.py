"""Waits for the end of a job's run without holding a worker."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from wasmline.errors import Fenced, JobFailed
from wasmline.repeated_errors import RepeatedErrors, error_line
from wasmline_provider.hooks.kafka import KafkaHook
from wasmline_provider.job_client import HEARTBEAT_TIMEOUT_S, POLL_INTERVAL_S, STOP_TIMEOUT_S, JobRun
from wasmline_provider.run_monitor import RunMonitor
from wasmline_provider.triggers.engine_import import import_engine

if TYPE_CHECKING:
    from wasmline.job_specs import JobReport
    from wasmline.kafka import KafkaConfig


class JobTrigger(BaseTrigger):
    """Fires once, when the run has ended, is lost, or was replaced; a user's kill stops the run at its next safe point.

    The event is ``{"job": …, "run": …, "log": …, "state": …, "message": …}``; other facts are in the job's
    report. The trigger holds no secret: the connection is read in the triggerer. All triggers of a triggerer share one
    reader for each cluster. A cluster that cannot be reached, even at first, is waited for: no heartbeat is missed.

    :param job: the job's name.
    :param run: the run to wait for.
    :param log: the location of the driver's output, for messages.
    :param kafka_conn_id: the connection of the cluster that holds the job's reports.
    :param poll_seconds: the time between two looks at the run.
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
        config = await self._connect()
        monitor = RunMonitor(self.run_of, self.log.info, heartbeat=self.heartbeat_seconds)
        try:
            report = await self._follow(config, monitor)
        except JobFailed as error:
            yield self._event("lost", str(error))
        except Fenced as error:
            yield self._event("replaced", str(error))
        else:
            yield self._event(report.state.value, report.message)

    async def on_kill(self) -> None:
        """Request the stop, and wait for the run's end: both within Airflow's limit for a kill."""
        deadline = time.monotonic() + STOP_TIMEOUT_S
        job, run = self.run_of.job, self.run_of.run
        try:
            async with asyncio.timeout(STOP_TIMEOUT_S):
                config = await self._connect()
                await self._request_stop(config, deadline - time.monotonic())
        except Exception as error:
            self.log.error(
                "job %s, run %s: its stop could NOT be requested, and it runs on; use wasmline stop %s: %s",
                job,
                run,
                job,
                error_line(error),
            )
            return
        ended = "stop requested; still running"
        with suppress(TimeoutError, JobFailed, Fenced):
            async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
                ended = (await self._follow(config, RunMonitor(self.run_of, self.log.debug))).state.value
        self.log.info("job %s, run %s: %s", job, run, ended)

    async def _connect(self) -> KafkaConfig:
        """Return the cluster's settings, however often it takes to read them."""
        errors = RepeatedErrors()
        while True:
            try:
                await import_engine()
                return await KafkaHook(self.kafka_conn_id).aget_conn()
            except Exception as error:
                if told := errors.changed("connect", error):
                    self.log.warning("cannot read connection %s, and tries again: %s", self.kafka_conn_id, told)
            await asyncio.sleep(self.poll_seconds)

    async def _follow(self, config: KafkaConfig, monitor: RunMonitor) -> JobReport:
        """Return the run's last report. Raises JobFailed, Fenced."""
        from wasmline.control import run_follower

        loop, changed = asyncio.get_running_loop(), asyncio.Event()

        def notify() -> None:
            with suppress(RuntimeError):  # the loop is closed: the triggerer ended
                loop.call_soon_threadsafe(changed.set)

        with run_follower(config).following(self.run_of.job, self.run_of.run, notify) as subscription:
            while (report := monitor.end(subscription.snapshot)) is None:
                with suppress(TimeoutError):
                    await asyncio.wait_for(changed.wait(), self.poll_seconds)
                changed.clear()
            return report

    async def _request_stop(self, config: KafkaConfig, timeout_s: float) -> None:
        from wasmline.control import stop_requests

        await asyncio.wrap_future(stop_requests(config).stop(self.run_of.job, self.run_of.run, timeout_s))

    def _event(self, state: str, message: str) -> TriggerEvent:
        run = {"job": self.run_of.job, "run": self.run_of.run, "log": self.run_of.log}
        return TriggerEvent({**run, "state": state, "message": message})  # type: ignore[no-untyped-call]
