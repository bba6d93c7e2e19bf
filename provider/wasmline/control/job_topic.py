"""The job topic: orders, claims, withdrawals and reports of jobs.

Keys, for a job named ``j``: ``j`` holds the JobOrder, ``j/batch`` the last DriverClaim, ``j/batch/t`` the last one
about topic id ``t`` where the job has read another topic since, ``j/withdrawn`` the last LeaseWithdrawal,
``j/report/r`` the last JobReport of run ``r``. The reports of a job's last two runs are kept. The records of launchers
are in the same topic: see launcher_topic.
The fields: docs/protocols/control_topics.md.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal

from wasmline.control import control_topics
from wasmline.control.deployment_spec import Deployment
from wasmline.control.launch_request import LaunchRequest
from wasmline.control.launcher_topic import Launch, launch_key
from wasmline.documents import decode, encode
from wasmline.errors import Conflict, Fenced, JobNotFound, KafkaError, ProducerIdExpired
from wasmline.job_specs import JobReport, JobSpec
from wasmline.kafka import CompactedTopic, KafkaConfig, RecordWriter, TransactionalWriter

TAKEOVER_ATTEMPTS = 5
"""Attempts of a new driver to fence older drivers that claim at the same moment."""

CLAIM_TIMEOUT_S = 30.0
"""Seconds for which a claim is retried: longer than the replacement of a broker."""

ORDER_ATTEMPTS = 5
"""Attempts to write an order while other orders are written at the same moment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOrder:
    """The orchestrator's request for a job: its specification and its wanted state.

    launch: the launcher that starts the driver; None if the client that wrote the order does.
    """

    spec: JobSpec
    wanted: Literal["running", "stopped"]
    launch: LaunchRequest | None = None
    spec_version: Literal[1] = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverClaim:
    """One micro-batch or lease, recorded before it runs, so that a replay of the batch runs the same generation.

    batch_id: -1 is the driver's claim of the job, made before its query starts, or frees a batch that failed.
    checkpoint: the checkpoint of the batch ids. Empty in the first claim of a job: it has no progress yet.
    driver: identifies a driver among those of one run; several processes may claim for one.
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
    """Ends a driver's leases up to number ``epoch`` before they expire: the next round begins at once."""

    driver: str
    epoch: int
    spec_version: Literal[1] = 1


class JobTopic:
    """The orchestrator's side of the job topic."""

    def __init__(self, config: KafkaConfig) -> None:
        control_topics.ensure(config)
        self._topic = CompactedTopic(config, control_topics.JOBS)
        self._writer = RecordWriter(config)

    def submit(self, spec: JobSpec, launch: LaunchRequest | None = None) -> JobOrder:
        """Order a run. The order is written before anything starts, so that another client can adopt the run."""
        return self._order(spec.job, lambda _: JobOrder(spec=spec, wanted="running", launch=launch))

    def stop(self, job: str, run: str) -> None:
        """Request ``run`` to end at its next safe point. No effect on a run that was replaced by a newer one."""

        def stopped(current: JobOrder | None) -> JobOrder:
            order = self._known(job, current)
            return replace(order, wanted="stopped") if order.spec.run == run else order

        self._order(job, stopped)

    def order(self, job: str) -> JobOrder:
        """Return the current order of ``job``, or raise JobNotFound."""
        data = self._topic.read().get(job.encode())
        return self._known(job, decode(JobOrder, data) if data else None)

    def orders(self) -> list[JobOrder]:
        """Return the current order of every job."""
        return [decode(JobOrder, value) for key, value in sorted(self._topic.read().items()) if b"/" not in key]

    def last_batch(self, job: str, topic_id: str = "") -> DriverClaim | None:
        """Return the newest claim of a driver of ``job``.

        With ``topic_id`` it is the newest claim about that topic, or if there is none, the newest of all.
        """
        view, newest = self._topic.read(), f"{job}/batch"
        data = view.get(newest.encode())
        claim = decode(DriverClaim, data) if data else None
        if claim is not None and topic_id and claim.topic_id != topic_id:
            earlier = view.get(f"{newest}/{topic_id}".encode())
            return decode(DriverClaim, earlier) if earlier else claim
        return claim

    def withdraw(self, job: str) -> None:
        """End the current round of leases of ``job``, if any, in parallel mode; its driver begins the next one."""
        claim = self.last_batch(job)
        if claim is not None:
            self.write_withdrawal(job, LeaseWithdrawal(driver=claim.driver, epoch=claim.batch_id))

    def write_withdrawal(self, job: str, withdrawal: LeaseWithdrawal) -> None:
        """Write ``withdrawal``; returns when every in-sync replica has it."""
        self._writer.write(control_topics.JOBS, [(f"{job}/withdrawn".encode(), encode(withdrawal), [], None)])

    def report(self, job: str, run: str) -> JobReport | None:
        """Return the last report of ``run``, or None while it has not reported."""
        data = self._topic.read().get(f"{job}/report/{run}".encode())
        return decode(JobReport, data) if data else None

    def last_launch(self, job: str) -> Launch | None:
        """Return the last start of a driver of ``job`` by a launcher."""
        data = self._topic.read().get(launch_key(job))
        return decode(Launch, data) if data else None

    def write_report(self, report: JobReport) -> None:
        """Write the report of a run; returns when every in-sync replica has it."""
        self._writer.write(
            control_topics.JOBS, [(f"{report.job}/report/{report.run}".encode(), encode(report), [], None)]
        )

    def close(self) -> None:
        """Close the Kafka clients."""
        self._writer.close()
        self._topic.close()

    def _order(self, job: str, following: Callable[[JobOrder | None], JobOrder]) -> JobOrder:
        key = job.encode()
        made: list[JobOrder] = []

        def decide(view: dict[bytes, bytes]) -> dict[bytes, bytes | None]:
            current = decode(JobOrder, view[key]) if key in view else None
            made.append(following(current))
            written: dict[bytes, bytes | None] = {key: encode(made[-1])}
            if current is not None and current.spec.run != made[-1].spec.run:
                kept = {f"{job}/report/{order.spec.run}".encode() for order in (current, made[-1])}
                stale = {name for name in view if name.startswith(f"{job}/report/".encode())} - kept
                written |= dict.fromkeys(sorted(stale))
            return written

        for attempt in range(ORDER_ATTEMPTS):
            try:
                self._topic.compare_and_set(f"wasmline.order.{job}", decide)
                break
            except Conflict:
                if attempt == ORDER_ATTEMPTS - 1:
                    raise
        return made[-1]

    @staticmethod
    def _known(job: str, order: JobOrder | None) -> JobOrder:
        if order is None:
            raise JobNotFound(f"no job {job!r} was ever submitted to this cluster", job=job)
        return order


