"""The job topic: orders, claims, withdrawals and reports of jobs.

Keys, for a job named ``j``: ``j`` holds the JobOrder, ``j/batch`` the last DriverClaim, ``j/batch/t`` the last one
about topic id ``t`` where the job has read another topic since, ``j/withdrawn`` the last LeaseWithdrawal,
``j/report/r`` the last JobReport of run ``r``. The reports of a job's last two runs are kept. The records of launchers
are in the same topic: see launcher_topic.
The fields: docs/protocols/control_topics.md.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from wasmline.clock import now_ms
from wasmline.control import control_topics
from wasmline.control.deployment_history import NO_CAUSE, ChangeCause, GenerationStart, report_record, start_record
from wasmline.control.deployment_spec import Deployment
from wasmline.control.job_history import JobAction, JobEvent, job_event_record
from wasmline.control.job_keys import claim_key, claims_transactional_id, launch_key, report_key, withdrawal_key
from wasmline.control.launch_request import LaunchRequest
from wasmline.control.launcher_topic import Launch
from wasmline.documents import decode, encode
from wasmline.errors import (
    BrokerUnavailable,
    Conflict,
    DuplicateJob,
    Fenced,
    InvalidJob,
    JobNotFound,
    KafkaError,
    ProducerIdExpired,
    WasmlineError,
)
from wasmline.job_specs import JobReport, JobSpec, JobState, StreamSpec, require_job_name
from wasmline.kafka import CompactedTopic, KafkaConfig, RecordWriter, TopicRecord, TransactionalWriter
from wasmline.restart_policy import is_restartable

logger = logging.getLogger(__name__)

TAKEOVER_ATTEMPTS = 5
"""Attempts of a new driver to fence older drivers that claim at the same moment."""

CLAIM_TIMEOUT_S = 30.0
"""Seconds for which a claim is retried: longer than the replacement of a broker."""

ORDER_TIMEOUT_S = 30.0
"""Seconds for which an order is retried while others are written at the same moment."""

ORDER_RETRY_DELAY_S = 0.2
"""Maximum seconds before an order is tried again. Of 32 clients at one moment the last is through after ten seconds."""

ORDERS_TRANSACTIONAL_ID = "wasmline.orders"
"""The transactional.id of all orders: one for all, so that two jobs for the same processing exclude each other."""


StoppedBy = Literal["user", "system"]
"""Who requests a stop. A user wants the job to stay stopped, the system does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOrder:
    """The orchestrator's request for a job: its specification and its wanted state.

    stopped_by: who requested the stop. A ``user`` wants the job to stay stopped; the ``system`` stops a run whose query
    failed, or that another run follows. Orders of releases without this field have "": a user's.
    submit_digest: identifies the settings that the run was submitted with, such as Spark's; "": unknown.
    launch: the launcher that starts the driver; None if the client that wrote the order does.
    paused: of a job that runs a function: its driver waits, and has no leases. The next order of the job keeps it.
    pause_reason: why.
    cause: the user and the task, or the command, that ordered the run. Orders of releases without this field have none.
    """

    spec: JobSpec
    wanted: Literal["running", "stopped"]
    stopped_by: Literal["", "user", "system"] = ""
    submit_digest: str = ""
    launch: LaunchRequest | None = None
    paused: bool = False
    pause_reason: str = ""
    cause: ChangeCause = NO_CAUSE
    spec_version: Literal[1] = 1

    @property
    def is_stopped_by_user(self) -> bool:
        """Whether the job is meant to stay stopped until a user starts it again."""
        return self.wanted == "stopped" and self.stopped_by != "system"

    def starts_again_after(self, report: JobReport) -> bool:
        """Return whether the launcher starts the driver of the order's run again after its last ``report``."""
        return self.launch is not None and self.spec.is_continuous and is_restartable(report)


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverClaim:
    """One micro-batch or lease, recorded before it runs, so that a replay of the batch runs the same generation.

    batch_id: -1 is the driver's claim of the job, made before its query starts, or frees a batch that failed. Before
        rounds of leases that continue in a checkpoint it is the epoch of the last one.
    checkpoint: the checkpoint of the batch ids. Empty in the first claim of a job: it has no progress yet.
    driver: identifies a driver among those of one run; several processes may claim for one.
    driver_run: the run of a driver that has taken the job over and begun nothing: ``run`` is that of the claim before.
    partitions: how many input partitions have committed offsets. From then on a missing one is an error.
    topic, topic_id: the input.
    virtual_shards: number of transactional ids that share the topic's partitions; claims of releases without this
        field had 64.
    offsets, ends: the next offset to read of each partition, before the batch and after it.
    left: the group's offset of a partition after the batch; ``offsets`` until then. Absent: any from there on.
    late: offsets above ``offsets`` that tasks of earlier batches, not known to have ended, may still commit.
    ended: the driver has left the checkpoint, and ``offsets`` are its final progress.
    deployment: None if a function runs.
    """

    run: str
    mode: Literal["microbatch", "parallel"] = "microbatch"
    delivery: Literal["at_least_once", "exactly_once"] = "at_least_once"
    driver: str = ""
    driver_run: str = ""
    partitions: int = 0
    topic: str = ""
    topic_id: str = ""
    offsets: dict[int, int] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)
    left: dict[int, int] = field(default_factory=dict)
    late: dict[int, tuple[int, ...]] = field(default_factory=dict)
    ended: bool = False
    checkpoint: str
    batch_id: int
    deployment: Deployment | None
    virtual_shards: int = 64
    spec_version: Literal[1] = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseWithdrawal:
    """Ends a driver's leases up to number ``epoch`` before they expire: the next round begins at once.

    max_tasks: the limit of tasks of that driver's rounds from the next one on, 0 for no more rounds; None leaves it as
        it is.
    """

    driver: str
    epoch: int
    max_tasks: int | None = None
    spec_version: Literal[1] = 1


