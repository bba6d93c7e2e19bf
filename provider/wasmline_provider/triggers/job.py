"""Waits for the end of a job's run without holding a worker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowNotFoundException
from airflow.triggers.base import BaseTrigger, TriggerEvent
from asgiref.sync import sync_to_async

from wasmline.errors import InvalidJob
from wasmline.repeated_errors import RepeatedErrors, error_line
from wasmline_provider.hooks.kafka import KafkaHook
from wasmline_provider.job_client import HEARTBEAT_TIMEOUT_S, POLL_INTERVAL_S, STOP_TIMEOUT_S, JobRun
from wasmline_provider.links import SPARK_UI
from wasmline_provider.run_monitor import MonitoringFollower, ReadFailure, ReportLine, RunEnd, RunEvent, SparkUi
from wasmline_provider.shared_run_reader import RECONNECT_DELAYS, FollowHandle, cluster_clients
from wasmline_provider.stop_writer import StopRequest, stop_failure_message
from wasmline_provider.task_instance_state import TRIGGER_ANSWER_TIMEOUT_S, read_task_instance_state, user_or_system

if TYPE_CHECKING:
    from wasmline.control import StoppedBy

_STATE_READERS = ThreadPoolExecutor(4, thread_name_prefix="wasmline-task-state")
"""Threads that ask Airflow for the states of killed tasks: that may take long, and asyncio's threads are others'."""

_LINK_PUBLISHER = ThreadPoolExecutor(1, thread_name_prefix="wasmline-links")
"""The thread that publishes links, each after the one before it."""

UNKNOWN_CONNECTION = "unknown_connection"
"""The state of an event of a trigger whose connection is not defined in Airflow."""


class JobTrigger(BaseTrigger):
    """Fires once, when the run has ended, is lost, or was replaced; a user's kill stops the run at its next safe point.

    To clear the task is no such kill: its next try waits for the run, or restarts it if its specification has changed.

    The event is ``{"job": …, "run": …, "log": …, "state": …, "message": …}``, with ``replaced_by`` if a newer run has
    the job; other facts are in the job's report. The trigger holds no secret: the connection is read in the triggerer.

    All triggers of a triggerer share one reader and one thread per cluster. A cluster that cannot be reached, even at
    first, delays the event, and does not count as a missing heartbeat; the connection is read again after each error,
    so that a changed password is used. Airflow reports a connection that does not exist and one whose secrets backend
    failed alike: the trigger gives up after ``heartbeat_seconds``.

    :param job: the job's name.
    :param run: the run to wait for.
    :param log: the location of the driver's output, for messages.
    :param kafka_conn_id: the connection of the cluster that holds the job's reports.
    :param poll_seconds: the time between two polls; the shortest of all triggers counts.
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
        if not poll_seconds > 0:  # nor is NaN
            raise InvalidJob(f"poll_seconds must be above 0, got {poll_seconds}")
        self.job_run = JobRun(job=job, run=run, log=log)
        self.kafka_conn_id = kafka_conn_id
        self.poll_seconds = poll_seconds
        self.heartbeat_seconds = heartbeat_seconds

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return (
            "wasmline_provider.triggers.job.JobTrigger",
            {
                "job": self.job_run.job,
                "run": self.job_run.run,
                "log": self.job_run.log,
                "kafka_conn_id": self.kafka_conn_id,
                "poll_seconds": self.poll_seconds,
                "heartbeat_seconds": self.heartbeat_seconds,
            },
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        try:
            end = await self._end()
        except AirflowNotFoundException as error:
            yield self._event(UNKNOWN_CONNECTION, str(error))
        else:
            replaced = {"replaced_by": end.replaced_by} if end.replaced_by else {}
            yield self._event(end.state, end.message, **replaced)

    async def on_kill(self) -> None:
        """Request the run to stop, and wait for its end; log an error if the request cannot be written in time.

        Airflow also calls this in a triggerer that has lost the trigger to another one: the run then goes on. It
        cancels this call in each of its loops until the trigger has ended: so the work is done by another task.
        """
        kill = asyncio.ensure_future(self._kill())
        while not kill.done():
            with suppress(asyncio.CancelledError):
                await asyncio.shield(kill)
        kill.result()

    async def _kill(self) -> None:
        deadline = asyncio.get_running_loop().time() + STOP_TIMEOUT_S  # Airflow ends this after 30 s
        try:
            by = await self._killed_by()
        except Exception as error:
            reason = f"Airflow does not say who has ended the task: {error_line(error)}"
            self.log.error("%s", stop_failure_message(self.job_run.job, self.job_run.run, reason))
            return
        if by is None:
            self.log.info("job %s, run %s, goes on: nobody has ended its task", self.job_run.job, self.job_run.run)
            return
        is_requested, told = False, "no answer"
        request: StopRequest | None = None

        def note(error: Exception | None) -> None:
            nonlocal is_requested, told
            is_requested = is_requested or error is None
            told = error_line(error) if error is not None else told

        try:
            async with asyncio.timeout_at(deadline):
                settings = await self._settings(note)
                written = asyncio.Event()
                request = self._request_stop(settings, note, written, by)
                await written.wait()
                end = await self._followed(settings, lambda _: None)
            self.log.info("job %s, run %s: %s", self.job_run.job, self.job_run.run, end.state if end else "ended")
        except Exception as error:
            if is_requested:
                self.log.info("job %s, run %s: stop requested; still running", self.job_run.job, self.job_run.run)
            elif not isinstance(error, TimeoutError):
                note(error)
        finally:  # also if the triggerer ends meanwhile
            is_withdrawn = request is None or request.cancel()
            if not is_requested:
                run = self.job_run
                message = stop_failure_message(run.job, run.run, told, may_be_written=not is_withdrawn)
                self.log.error("%s", message)

    async def _end(self) -> RunEnd:
        """Return the run's end, with as many connections as it takes. Raises AirflowNotFoundException."""
        errors = RepeatedErrors()

        def warn(error: Exception | None) -> None:
            if error is None:
                errors.solved("read")
            elif told := errors.changed("read", error):
                self.log.warning("cannot read the reports of job %s, and tries again: %s", self.job_run.job, told)

        while True:
            settings = await self._settings(warn)
            if (end := await self._followed(settings, warn, self._publish_spark_ui)) is not None:
                return end

    async def _followed(
        self,
        settings: dict[str, Any],
        note: Callable[[Exception | None], None],
        show: Callable[[str], Awaitable[None]] | None = None,
    ) -> RunEnd | None:
        """Return the run's end as read with ``settings``; None once the connection has others.

        show: called with each new URL of the driver's UI.
        """
        events: asyncio.Queue[RunEvent] = asyncio.Queue()
        follower = MonitoringFollower(self.job_run, _on_loop(events.put_nowait), heartbeat_s=self.heartbeat_seconds)
        reader = cluster_clients(settings).reader
        following: FollowHandle = reader.follow(
            self.job_run.job, self.job_run.run, follower, interval_s=self.poll_seconds
        )
        try:
            while True:
                match await events.get():
                    case RunEnd() as end:
                        return end
                    case ReportLine(line=line):
                        self.log.info("%s", line)
                    case SparkUi(url=url) if show is not None:
                        await show(url)
                    case ReadFailure(error=error):
                        note(error)
                        if error is not None and await self._has_changed(settings):
                            return None
        finally:
            following.stop()

    async def _publish_spark_ui(self, url: str) -> None:
        """Let the task's link lead to the driver's UI; without an answer of Airflow it stays as it is."""
        if self.task_instance is None:
            return
        write = sync_to_async(SPARK_UI.write, thread_sensitive=False, executor=_LINK_PUBLISHER)
        with suppress(TimeoutError):
            async with asyncio.timeout(TRIGGER_ANSWER_TIMEOUT_S):
                await write(self.task_instance, url)

    async def _killed_by(self) -> StoppedBy | None:
        """Return who has ended the task, a user if there is none; None if nobody has. Raises what Airflow does."""
        if self.task_instance is None:
            return "user"
        async with asyncio.timeout(TRIGGER_ANSWER_TIMEOUT_S):
            read = sync_to_async(read_task_instance_state, thread_sensitive=False, executor=_STATE_READERS)
            return user_or_system(await read(self.task_instance))

    def _request_stop(
        self,
        settings: dict[str, Any],
        note: Callable[[Exception | None], None],
        written: asyncio.Event,
        by: StoppedBy,
    ) -> StopRequest:
        """Request the run's stop, and set ``written`` once it is."""

        def tell(error: Exception | None) -> None:
            note(error)
            if error is None:
                written.set()

        run = self.job_run
        return cluster_clients(settings).stops.request(run.job, run.run, _on_loop(tell), by=by)

    async def _settings(self, note: Callable[[Exception | None], None]) -> dict[str, Any]:
        """Return the connection's settings, however often it takes. Raises AirflowNotFoundException, see the class."""
        began, attempts = asyncio.get_running_loop().time(), 0
        while True:
            try:
                return await KafkaHook(self.kafka_conn_id).aget_settings()
            except Exception as error:
                waited = asyncio.get_running_loop().time() - began
                if isinstance(error, AirflowNotFoundException) and waited > self.heartbeat_seconds:
                    raise
                note(error)
            attempts += 1
            await asyncio.sleep(max(self.poll_seconds, RECONNECT_DELAYS.delay_s(attempts)))

    async def _has_changed(self, settings: dict[str, Any]) -> bool:
        with suppress(Exception):  # which is not about the cluster
            return await KafkaHook(self.kafka_conn_id).aget_settings() != settings
        return False

    def _event(self, state: str, message: str, **more: str) -> TriggerEvent:
        run = {"job": self.job_run.job, "run": self.job_run.run, "log": self.job_run.log}
        return TriggerEvent({**run, "state": state, "message": message, **more})  # type: ignore[no-untyped-call]


def _on_loop(method: Callable[[Any], None]) -> Callable[[Any], None]:
    """Return a function that calls ``method`` on the running loop, from any thread."""
    loop = asyncio.get_running_loop()

    def call(argument: Any) -> None:
        with suppress(RuntimeError):  # the loop is closed: the triggerer ended
            loop.call_soon_threadsafe(method, argument)

    return call
