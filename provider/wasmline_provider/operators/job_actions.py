"""Operators that act on a job: pause, resume, stop and delete it, withdraw its leases, set its progress."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from wasmline.errors import InvalidJob
from wasmline_provider.argument_checks import is_final, require_jobs, require_numbers, require_text
from wasmline_provider.operators.user_action import UserActionOperator

if TYPE_CHECKING:
    from wasmline.control import ChangeCause
    from wasmline.kafka import KafkaConfig


class _JobActionOperator(UserActionOperator):
    """Base of the operators on a job."""

    template_fields: Sequence[str] = ("job", *UserActionOperator.template_fields)
    ui_color = "#e8f1fb"

    def __init__(self, *, job: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        require_jobs(job)
        self.job = job


class PauseJobOperator(_JobActionOperator):
    """Pauses a job that runs a function: its leases end at their next safe point, and its driver waits.

    It stays paused for its next runs. A transform is paused by WasmPauseOperator.

    Example::

        PauseJobOperator(task_id="pause", job="enrich-orders", reason="{{ params.reason }}")

    Returns ``job`` and ``paused``, whether it is paused now. Fails with InvalidJob for a job that runs no function.

    :param job: the job.
    :param reason: why; required. ``wasmline status`` shows it, and the history of the job keeps it.
    :param kafka_conn_id: the connection of the cluster.
    :param by: the user of the history; by default the one who triggered the run, else the task's owner.
    """

    output_keys = ("job", "paused")

    def _act(self, config: KafkaConfig, cause: ChangeCause) -> dict[str, Any]:
        return _set_paused(config, self.job, cause, "pause")


class ResumeJobOperator(_JobActionOperator):
    """Resumes a paused job that runs a function: it continues at its progress.

    Example::

        ResumeJobOperator(task_id="resume", job="enrich-orders", reason="{{ params.reason }}")

    Returns ``job`` and ``paused``, whether it is paused now. Fails with InvalidJob for a job that runs no function.

    :param job: the job.
    :param reason: why; required, and kept in the history of the job.
    :param kafka_conn_id: the connection of the cluster.
    :param by: the user of the history; by default the one who triggered the run, else the task's owner.
    """

    output_keys = ("job", "paused")

    def _act(self, config: KafkaConfig, cause: ChangeCause) -> dict[str, Any]:
        return _set_paused(config, self.job, cause, "resume")


class StopJobOperator(_JobActionOperator):
    """Stops the run of a job at its next safe point, whoever started it, and waits for its end.

    The job stays stopped until a user or a DAG starts it again; the supervising DAG leaves it as it is.

    Example::

        StopJobOperator(task_id="stop", job="delivery-distance", reason="{{ params.reason }}")

    Returns ``job``, ``run`` and ``state``: that of the run's last report, None if its driver died without one, or
    ``replaced`` if the job was started again after this DAG run had stopped it.

    :param job: the job.
    :param reason: why; required, and kept in the history of the job.
    :param timeout_seconds: the maximum to wait; then the task fails with JobBusy, and the stop stays requested.
    :param kafka_conn_id: the connection of the cluster.
    :param by: the user of the history; by default the one who triggered the run, else the task's owner.
    """

    template_fields: Sequence[str] = (*_JobActionOperator.template_fields, "timeout_seconds")
    output_keys = ("job", "run", "state")

    def __init__(self, *, timeout_seconds: float | str = 120.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        require_numbers(InvalidJob, 0, timeout_seconds=timeout_seconds)
        self.timeout_seconds = timeout_seconds

    def _act(self, config: KafkaConfig, cause: ChangeCause) -> dict[str, Any]:
        from contextlib import closing

        from wasmline.control import JobTopic, find_job_event, stop_job
        from wasmline.documents import plain

        require_numbers(InvalidJob, 0, timeout_seconds=self.timeout_seconds)
        if (made := find_job_event(config, self.job, "stop", cause.run)) is not None:
            with closing(JobTopic(config)) as jobs:
                if jobs.order(self.job).spec.run != made.run:
                    return {"job": self.job, "run": made.run, "state": "replaced"}
        ended = stop_job(config, self.job, cause=cause, timeout_s=float(self.timeout_seconds))
        found: dict[str, Any] = plain(ended)
        return found


class DeleteJobOperator(_JobActionOperator):
    """Deletes the order of a job that does not run, and its reports.

    Its progress stays: a job of the same name continues from it. A job of another name may have its transform or
    function then, and begins at its own starting offsets.

    Example::

        DeleteJobOperator(task_id="delete", job="delivery-distance", reason="{{ params.reason }}")

    Returns ``job`` and ``run``. Fails with JobBusy while the job runs.

    :param job: the job.
    :param reason: why; required, and kept in the history of the job.
    :param kafka_conn_id: the connection of the cluster.
    :param by: the user of the history; by default the one who triggered the run, else the task's owner.
    """

    output_keys = ("job", "run")

    def _act(self, config: KafkaConfig, cause: ChangeCause) -> dict[str, Any]:
        from wasmline.control import delete_job, find_job_event

        made = find_job_event(config, self.job, "delete", cause.run)
        run = made.run if made is not None else delete_job(config, self.job, cause=cause)
        return {"job": self.job, "run": run}


class WithdrawLeasesOperator(_JobActionOperator):
    """Ends the current round of leases of a job in parallel mode; its driver begins the next one at once.

    Example::

        WithdrawLeasesOperator(task_id="withdraw", job="enrich-orders", reason="{{ params.reason }}")

    Returns ``job``. Fails with InvalidJob if the job has no leases.

    :param job: the job.
    :param reason: why; required, and kept in the history of the job.
    :param kafka_conn_id: the connection of the cluster.
    :param by: the user of the history; by default the one who triggered the run, else the task's owner.
    """

    output_keys = ("job",)

    def _act(self, config: KafkaConfig, cause: ChangeCause) -> dict[str, Any]:
        from wasmline.control import find_job_event, withdraw_leases

        if find_job_event(config, self.job, "withdraw", cause.run) is None:
            withdraw_leases(config, self.job, cause=cause)
        return {"job": self.job}


class SetProgressOperator(_JobActionOperator):
    """Sets where the next run of a job continues: the same for every mode and delivery.

    Progress that goes back processes records again, and writes their outputs again; progress that goes forward skips
    records.

    Example::

        SetProgressOperator(task_id="set_progress", job="delivery-distance", to="2026-11-26T16:00:00Z", reason="…")

    Returns ``job`` and ``offsets``: the next offset to read of each partition. Fails with JobBusy while the job runs.

    :param job: the job.
    :param to: ``start`` or ``end`` of the topic, also ``earliest`` or ``latest``, an offset, ``+N`` or ``-N`` records
        from the current progress, or a time: the first record of it.
    :param reason: why; required, and kept in the history of the job.
    :param partitions: only these; None or empty for all.
    :param kafka_conn_id: the connection of the cluster.
    :param by: the user of the history; by default the one who triggered the run, else the task's owner.
    """

    template_fields: Sequence[str] = (*_JobActionOperator.template_fields, "to", "partitions")
    output_keys = ("job", "offsets")

    def __init__(self, *, to: str, partitions: Sequence[int] | str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        require_text(InvalidJob, to=to)
        if is_final(partitions):
            _numbers(partitions)
        self.to = to
        self.partitions = partitions

    def _act(self, config: KafkaConfig, cause: ChangeCause) -> dict[str, Any]:
        from wasmline.control import find_job_event
        from wasmline.job_offsets.progress_change import complete_progress_change, set_progress
        from wasmline.job_offsets.progress_target import ProgressTarget

        made = find_job_event(config, self.job, "set progress", cause.run)
        if made is None:
            if not isinstance(self.to, str):  # a native template has lost the sign that makes +N relative
                raise InvalidJob(f"to must be text, got the number {self.to}: turn render_template_as_native_obj off")
            to = ProgressTarget.parse(self.to, _numbers(self.partitions))
            offsets = set_progress(config, self.job, lambda found: to.resolve(config, found), cause=cause).offsets
        else:
            offsets = complete_progress_change(config, made, cause=cause)
        return {"job": self.job, "offsets": {str(partition): offset for partition, offset in offsets.items()}}


def _set_paused(
    config: KafkaConfig, job: str, cause: ChangeCause, action: Literal["pause", "resume"]
) -> dict[str, Any]:
    from contextlib import closing

    from wasmline.control import JobTopic, find_job_event

    made = find_job_event(config, job, action, cause.run)
    with closing(JobTopic(config)) as jobs:
        if made is not None:
            order = jobs.order(job)
        elif action == "pause":
            order = jobs.pause(job, cause.reason, cause=cause)
        else:
            order = jobs.resume(job, cause=cause)
    return {"job": job, "paused": order.paused}


def _numbers(partitions: Sequence[int] | int | str | None) -> list[int]:
    """Return partitions that a template may have rendered as text, such as ``0, 2`` or ``[0, 2]``, or as a number.

    Raises InvalidJob.
    """
    if isinstance(partitions, int):
        return [partitions]
    named = partitions.strip("[] ").split(",") if isinstance(partitions, str) else partitions or ()
    try:
        return [int(each) for each in named if str(each).strip()]
    except (TypeError, ValueError) as error:
        raise InvalidJob(f"partitions must be numbers such as [0, 2], got {partitions!r}") from error
