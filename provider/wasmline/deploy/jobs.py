"""Jobs as they stand in their control topic: what is wanted, who drives, what each batch ran, how the run stands.

Keys, for a job named ``j``: ``j`` holds the JobOrder, ``j/batch`` the last BatchClaim, ``j/withdrawn`` the last
Withdrawal, ``j/report/r`` the last JobReport of run ``r``. The reports of a job's last two runs are kept.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from wasmline.deploy import topics
from wasmline.deploy.spec import Deployment
from wasmline.documents import decode, encode
from wasmline.errors import Conflict, Fenced, JobNotFound, KafkaError
from wasmline.jobs import JobReport, JobSpec
from wasmline.kafka import CompactedTopic, KafkaConfig, RecordWriter, TransactionalWriter


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOrder:
    """What the orchestrator wants of a job."""

    spec: JobSpec
    wanted: Literal["running", "stopped"]
    spec_version: Literal[1] = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchClaim:
    """One micro-batch or lease, recorded before it runs, so that a replay of the batch runs the same generation.

    ``batch_id`` -1 is the driver's claim of the job, made before its query starts. ``checkpoint`` names the series that
    the batch ids count in, and ``mode`` who counts: the other mode goes on from the group's progress. ``driver`` tells
    the drivers of one run apart where several processes claim for one. ``deployment`` is None where a function runs.
    So many ``partitions`` of the input have their progress in the group, which must have it from then on.
    """

    run: str
    mode: Literal["microbatch", "parallel"] = "microbatch"
    delivery: Literal["at_least_once", "exactly_once"] = "at_least_once"
    driver: str = ""
    partitions: int = 0
    checkpoint: str
    batch_id: int
    deployment: Deployment | None
    spec_version: Literal[1] = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Withdrawal:
    """The end of a driver's leases up to number ``epoch``, before their time: the next one begins at once."""

    driver: str
    epoch: int
    spec_version: Literal[1] = 1


class JobLog:
    """The orchestrator's side of the job topic."""

    def __init__(self, config: KafkaConfig) -> None:
        topics.ensure(config)
        self._topic = CompactedTopic(config, topics.JOBS)
        self._writer = RecordWriter(config)

    def submit(self, spec: JobSpec) -> JobOrder:
        """Order a run. The order stands before anything is started, so that whoever finds it can take the run up."""
        return self._order(spec.job, lambda _: JobOrder(spec=spec, wanted="running"))

    def stop(self, job: str, run: str) -> None:
        """Ask ``run`` to end at its next safe point. A run that was replaced by a newer one is left alone."""

        def stopped(current: JobOrder | None) -> JobOrder:
            standing = self._known(job, current)
            return replace(standing, wanted="stopped") if standing.spec.run == run else standing

        self._order(job, stopped)

    def order(self, job: str) -> JobOrder:
        """Return what is wanted of ``job`` as of now, or raise JobNotFound."""
        data = self._topic.read().get(job.encode())
        return self._known(job, decode(JobOrder, data) if data else None)

    def orders(self) -> list[JobOrder]:
        """Return what is wanted of every job as of now."""
        return [decode(JobOrder, value) for key, value in sorted(self._topic.read().items()) if b"/" not in key]

    def last_batch(self, job: str) -> BatchClaim | None:
        """Return the newest batch that a driver of ``job`` began, as of now."""
        data = self._topic.read().get(f"{job}/batch".encode())
        return decode(BatchClaim, data) if data else None

    def withdraw(self, job: str) -> None:
        """End the lease that ``job`` runs in parallel mode, if it does; its driver begins the next one."""
        claim = self.last_batch(job)
        if claim is not None:
            self.write_withdrawal(job, Withdrawal(driver=claim.driver, epoch=claim.batch_id))

    def write_withdrawal(self, job: str, withdrawal: Withdrawal) -> None:
        """Write ``withdrawal``; returns when every in-sync replica has it."""
        self._writer.write(topics.JOBS, [(f"{job}/withdrawn".encode(), encode(withdrawal), [], None)])

    def report(self, job: str, run: str) -> JobReport | None:
        """Return the last report of ``run``, or None while it has not reported."""
        data = self._topic.read().get(f"{job}/report/{run}".encode())
        return decode(JobReport, data) if data else None

    def write_report(self, report: JobReport) -> None:
        """Write how a run stands; returns when every in-sync replica has it."""
        self._writer.write(topics.JOBS, [(f"{report.job}/report/{report.run}".encode(), encode(report), [], None)])

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
                written |= dict.fromkeys(stale)
            return written

        self._topic.compare_and_set(f"wasmline.order.{job}", decide)
        return made[-1]

    @staticmethod
    def _known(job: str, order: JobOrder | None) -> JobOrder:
        if order is None:
            raise JobNotFound(f"no job {job!r} was ever submitted to this cluster", job=job)
        return order


class JobDriver:
    """The driver's side: the claim that makes it the one live driver of its job.

    Its transactional.id is a function of the job's name, so that a newer driver fences the older one, which learns it
    at its next claim: every claim is a real record in a transaction of that id.
    """

    def __init__(self, config: KafkaConfig, job: str) -> None:
        self._job = job
        self._writer = TransactionalWriter(config, topics.JOBS, f"wasmline.job.{job}")

    def claim(self, claim: BatchClaim) -> None:
        """Record ``claim`` durably. Raises Fenced when a newer driver has claimed the job."""
        try:
            self._writer.write({f"{self._job}/batch".encode(): encode(claim)})
        except Conflict as conflict:
            raise _fenced(self._job) from conflict

    def close(self) -> None:
        """Close the Kafka client."""
        self._writer.close()


class ClaimKeeper:
    """Claims further what another process of the same driver has claimed.

    Who takes a job over is decided by the newest claim, and not by who fenced whom: a process of an older driver may
    come late to its first claim, and fence those of the newer one, which then goes on.
    """

    def __init__(self, config: KafkaConfig, job: str, driver: str) -> None:
        self._config = config
        self._job = job
        self._name = driver
        self._jobs = JobLog(config)
        self._driver: JobDriver | None = None

    def claim(self, claim: BatchClaim) -> None:
        """Record ``claim`` durably. Raises Fenced when another driver has claimed the job."""
        while True:
            if self._driver is None:
                self._refuse_others()  # first: it would be fenced in vain
                self._driver = JobDriver(self._config, self._job)
                self._refuse_others()
                self._jobs.close()  # or its client would keep whatever is written until somebody reads again
            try:
                self._driver.claim(claim)
            except Fenced:
                self._forget()
            except KafkaError:
                self._forget()  # a transaction that failed is left to the next client to end
                raise
            else:
                return

    def close(self) -> None:
        """Close the Kafka clients."""
        self._jobs.close()
        self._forget()

    def _refuse_others(self) -> None:
        newest = self._jobs.last_batch(self._job)
        if newest is None or newest.driver != self._name:
            raise _fenced(self._job)

    def _forget(self) -> None:
        if self._driver is not None:
            self._driver.close()
            self._driver = None


def _fenced(job: str) -> Fenced:
    return Fenced(f"a newer driver claimed job {job}; this one ends", job=job)
