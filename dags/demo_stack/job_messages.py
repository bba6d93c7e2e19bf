"""The last messages of the jobs of a DAG run's tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

from wasmline.control import JobTopic
from wasmline.errors import BrokerUnavailable, JobNotFound
from wasmline.job_specs import JobReport
from wasmline.kafka import KafkaConfig
from wasmline_provider.local.api_client import TaskState
from wasmline_provider.run_monitor import format_report

WAITING = frozenset({"running", "deferred"})


class JobMessages:
    """The last reports of some jobs. ``jobs`` has the job of each task. Must be closed."""

    def __init__(self, kafka: KafkaConfig, jobs: Mapping[str, str]) -> None:
        self._log = JobTopic(kafka)
        self._jobs = dict(jobs)

    def of(self, tasks: Sequence[TaskState]) -> dict[str, str]:
        """Return a line for each task whose job has reported since the task began."""
        news = {}
        for task in tasks:
            if task.state in WAITING and task.task in self._jobs and task.started is not None:
                report = self._report(self._jobs[task.task])
                if report is not None and report.updated_ms >= task.started.timestamp() * 1_000:
                    news[task.task] = format_report(report).removeprefix(f"job {report.job} ")
        return news

    def close(self) -> None:
        """Close the Kafka clients."""
        self._log.close()

    def _report(self, job: str) -> JobReport | None:
        with suppress(JobNotFound, BrokerUnavailable):
            return self._log.report(job, self._log.order(job).spec.run)
        return None
