"""Operator that checks whether streams run and make progress."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from wasmline.errors import JobFailed
from wasmline_provider.hooks.kafka import KafkaHook
from wasmline_provider.operators.failures import fail_at_once

if TYPE_CHECKING:
    from airflow.sdk import Context

    from wasmline.control import JobStatus, PartitionStall


class CheckStreamsOperator(BaseOperator):
    """Fails if a continuous stream that should run has no driver; reports the partitions that stand still.

    Example::

        CheckStreamsOperator(task_id="check", jobs=["delivery-distance"], window_seconds=60)

    Returns ``running``, ``stopped`` (by a user) and ``stalled``: each partition with its job, topic, offset, lag and
    reason. A stalled partition is a warning in the task's log, and fails nothing: it may have one large batch.

    :param jobs: names of the jobs.
    :param window_seconds: the time between the two readings that are compared; longer than the streams' intervals.
    :param kafka_conn_id: the connection of the cluster.
    """

    template_fields: Sequence[str] = ("jobs", "kafka_conn_id")
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
        self.jobs = jobs
        self.window_seconds = window_seconds
        self.kafka_conn_id = kafka_conn_id

    @fail_at_once
    def execute(self, context: Context) -> dict[str, Any]:
        from wasmline.control import JobStatusReader, JobTopic, is_live, partition_stalls
        from wasmline.documents import plain

        config = KafkaHook(self.kafka_conn_id).get_conn()
        with closing(JobTopic(config)) as topic, closing(JobStatusReader(config)) as reader:
            before = {job: reader.read_status(job) for job in self.jobs}
            stopped = [job for job, status in before.items() if status.order.is_stopped_by_user]
            wanted = [job for job in self.jobs if job not in stopped]
            dead = [job for job in wanted if not is_live(topic, job, before[job].order.spec.run)]
            if dead:
                raise JobFailed("; ".join(_dead(before[job]) for job in dead), report={"jobs": dead, "state": "lost"})
            time.sleep(self.window_seconds)
            after = {job: reader.read_status(job) for job in wanted}
        stalls = [stall for job in wanted for stall in partition_stalls(before[job], after[job])]
        for stall in stalls:
            self.log.warning("%s", _stalled(stall))
        return {"running": wanted, "stopped": stopped, "stalled": [plain(stall) for stall in stalls]}


def _dead(status: JobStatus) -> str:
    order, report = status.order, status.report
    last = f"{report.state.value}: {report.error or ''} {report.message}" if report else "none"
    return f"stream {order.spec.job} should run and has no driver (run {order.spec.run}, last report: {last})"


def _stalled(stall: PartitionStall) -> str:
    return (
        f"job {stall.job}: partition {stall.partition} of {stall.topic} stands still at offset {stall.offset} with "
        f"{stall.lag} records to read: {stall.reason}"
    )
