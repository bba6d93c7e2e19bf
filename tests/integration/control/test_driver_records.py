"""Reports and withdrawals of the drivers of a job on a real broker: an older driver's are refused."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from typing import Any

import pytest

from wasmline.control import (
    ClaimProducer,
    ClaimWriter,
    DriverClaim,
    DriverRecords,
    JobTopic,
    LeaseWithdrawal,
    withdraw_lease,
)
from wasmline.control.control_topics import JOBS
from wasmline.control.job_keys import withdrawal_key
from wasmline.control.job_topic import TAKEOVER_ATTEMPTS, require_newest_driver
from wasmline.documents import decode
from wasmline.errors import BrokerUnavailable, Conflict, Fenced, ProducerIdExpired
from wasmline.job_specs import JobReport, JobState
from wasmline.kafka import KafkaConfig, TransactionalWriter, read_to_end
from wasmline.testing.kafka import RunningKafka

MODULE = "wasmline.control.lease_withdrawals.require_newest_driver"


class Driver:
    """A driver of a job, which claims it with its records' id opened, as drivers do."""

    def __init__(self, config: KafkaConfig, job: str, clients: ExitStack) -> None:
        self.config, self.job, self.name = config, job, uuid.uuid4().hex
        self.jobs = clients.enter_context(closing(JobTopic(config)))
        self.records = clients.enter_context(closing(DriverRecords(config, job, self.name, self.jobs)))
        self._claims = clients.enter_context(closing(ClaimWriter(config, job, self.name)))

    def take_over(self) -> None:
        def claim(last: DriverClaim | None) -> DriverClaim:
            self.records.open()
            return self._claim(-1)

        self._claims.take_over(claim)
        self.records.open()

    def claim_lease(self, epoch: int) -> None:
        self._claims.claim(self._claim(epoch))

    def _claim(self, epoch: int) -> DriverClaim:
        return DriverClaim(run="r", driver=self.name, checkpoint="c", batch_id=epoch, deployment=None)

    def report(self, message: str) -> None:
        self.records.write_report(JobReport.now(self.job, "r", JobState.RUNNING, message))

    def withdraw_by_task(self, epoch: int) -> None:
        withdraw_lease(self.config, self.job, LeaseWithdrawal(driver=self.name, epoch=epoch))

    def withdrawn(self) -> list[tuple[str, int]]:
        """Return driver and epoch of each withdrawal that was written, also of those that were replaced."""
        values = [each.value() for each in read_to_end(self.config, JOBS) if each.key() == withdrawal_key(self.job)]
        found = [decode(LeaseWithdrawal, value or b"") for value in values]
        return [(each.driver, each.epoch) for each in found]

    def last_message(self) -> str:
        report = self.jobs.report(self.job, "r")
        return report.message if report is not None else ""


NO_ANSWER = BrokerUnavailable("no answer", bootstrap_servers="b:1")


def fail_writes(monkeypatch: pytest.MonkeyPatch, *errors: Exception) -> list[Exception]:
    """Let the next writes fail, the first with the last error; return the errors that are left."""
    write, failures = TransactionalWriter.write, [*errors]

    def unavailable(writer: TransactionalWriter, *records: Any) -> None:
        if failures:
            raise failures.pop()
        write(writer, *records)

    monkeypatch.setattr(TransactionalWriter, "write", unavailable)
    return failures


@pytest.fixture
def drivers(kafka: RunningKafka) -> Iterator[tuple[Driver, Driver]]:
    with ExitStack() as clients:
        job = f"job-{uuid.uuid4().hex[:8]}"
        yield Driver(kafka.config, job, clients), Driver(kafka.config, job, clients)


def test_after_a_newer_driver_s_claim_the_cluster_refuses_what_the_older_one_writes(
    drivers: tuple[Driver, Driver],
) -> None:
    older, newer = drivers
    older.take_over()
    older.report("older")
    assert newer.last_message() == "older"
    newer.take_over()
    newer.report("newer")
    with pytest.raises(Fenced):
        older.report("late")
    with pytest.raises(Fenced):
        older.records.write_withdrawal(LeaseWithdrawal(driver=older.name, epoch=1))
    assert newer.last_message() == "newer"


def test_tasks_withdraw_leases_of_the_driver_with_the_newest_claim_only(drivers: tuple[Driver, Driver]) -> None:
    older, newer = drivers
    older.take_over()
    older.withdraw_by_task(1)
    newer.take_over()
    older.withdraw_by_task(2)
    newer.withdraw_by_task(3)
    assert newer.withdrawn() == [(older.name, 1), (newer.name, 3)]


def test_a_withdrawal_of_a_task_is_refused_if_a_newer_driver_claims_before_it_is_written(
    drivers: tuple[Driver, Driver], monkeypatch: pytest.MonkeyPatch
) -> None:
    older, newer = drivers
    older.take_over()

    def overtaken(jobs: JobTopic, job: str, driver: str) -> DriverClaim:
        newest = require_newest_driver(jobs, job, driver)
        monkeypatch.undo()
        newer.take_over()
        return newest

    def checked(jobs: JobTopic, job: str, driver: str) -> DriverClaim:
        monkeypatch.setattr(MODULE, overtaken)  # from the second check on, once the task has opened its id
        return require_newest_driver(jobs, job, driver)

    monkeypatch.setattr(MODULE, checked)
    older.withdraw_by_task(1)
    assert newer.withdrawn() == []


