"""Actions on a job: stop its run, end its round of leases, delete it."""

from __future__ import annotations

import logging
import time
from contextlib import closing
from dataclasses import dataclass

from wasmline.control.deployment_history import NO_CAUSE, ChangeCause
from wasmline.control.job_topic import JobOrder, JobTopic, LeaseWithdrawal
from wasmline.control.run_liveness import is_live
from wasmline.errors import Conflict, InvalidJob, JobBusy, UnsupportedSpecVersion
from wasmline.job_specs import JobState
from wasmline.kafka import KafkaConfig

logger = logging.getLogger(__name__)

POLL_INTERVAL_S = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedRun:
    """A run that has ended. ``state``: that of its last report; None if its driver died without one."""

    job: str
    run: str
    state: JobState | None


def stop_job(
    config: KafkaConfig, job: str, *, run: str | None = None, cause: ChangeCause = NO_CAUSE, timeout_s: float = 120.0
) -> EndedRun:
    """Stop the current run of a job at its next safe point, and wait for its end.

    The job stays stopped until a user or a DAG starts it again. ``run``: stop this one only; None for any. Raises
    JobNotFound; Conflict if another run is current; JobBusy if the run has not ended in ``timeout_s`` seconds: its stop
    stays requested.
    """
    with closing(JobTopic(config)) as topic:
        while not (order := topic.order(job)).is_stopped_by_user:
            _require_run(order, run)
            topic.stop(job, order.spec.run, cause=cause)  # no effect if a supervisor replaces the run at this moment
        _require_run(order, run)
        run = order.spec.run
        deadline = time.monotonic() + timeout_s
        while (live := is_live(topic, job, run)) and time.monotonic() < deadline:
            time.sleep(POLL_INTERVAL_S)
        report = topic.report(job, run)
    if live:
        raise JobBusy(f"job {job} is told to stop, and run {run} has not ended in {timeout_s:g} s", job=job, run=run)
    return EndedRun(job=job, run=run, state=report.state if report is not None and report.state.final else None)


def _require_run(order: JobOrder, run: str | None) -> None:
    """Raise Conflict if another run than ``run`` is ordered."""
    job = order.spec.job
    if run not in (None, order.spec.run):
        raise Conflict(f"job {job} has run {order.spec.run} by now: nothing was stopped", name=job, generation=None)


def delete_job(config: KafkaConfig, job: str, *, cause: ChangeCause = NO_CAUSE) -> str:
    """Delete the order of a job and its reports, and return the run that it had; "" if this release cannot read it.

    Its progress stays: a job of the same name continues from it. Raises JobNotFound, InvalidJob; JobBusy while its run
    is live, or any that has reported if the order cannot be read; UnsupportedSpecVersion if that cannot be told either;
    Conflict if another run is ordered meanwhile.
    """
    with closing(JobTopic(config)) as topic:
        try:
            run = topic.order(job).spec.run
            runs = [run]
        except UnsupportedSpecVersion as error:
            logger.warning("the order of job %s is deleted, which this release cannot read: %s", job, error)
            run, runs = "", topic.reported_runs(job)
        for each in runs:
            if is_live(topic, job, each):
                raise JobBusy(f"run {each} of job {job} is live: wasmline stop {job}", job=job, run=each)
        topic.delete(job, run, cause=cause)
    return run


def withdraw_leases(config: KafkaConfig, job: str, *, cause: ChangeCause = NO_CAUSE) -> LeaseWithdrawal:
    """End the current round of leases of a job in parallel mode; its driver begins the next one at once.

    Raises JobNotFound; InvalidJob if no driver has leases.
    """
    with closing(JobTopic(config)) as topic:
        topic.order(job)
        claim = topic.last_claim(job)
        if claim is None or claim.mode != "parallel" or claim.batch_id < 0:
            raise InvalidJob(f"job {job} has no leases: its last run was not in parallel mode, or has begun none")
        if not is_live(topic, job, claim.run):
            raise InvalidJob(f"job {job} has no leases: run {claim.run} has no driver")
        withdrawal = topic.withdraw(job, cause=cause)
    if withdrawal is None:
        raise InvalidJob(f"job {job} has no leases any more")
    return withdrawal