JobCondition = Literal["ordered", "starting", "running", "succeeded", "stopped", "failed", "silent", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOverview:
    """The order of a job and the last report of its run; None without one, or where ``problem`` says why not."""

    order: JobOrder
    report: JobReport | None
    problem: str = ""

    @property
    def mode(self) -> str:
        """``microbatch``, ``parallel`` or ``training``."""
        stream = self.order.spec.stream
        return stream.mode if stream else "training"

    @property
    def delivery(self) -> str | None:
        """That of a stream; None for a training."""
        stream = self.order.spec.stream
        return stream.delivery if stream else None

    @property
    def work(self) -> str | None:
        """What the job processes or trains, as text."""
        spec = self.order.spec
        return spec.processing or (f"trains {spec.train.model}" if spec.train else None)

    @property
    def wanted(self) -> str:
        """``running``, ``paused`` or ``stopped``: what users and DAGs have asked for."""
        return "paused" if self.order.paused and self.order.wanted == "running" else self.order.wanted

    @property
    def message(self) -> str:
        """The error and the message of the report."""
        return "" if self.report is None else ": ".join(filter(None, (self.report.error, self.report.message)))

    def condition(self, now: int) -> JobCondition:
        """Return the state of the run at Unix time ``now`` in milliseconds.

        ``silent``: by this machine's clock its driver has not reported for so long that it counts as dead.
        """
        report = self.report
        if report is None:
            return "unknown" if self.problem else "ordered"
        is_late = now - report.updated_ms > 1_000 * report.timeout_s
        return "silent" if is_late and not report.state.final else report.state.value


class JobTopic:
    """The orchestrator's side of the job topic."""

    def __init__(self, config: KafkaConfig) -> None:
        control_topics.ensure(config)
        self._topic = CompactedTopic(config, control_topics.JOBS)
        self._writer = RecordWriter(config)

    def submit(
        self,
        spec: JobSpec,
        *,
        submit_digest: str = "",
        launch: LaunchRequest | None = None,
        replaces: JobOrder | Literal["any"] | None = "any",
        dead_report: JobReport | None = None,
        cause: ChangeCause = NO_CAUSE,
    ) -> JobOrder:
        """Order a run, and report it as starting in the same transaction, before anything starts.

        Another client can adopt the run from that moment. ``replaces``: the order that the caller has read, None for
        none. ``dead_report``: the last report of its run, if the caller took that for dead. Raises Conflict if the
        current order has another run or was stopped by a user meanwhile, or if the dead run has reported; DuplicateJob
        if another job's order has the same processing, unless this job's current order has it, too.
        """
        made = JobOrder(spec=spec, wanted="running", submit_digest=submit_digest, launch=launch, cause=cause)
        waiting = f"ordered from launcher {launch.launcher}" if launch is not None else ""
        report = JobReport.now(spec.job, spec.run, JobState.STARTING, waiting)

        def decide(view: dict[bytes, bytes]) -> dict[bytes, bytes | None]:
            nonlocal made
            current = self._current(view, spec.job)
            if current is not None and spec.stream is not None and spec.stream.function is not None:
                made = replace(made, paused=current.paused, pause_reason=current.pause_reason)
            if replaces != "any" and _identity(current) != _identity(replaces):
                if current is not None and current.spec.run == spec.run:  # of an earlier attempt without an answer
                    return {}
                raise _OrderChanged(spec.job)
            standing = current.spec.run if current is not None else ""
            if dead_report is not None and _reports_again(view, dead_report):
                raise _OrderChanged(spec.job)
            if current is None or current.spec.processing != spec.processing:
                _require_unique(view, spec)
            kept = {report_key(spec.job, run) for run in (standing, spec.run)}
            stale = {name for name in view if name.startswith(report_key(spec.job, ""))} - kept
            written: dict[bytes, bytes | None] = {
                spec.job.encode(): encode(made),
                report_key(spec.job, spec.run): encode(report),
            }
            return written | dict.fromkeys(sorted(stale))

        self._write_orders(decide)
        return made

    def update(self, order: JobOrder, stream: StreamSpec) -> JobOrder:
        """Change the stream of ``order``'s run, which takes it over by itself. Raises Conflict if that is not current.

        In parallel mode the current leases end at their next safe point, and the next ones have the new stream.
        """
        updated = replace(order, spec=replace(order.spec, stream=stream))

        def decide(view: dict[bytes, bytes]) -> dict[bytes, bytes | None]:
            if self._current(view, order.spec.job) != order:
                raise _OrderChanged(order.spec.job)
            return {order.spec.job.encode(): encode(updated)}

        self._write_orders(decide)
        return updated

    def stop(self, job: str, run: str, *, by: StoppedBy = "user", cause: ChangeCause | None = None) -> None:
        """Request ``run`` to end at its next safe point. No effect on a run that was replaced by a newer one.

        A stop by the ``system`` leaves a user's as it is. Raises JobNotFound.
        """
        if self.stop_runs({job: run}, by=by, cause=cause):
            raise _unknown(job)

    def stop_runs(
        self,
        runs: Mapping[str, str],
        *,
        by: StoppedBy = "user",
        skip_ended: bool = False,
        is_requested: Callable[[str], bool] = lambda job: True,
        cause: ChangeCause | None = None,
    ) -> set[str]:
        """Request runs, by their jobs, to end as ``stop`` does, in one transaction; return the jobs without a
        readable order.

        skip_ended: leave a run that has reported its end as it is, unless its launcher starts its driver again.
        is_requested: called with a job right before each attempt to write; a request that was withdrawn is left out.
        cause: kept in the history of each job that this changes.
        """
        unknown: set[str] = set()
        events: list[TopicRecord] = []

        def decide(view: dict[bytes, bytes]) -> dict[bytes, bytes | None]:
            unknown.clear()
            events.clear()
            written: dict[bytes, bytes | None] = {}
            for job, run in runs.items():
                data = view.get(job.encode())
                order = _readable(job.encode(), data) if data else None
                if order is None:
                    unknown.add(job)
                    continue
                has_effect = order.spec.run == run and not (by == "system" and order.wanted == "stopped")
                is_over = skip_ended and _has_ended(view, order, run)
                if has_effect and not is_over and is_requested(job):
                    written[job.encode()] = encode(replace(order, wanted="stopped", stopped_by=by))
                    events.extend(_events("stop", job, run, cause))
            return written

        self._write_orders(decide, lambda: events)
        return unknown

    def pause(self, job: str, reason: str, *, cause: ChangeCause = NO_CAUSE) -> JobOrder:
        """Pause a job that runs a function: its leases end at their next safe point, and its driver waits.

        It stays paused for its next runs. Raises JobNotFound; InvalidJob for another job.
        """
        return self._set_paused("pause", job, cause, paused=True, pause_reason=reason)

    def resume(self, job: str, *, cause: ChangeCause = NO_CAUSE) -> JobOrder:
        """Resume a paused job from its progress. Raises JobNotFound; InvalidJob for one that runs no function."""
        return self._set_paused("resume", job, cause, paused=False, pause_reason="")

    def _set_paused(self, action: JobAction, job: str, cause: ChangeCause, **fields: Any) -> JobOrder:
        made: list[JobOrder] = []
        events: list[TopicRecord] = []

        def decide(view: dict[bytes, bytes]) -> dict[bytes, bytes | None]:
            events.clear()
            order = self._current(view, job)
            if order is None:
                raise _unknown(job)
            stream = order.spec.stream
            if stream is None or stream.function is None:
                what = f"runs a transform: wasmline {action} {stream.transform}" if stream else "is a training"
                raise InvalidJob(f"job {job} {what}")
            made.append(replace(order, **fields))
            if made[-1] == order:
                return {}
            events.extend(_events(action, job, order.spec.run, cause))
            return {job.encode(): encode(made[-1])}

        self._write_orders(decide, lambda: events)
        return made[-1]

    def delete(self, job: str, run: str, *, cause: ChangeCause | None = None) -> None:
        """Forget the order of ``job``, which is of ``run``, and its reports. Raises JobNotFound, InvalidJob, Conflict.

        Its claims stay, and its group and checkpoint: a job of the same name continues from them. An order that this
        release cannot read is deleted whatever its run. ``cause`` is kept in the history of the job.
        """
        require_job_name(job)
        key = job.encode()

        def decide(view: dict[bytes, bytes]) -> dict[bytes, bytes | None]:
            if key not in view:
                raise _unknown(job)
            order = _readable(key, view[key])
            if order is not None and order.spec.run != run:
                raise _OrderChanged(job)
            gone = {name for name in view if name.startswith(report_key(job, ""))}
            return dict.fromkeys([key, withdrawal_key(job), launch_key(job), *sorted(gone)])

        self._write_orders(decide, lambda: _events("delete", job, run, cause))

    def order(self, job: str) -> JobOrder:
        """Return the current order of ``job``. Raises JobNotFound, UnsupportedSpecVersion."""
        order = self._current(self._topic.read(), job)
        if order is None:
            raise _unknown(job)
        return order

    def orders(self) -> list[JobOrder]:
        """Return the current order of every job; one that this release cannot read is skipped with a warning."""
        return list(_orders(self._topic.read()).values())

    def overviews(self) -> list[JobOverview]:
        """Return every job that has an order which this release can read, by name, from one reading."""
        view = self._topic.read()
        found = []
        for name, order in _orders(view).items():
            data, report, problem = view.get(report_key(name, order.spec.run)), None, ""
            try:
                report = decode(JobReport, data) if data is not None else None
            except WasmlineError as error:
                problem = f"the report of job {name} cannot be read: {error}"
            found.append(JobOverview(order=order, report=report, problem=problem))
        return found

    def last_claim(self, job: str, topic_id: str = "") -> DriverClaim | None:
        """Return the newest claim of a driver of ``job``.

        With ``topic_id`` it is the newest claim about that topic, or if there is none, the newest of all.
        """
        return newest_claim(self._topic.read(), job, topic_id)

    def withdraw(self, job: str, *, cause: ChangeCause | None = None) -> LeaseWithdrawal | None:
        """End the current round of leases of ``job``, if any, in parallel mode; its driver begins the next one.

        Returns the withdrawal. ``cause`` is kept in the history of the job.
        """
        claim = self.last_claim(job)
        if claim is None:
            return None
        withdrawal = LeaseWithdrawal(driver=claim.driver, epoch=claim.batch_id)
        self.write_withdrawal(job, withdrawal)
        for topic, key, value, *_ in _events("withdraw", job, claim.run, cause):
            self._writer.write(topic, [(key, value, [], None)])
        return withdrawal

    def last_withdrawal(self, job: str) -> LeaseWithdrawal | None:
        """Return the last withdrawal of leases of ``job``."""
        data = self._topic.read().get(withdrawal_key(job))
        return decode(LeaseWithdrawal, data) if data else None

    def write_withdrawal(self, job: str, withdrawal: LeaseWithdrawal) -> None:
        """Write ``withdrawal``; returns when every in-sync replica has it."""
        self._writer.write(control_topics.JOBS, [(withdrawal_key(job), encode(withdrawal), [], None)])

    def report(self, job: str, run: str) -> JobReport | None:
        """Return the last report of ``run``, or None while it has not reported."""
        data = self._topic.read().get(report_key(job, run))
        return decode(JobReport, data) if data else None

    def reported_runs(self, job: str) -> list[str]:
        """Return the runs of ``job`` that have a report, sorted."""
        prefix = report_key(job, "")
        found = (key.removeprefix(prefix) for key in self._topic.read() if key.startswith(prefix))
        return sorted(run.decode(errors="replace") for run in found)

    def find_report(self, job: str, run: str) -> JobReport | None:
        """Return the last report of ``run``; None without one, or for one of another release."""
        return _readable_report(self._topic.read(), job, run)

    def last_launch(self, job: str) -> Launch | None:
        """Return the last start of a driver of ``job`` by a launcher."""
        data = self._topic.read().get(launch_key(job))
        return decode(Launch, data) if data else None

    def write_report(self, report: JobReport) -> None:
        """Write the report of a run; returns when every in-sync replica has it."""
        self._writer.write(control_topics.JOBS, [(report_key(report.job, report.run), encode(report), [], None)])

    def close(self) -> None:
        """Close the Kafka clients."""
        self._writer.close()
        self._topic.close()

    def _write_orders(
        self,
        decide: Callable[[dict[bytes, bytes]], Mapping[bytes, bytes | None]],
        other_records: Callable[[], Collection[TopicRecord]] = tuple,
    ) -> None:
        """Write the result of ``decide`` by compare-and-set; again if other orders come in between."""
        deadline = time.monotonic() + ORDER_TIMEOUT_S
        while True:
            try:
                self._topic.compare_and_set(ORDERS_TRANSACTIONAL_ID, decide, other_records)
            except _OrderChanged as changed:
                text = f"job {changed.job} was ordered or stopped by another client, or reports again: read it again"
                raise Conflict(text, name=changed.job, generation=None) from None
            except (Conflict, BrokerUnavailable):
                left = deadline - time.monotonic()
                if left < 0:
                    raise
                time.sleep(min(left, random.uniform(0, ORDER_RETRY_DELAY_S)))  # not in step with others
            else:
                return

    @staticmethod
    def _current(view: Mapping[bytes, bytes], job: str) -> JobOrder | None:
        require_job_name(job)  # of a user: other keys of the topic have a slash
        data = view.get(job.encode())
        return decode(JobOrder, data) if data else None


class _OrderChanged(Exception):
    """The order of ``job`` is not the one that the caller has read: the same write cannot succeed."""

    def __init__(self, job: str) -> None:
        super().__init__(job)
        self.job = job


def _events(action: JobAction, job: str, run: str, cause: ChangeCause | None) -> list[TopicRecord]:
    """Return the record of an action with a cause."""
    if cause is None:
        return []
    return [job_event_record(JobEvent(action=action, job=job, run=run, changed_ms=now_ms(), cause=cause))]


def _orders(view: Mapping[bytes, bytes]) -> dict[str, JobOrder]:
    found = {key: _readable(key, value) for key, value in sorted(view.items()) if b"/" not in key}
    return {key.decode(errors="replace"): order for key, order in found.items() if order is not None}


def newest_claim(view: Mapping[bytes, bytes], job: str, topic_id: str = "") -> DriverClaim | None:
    """Return the result of ``JobTopic.last_claim`` from the topic's table."""
    data = view.get(claim_key(job))
    claim = decode(DriverClaim, data) if data else None
    if claim is not None and topic_id and claim.topic_id != topic_id:
        earlier = view.get(claim_key(job, topic_id))
        return decode(DriverClaim, earlier) if earlier else claim
    return claim


def _readable(key: bytes, value: bytes) -> JobOrder | None:
    try:
        return decode(JobOrder, value)
    except WasmlineError as error:
        logger.warning("the order of job %s is skipped: %s", key.decode(errors="replace"), error)
        return None


def _readable_report(view: Mapping[bytes, bytes], job: str, run: str) -> JobReport | None:
    """Return the last report of a run; None without one, or for one of another release."""
    data = view.get(report_key(job, run))
    with suppress(WasmlineError):
        return decode(JobReport, data) if data is not None else None
    return None


def _reports_again(view: Mapping[bytes, bytes], last: JobReport) -> bool:
    """Return whether a run goes on after a report that was taken for its last one."""
    report = _readable_report(view, last.job, last.run)
    if report is None:
        return report_key(last.job, last.run) in view
    return report != last and not report.state.final


def _has_ended(view: Mapping[bytes, bytes], order: JobOrder, run: str) -> bool:
    report = _readable_report(view, order.spec.job, run)
    if report is None:
        return False
    return report.state.final and not order.starts_again_after(report)


def _require_unique(view: Mapping[bytes, bytes], spec: JobSpec) -> None:
    """Raise DuplicateJob if another job has the processing of ``spec``."""
    if spec.processing is None:
        return
    for job, order in _orders(view).items():
        if job != spec.job and order.spec.processing == spec.processing:
            raise DuplicateJob(
                f"job {spec.job} would run {spec.processing} a second time, beside job {job}: its records would be "
                f"processed twice. Use the name {job}, or delete that job first: wasmline delete {job}",
                job=job,
            )


def _identity(order: JobOrder | None) -> tuple[str, bool] | None:
    """Return what a client that replaces an order must have read of it."""
    return None if order is None else (order.spec.run, order.is_stopped_by_user)


def _unknown(job: str) -> JobNotFound:
    return JobNotFound(f"there is no job {job!r} on this cluster", job=job)


class ClaimProducer:
    """The driver's side: the claims that make it the only active driver of its job.

    The transactional.id is derived from the job's name, so that a newer driver fences the older one, which detects it
    at its next claim: every claim is a record in a transaction of that id.
    """

    def __init__(self, config: KafkaConfig, job: str) -> None:
        self._config = config
        self._job = job
        self._claimed: DriverClaim | None = None
        self._writer = self._open()

    def claim(
        self,
        claim: DriverClaim,
        earlier: DriverClaim | None = None,
        other_records: Collection[TopicRecord] = (),
    ) -> None:
        """Record ``claim`` durably. Raises Fenced when a newer driver has claimed the job.

        ``earlier`` is written with it as the last claim about another topic, and so are records of other topics. The
        cluster expires the producer of a driver without claims for ``transactional.id.expiration.ms``, a week by
        default; a new producer replaces it if the newest claim is still this driver's.
        """
        records: dict[bytes, bytes | None] = {claim_key(self._job): encode(claim)}
        if earlier is not None:
            records[claim_key(self._job, earlier.topic_id)] = encode(earlier)
        try:
            try:
                self._writer.write(records, other_records)
            except ProducerIdExpired:
                self._require_newest()  # first, to avoid fencing a newer driver
                self._writer.close()
                self._writer = self._open()
                self._require_newest()
                self._writer.write(records, other_records)
        except Conflict as conflict:
            raise fenced_error(self._job) from conflict
        self._claimed = claim

    def close(self) -> None:
        """Close the Kafka client."""
        self._writer.close()

    def _open(self) -> TransactionalWriter:
        return TransactionalWriter(self._config, control_topics.JOBS, claims_transactional_id(self._job))

    def _require_newest(self) -> None:
        jobs = JobTopic(self._config)
        try:
            if jobs.last_claim(self._job) != self._claimed:
                raise fenced_error(self._job)
        finally:
            jobs.close()


class ClaimWriter:
    """Writes the claims of a driver, which may have several processes.

    The newest claim, not the order of fencing, decides which driver has the job: a process of an older driver may
    be late with its first claim and fence processes of the newer driver, which then continues.
    """

    def __init__(self, config: KafkaConfig, job: str, driver: str) -> None:
        self._config = config
        self._job = job
        self._name = driver
        self._jobs = JobTopic(config)
        self._driver: ClaimProducer | None = None
        self._claimed: DriverClaim | None = None

    def take_over(self, claim: Callable[[DriverClaim | None], DriverClaim]) -> None:
        """Make this the job's driver, with the claim that ``claim`` derives from the newest one after fencing.

        Raises Fenced if other drivers claim at the same moment in each of TAKEOVER_ATTEMPTS attempts. An attempt that
        a task of a lease has fenced, or that no broker answers, is repeated for CLAIM_TIMEOUT_S.
        """
        deadline, attempts = time.monotonic() + CLAIM_TIMEOUT_S, TAKEOVER_ATTEMPTS
        while True:
            self._forget()
            before: DriverClaim | None = None
            try:
                self._driver = ClaimProducer(self._config, self._job)
                before = self._jobs.last_claim(self._job)
                self._driver.claim(claim(before))
            except Fenced:
                attempts -= self._jobs.last_claim(self._job) != before
                if not attempts or time.monotonic() > deadline:
                    raise
            except (Conflict, KafkaError) as error:
                if not (error.retryable or isinstance(error, Conflict)) or time.monotonic() > deadline:
                    raise
                logger.info("the takeover of job %s is tried again: %s", self._job, error)
            else:
                self._jobs.close()
                return
            time.sleep(random.uniform(0, ORDER_RETRY_DELAY_S))  # not in step with others

    def claim(
        self, claim: DriverClaim, earlier: DriverClaim | None = None, other_records: Collection[TopicRecord] = ()
    ) -> None:
        """Record ``claim`` durably, and the others as ClaimProducer does. Raises Fenced when another driver claimed.

        The first claim of a generation is recorded in the history of its deployment as well. If the cluster rejects
        it, or the outcome is unknown, the claim is retried for CLAIM_TIMEOUT_S.
        """
        deadline = time.monotonic() + CLAIM_TIMEOUT_S
        while True:
            driver = self._driver or self._reopen()
            try:
                driver.claim(claim, earlier, [*self._start_records(claim), *other_records])
            except Fenced:
                self._forget()
            except KafkaError as error:
                self._forget()  # the next client ends the failed transaction
                if not error.retryable or time.monotonic() > deadline:
                    raise
            else:
                self._claimed = claim
                return

    def close(self) -> None:
        """Close the Kafka clients."""
        self._jobs.close()
        self._forget()

    def require_newest(self) -> None:
        """Raise Fenced unless this driver's claim is the newest one."""
        require_newest_driver(self._jobs, self._job, self._name)

    def _start_records(self, claim: DriverClaim) -> list[TopicRecord]:
        """Return the records of the start of a generation, if the newest claim, of any process, is of another one."""
        if claim.deployment is None or _generation(claim) == _generation(self._claimed):
            return []
        newest = self._jobs.last_claim(self._job)
        report = self._jobs.find_report(self._job, newest.run) if newest is not None else None
        self._jobs.close()
        if _generation(claim) == _generation(newest):
            return []
        start = GenerationStart(
            generation=claim.deployment.generation,
            job=self._job,
            run=claim.run,
            topic=claim.topic,
            topic_id=claim.topic_id,
            offsets=claim.offsets,
            started_ms=now_ms(),
        )
        records = [start_record(claim.deployment.spec.name, start)]
        before = newest.deployment if newest is not None else None
        if newest is not None and before is not None and report is not None and report.result.get("records_in"):
            records.append(report_record(before.spec.name, before.generation, newest.topic_id, report))
        return records

    def _reopen(self) -> ClaimProducer:
        self.require_newest()  # first, to avoid fencing a newer driver
        driver = ClaimProducer(self._config, self._job)
        try:
            self.require_newest()
        except WasmlineError:
            driver.close()  # it may have fenced a newer driver, and must not write
            raise
        self._jobs.close()  # an idle client would buffer new records until the next read
        self._driver = driver
        return driver

    def _forget(self) -> None:
        if self._driver is not None:
            self._driver.close()
            self._driver = None


def require_newest_driver(jobs: JobTopic, job: str, driver: str) -> DriverClaim:
    """Return the newest claim of a job. Raises Fenced unless it is a driver's."""
    newest = jobs.last_claim(job)
    if newest is None or newest.driver != driver:
        raise fenced_error(job)
    return newest


def _generation(claim: DriverClaim | None) -> tuple[str, int, str, bool] | None:
    """Return what a claim begins to run: transform, generation, topic, and whether the release has a history.

    None where no transform runs.
    """
    if claim is None or claim.deployment is None:
        return None
    deployment = claim.deployment
    return deployment.spec.name, deployment.generation, claim.topic_id, deployment.module_offsets is not None


def fenced_error(job: str) -> Fenced:
    """Return the error of a driver whose job another one has claimed."""
    return Fenced(f"a newer driver claimed job {job}; this one ends", job=job)
