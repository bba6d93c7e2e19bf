"""Operator that checks whether streams run and make progress."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

from wasmline.errors import InvalidJob, JobFailed, JobNotFound, UnsupportedSpecVersion
from wasmline_provider.argument_checks import is_final, require_jobs, require_list, require_numbers
from wasmline_provider.hooks.kafka import KafkaHook
from wasmline_provider.operators.failures import fail_at_once
from wasmline_provider.operators.multiple_outputs import MultipleOutputsOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from wasmline.control import JobStatus, JobStatusReader, PartitionStall


class CheckStreamsOperator(MultipleOutputsOperator):
    """Fails if a continuous stream that should run has no driver; reports the partitions that stand still.

    Example::

        CheckStreamsOperator(task_id="check", jobs=["delivery-distance"], window_seconds=60)

    Returns ``running``, ``stopped`` (by a user), ``unreadable`` (ordered by another release of Wasmline, and not
    checked) and ``stalled``: each partition with its job, topic, offset, lag and reason, such as a paused deployment or
    stuck keys. A stalled partition is a warning in the task's log, and fails nothing: it may have one large batch.

    A stream whose driver has just died is a failure that may pass, once something has started it again: give the task
    retries.

    :param jobs: names of the jobs.
    :param window_seconds: the time between the two readings that are compared; longer than the streams' intervals.
    :param kafka_conn_id: the connection of the cluster.
    """

    template_fields: Sequence[str] = ("jobs", "kafka_conn_id")
    output_keys = ("running", "stopped", "unreadable", "stalled")
    ui_color = "#e8f1fb"

    def __init__(
        self,
        *,
        jobs: Sequence[str],
        window_seconds: float = 30.0,
        kafka_conn_id: str = KafkaHook.default_conn_name,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._check(jobs)
        require_numbers(InvalidJob, 0, window_seconds=window_seconds)
        self.jobs = jobs
        self.window_seconds = window_seconds
        self.kafka_conn_id = kafka_conn_id

    @staticmethod
    def _check(jobs: Any) -> None:
        if is_final(jobs):
            require_list(InvalidJob, "jobs", jobs)
            require_jobs(*jobs)

    @fail_at_once
    def execute(self, context: Context) -> dict[str, Any]:
        from wasmline.control import JobStatusReader, JobTopic, live_jobs, partition_stalls, read_deployments
        from wasmline.documents import plain

        self._check(self.jobs)
        config = KafkaHook(self.kafka_conn_id).get_conn()
        with closing(JobTopic(config)) as topic, closing(JobStatusReader(config)) as reader:
            before, unreadable = self._read(reader, self.jobs)
            stopped = [job for job, status in before.items() if status and status.order.is_stopped_by_user]
            wanted = {job: status for job, status in before.items() if job not in stopped}
            runs = {job: status.order.spec.run for job, status in wanted.items() if status}
            live = live_jobs(topic, runs)
            dead = [job for job in wanted if job not in live]
            if dead:
                raise JobFailed(
                    "; ".join(_dead(job, wanted[job]) for job in dead), report={"jobs": dead, "state": "lost"}
                )
            time.sleep(self.window_seconds)
            after, _ = self._read(reader, list(wanted))
        deployments = {each.spec.name: each for each in read_deployments(config)}
        stalls = [
            stall
            for job, earlier in wanted.items()
            if earlier and (later := after.get(job))
            for stall in partition_stalls(earlier, later, deployments.get(_transform(later)))
        ]
        for stall in stalls:
            self.log.warning("%s", _stalled(stall))
        return {
            "running": list(wanted),
            "stopped": stopped,
            "unreadable": unreadable,
            "stalled": [plain(stall) for stall in stalls],
        }

    def _read(self, reader: JobStatusReader, jobs: Sequence[str]) -> tuple[dict[str, JobStatus | None], list[str]]:
        """Return the status of each job, None for one that was never ordered, and the jobs that cannot be read."""
        found: dict[str, JobStatus | None] = {}
        unreadable = []
        for job in jobs:
            try:
                found[job] = reader.read_status(job)
            except JobNotFound:
                found[job] = None
            except UnsupportedSpecVersion as error:
                self.log.warning("job %s is not checked, its records are of another release: %s", job, error)
                unreadable.append(job)
        return found, unreadable


def _transform(status: JobStatus) -> str:
    stream = status.order.spec.stream
    return stream.transform if stream is not None else ""


def _dead(job: str, status: JobStatus | None) -> str:
    if status is None:
        return f"stream {job} should run and was never ordered: see the task that starts it"
    run, report = status.order.spec.run, status.report
    last = ": ".join(filter(None, (report.state.value, report.error, report.message))) if report else "none"
    return f"stream {job} should run and has no driver (run {run}, last report: {last})"


def _stalled(stall: PartitionStall) -> str:
    return (
        f"job {stall.job}: partition {stall.partition} of {stall.topic} stands still at offset {stall.offset} with "
        f"{stall.lag} records to read: {stall.reason}"
    )