def test_a_driver_takes_over_while_tasks_of_the_one_before_fence_it(
    drivers: tuple[Driver, Driver], monkeypatch: pytest.MonkeyPatch
) -> None:
    """More often than drivers may claim at one moment, and with a broker that does not answer in between."""
    older, newer = drivers
    older.take_over()
    claim, fences = ClaimProducer.claim, [*range(TAKEOVER_ATTEMPTS + 2)]

    def fenced(producer: ClaimProducer, *arguments: Any) -> None:
        if fences:
            if (number := fences.pop()) == 2:
                raise BrokerUnavailable("no answer", bootstrap_servers="b:1")
            older.withdraw_by_task(TAKEOVER_ATTEMPTS + 2 - number)
        claim(producer, *arguments)

    monkeypatch.setattr(ClaimProducer, "claim", fenced)
    newer.take_over()
    newer.claim_lease(0)
    assert {driver for driver, _ in newer.withdrawn()} == {older.name}


def test_a_driver_that_its_own_tasks_fence_goes_on(drivers: tuple[Driver, Driver]) -> None:
    driver, _ = drivers
    driver.take_over()
    for epoch in (0, 1):
        driver.claim_lease(epoch)
        driver.withdraw_by_task(epoch)
    assert driver.withdrawn() == [(driver.name, 0), (driver.name, 1)]


def test_a_task_of_an_older_driver_or_of_an_earlier_lease_does_not_fence_those_at_work(
    drivers: tuple[Driver, Driver], monkeypatch: pytest.MonkeyPatch
) -> None:
    older, newer = drivers
    older.take_over()
    newer.take_over()
    newer.claim_lease(5)
    opened: list[str] = []

    def refuse(config: KafkaConfig, topic: str, transactional_id: str) -> TransactionalWriter:
        opened.append(transactional_id)
        return TransactionalWriter(config, topic, transactional_id)

    monkeypatch.setattr("wasmline.control.lease_withdrawals.TransactionalWriter", refuse)
    older.withdraw_by_task(9)
    newer.withdraw_by_task(4)
    assert opened == []
    newer.withdraw_by_task(5)
    assert (len(opened), newer.withdrawn()) == (1, [(newer.name, 5)])


def test_a_withdrawal_that_got_no_answer_is_written_again(
    drivers: tuple[Driver, Driver], monkeypatch: pytest.MonkeyPatch
) -> None:
    driver, _ = drivers
    driver.take_over()
    fail_writes(monkeypatch, ProducerIdExpired("forgotten"), Conflict("fenced", name="", generation=None), NO_ANSWER)
    driver.withdraw_by_task(3)
    assert driver.withdrawn() == [(driver.name, 3)]


def test_of_tasks_that_withdraw_at_one_moment_each_is_heard(drivers: tuple[Driver, Driver]) -> None:
    driver, _ = drivers
    driver.take_over()
    with ThreadPoolExecutor(3) as tasks:
        for done in [tasks.submit(driver.withdraw_by_task, 7) for _ in range(3)]:
            done.result(60)
    assert set(driver.withdrawn()) == {(driver.name, 7)}


def test_the_driver_with_the_newest_claim_goes_on_after_another_one_that_never_claims(
    drivers: tuple[Driver, Driver],
) -> None:
    driver, other = drivers
    driver.take_over()
    other.records.open()
    driver.report("still at work")
    assert driver.last_message() == "still at work"


def test_an_older_driver_that_opens_between_a_newer_one_s_fence_and_its_claim_is_refused_all_the_same(
    drivers: tuple[Driver, Driver], monkeypatch: pytest.MonkeyPatch
) -> None:
    older, newer = drivers
    older.take_over()
    opened = newer.records.open

    def interrupted() -> None:
        opened()
        monkeypatch.undo()
        older.report("before the claim")

    monkeypatch.setattr(newer.records, "open", interrupted)
    newer.take_over()
    with pytest.raises(Fenced):
        older.report("late")
    assert newer.last_message() == "before the claim"


def test_a_report_that_got_no_answer_is_written_again_by_the_newest_driver_only(
    drivers: tuple[Driver, Driver], monkeypatch: pytest.MonkeyPatch
) -> None:
    driver, newer = drivers
    driver.take_over()
    failures = fail_writes(monkeypatch, NO_ANSWER, NO_ANSWER)
    driver.report("written")
    assert driver.last_message() == "written"
    newer.take_over()
    failures.append(NO_ANSWER)
    with pytest.raises(Fenced):
        driver.report("late")


def test_a_driver_that_could_not_check_its_claim_again_writes_nothing_before_it_has(
    drivers: tuple[Driver, Driver], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A newer driver claims after its first check, it opens another writer, and the second check fails."""
    older, newer = drivers
    older.take_over()
    older.records.close()
    last_claim, answers = JobTopic.last_claim, ["the first check", "no answer"]

    def unavailable(jobs: JobTopic, job: str, topic_id: str = "") -> DriverClaim | None:
        answer = answers.pop(0) if jobs is older.jobs and answers else ""
        if answer == "no answer":
            raise BrokerUnavailable(answer, bootstrap_servers="b:1")
        claim = last_claim(jobs, job, topic_id)
        if answer:
            newer.take_over()
        return claim

    monkeypatch.setattr(JobTopic, "last_claim", unavailable)
    with pytest.raises(Fenced):
        older.report("late")
    newer.report("at work")
    assert newer.last_message() == "at work"