class JobDriver:
    """The driver's side: the claims that make it the only active driver of its job.

    The transactional.id is derived from the job's name, so that a newer driver fences the older one, which detects it
    at its next claim: every claim is a record in a transaction of that id.
    """

    def __init__(self, config: KafkaConfig, job: str) -> None:
        self._config = config
        self._job = job
        self._claimed: DriverClaim | None = None
        self._writer = self._open()

    def claim(self, claim: DriverClaim, earlier: DriverClaim | None = None) -> None:
        """Record ``claim`` durably. Raises Fenced when a newer driver has claimed the job.

        ``earlier`` is written with it as the last claim about another topic. The cluster expires the producer of a
        driver without claims for ``transactional.id.expiration.ms``, a week by default; a new producer replaces it
        if the newest claim is still this driver's.
        """
        records: dict[bytes, bytes | None] = {f"{self._job}/batch".encode(): encode(claim)}
        if earlier is not None:
            records[f"{self._job}/batch/{earlier.topic_id}".encode()] = encode(earlier)
        try:
            try:
                self._writer.write(records)
            except ProducerIdExpired:
                self._require_newest()  # first, to avoid fencing a newer driver
                self._writer.close()
                self._writer = self._open()
                self._require_newest()
                self._writer.write(records)
        except Conflict as conflict:
            raise _fenced(self._job) from conflict
        self._claimed = claim

    def close(self) -> None:
        """Close the Kafka client."""
        self._writer.close()

    def _open(self) -> TransactionalWriter:
        return TransactionalWriter(self._config, control_topics.JOBS, f"wasmline.job.{self._job}")

    def _require_newest(self) -> None:
        jobs = JobTopic(self._config)
        try:
            if jobs.last_batch(self._job) != self._claimed:
                raise _fenced(self._job)
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
        self._driver: JobDriver | None = None

    def take_over(self, claim: Callable[[DriverClaim | None], DriverClaim]) -> None:
        """Make this the job's driver, with the claim that ``claim`` derives from the newest one after fencing.

        Raises Fenced if other drivers claim at the same moment in each of TAKEOVER_ATTEMPTS attempts.
        """
        for attempt in range(TAKEOVER_ATTEMPTS):
            self._forget()
            self._driver = JobDriver(self._config, self._job)
            try:
                self._driver.claim(claim(self._jobs.last_batch(self._job)))
            except Fenced:
                if attempt == TAKEOVER_ATTEMPTS - 1:
                    raise
            else:
                self._jobs.close()
                return

    def claim(self, claim: DriverClaim, earlier: DriverClaim | None = None) -> None:
        """Record ``claim`` durably, and ``earlier`` as JobDriver does. Raises Fenced when another driver claimed.

        If the cluster rejects it, or the outcome is unknown, the claim is retried for CLAIM_TIMEOUT_S.
        """
        deadline = time.monotonic() + CLAIM_TIMEOUT_S
        while True:
            if self._driver is None:
                self.require_newest()  # first, to avoid fencing a newer driver
                self._driver = JobDriver(self._config, self._job)
                self.require_newest()
                self._jobs.close()  # an idle client would buffer new records until the next read
            try:
                self._driver.claim(claim, earlier)
            except Fenced:
                self._forget()
            except KafkaError as error:
                self._forget()  # the next client ends the failed transaction
                if not error.retryable or time.monotonic() > deadline:
                    raise
            else:
                return

    def close(self) -> None:
        """Close the Kafka clients."""
        self._jobs.close()
        self._forget()

    def require_newest(self) -> None:
        """Raise Fenced unless this driver's claim is the newest one."""
        newest = self._jobs.last_batch(self._job)
        if newest is None or newest.driver != self._name:
            raise _fenced(self._job)

    def _forget(self) -> None:
        if self._driver is not None:
            self._driver.close()
            self._driver = None


def _fenced(job: str) -> Fenced:
    return Fenced(f"a newer driver claimed job {job}; this one ends", job=job)
