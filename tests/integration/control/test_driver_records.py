"""Reports and withdrawals of the drivers of a job on a real broker: an older driver's are refused."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest

from wasmline.control import ClaimWriter, DriverClaim, DriverRecords, JobTopic, LeaseWithdrawal
from wasmline.errors import BrokerUnavailable, Fenced
from wasmline.job_specs import JobReport, JobState
from wasmline.kafka import KafkaConfig, TransactionalWriter
from wasmline.testing.kafka import RunningKafka


class Driver:
    """A driver of a job, which claims it with its records' id opened, as drivers do."""

    def __init__(self, config: KafkaConfig, job: str, clients: ExitStack) -> None:
        self.job, self.name = job, uuid.uuid4().hex
        self.jobs = clients.enter_context(closing(JobTopic(config)))
        self.records = clients.enter_context(closing(DriverRecords(config, job, self.name, self.jobs)))
        self._claims = clients.enter_context(closing(ClaimWriter(config, job, self.name)))

    def take_over(self) -> None:
        def claim(last: DriverClaim | None) -> DriverClaim:
            self.records.open()
            return DriverClaim(run="r", driver=self.name, checkpoint="c", batch_id=-1, deployment=None)

        self._claims.take_over(claim)

    def report(self, message: str) -> None:
        self.records.write_report(JobReport.now(self.job, "r", JobState.RUNNING, message))

    def last_message(self) -> str:
        report = self.jobs.report(self.job, "r")
        return report.message if report is not None else ""


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


def test_the_driver_with_the_newest_claim_goes_on_after_another_one_that_never_claims(
    drivers: tuple[Driver, Driver],
) -> None:
    driver, other = drivers
    driver.take_over()
    other.records.open()
    driver.report("still at work")
    assert driver.last_message() == "still at work"


def test_a_report_that_got_no_answer_is_an_error_and_the_next_one_is_written(
    drivers: tuple[Driver, Driver], monkeypatch: pytest.MonkeyPatch
) -> None:
    driver, _ = drivers
    driver.take_over()

    def unavailable(writer: TransactionalWriter, records: object) -> None:
        raise BrokerUnavailable("no answer", bootstrap_servers="b:1")

    with monkeypatch.context() as patch:
        patch.setattr(TransactionalWriter, "write", unavailable)
        with pytest.raises(BrokerUnavailable):
            driver.report("lost")
    driver.report("written")
    assert driver.last_message() == "written"
