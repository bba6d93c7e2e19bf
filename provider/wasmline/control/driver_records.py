"""Writes the records of a driver that are no claims: its reports, and its withdrawals of leases."""

from __future__ import annotations

import time

from wasmline.control import control_topics
from wasmline.control.job_keys import report_key, withdrawal_key
from wasmline.control.job_topic import (
    CLAIM_TIMEOUT_S,
    JobTopic,
    LeaseWithdrawal,
    fenced_error,
    require_newest_driver,
)
from wasmline.documents import encode
from wasmline.errors import Conflict, Fenced, KafkaError, ProducerIdExpired
from wasmline.job_specs import JobReport
from wasmline.kafka import KafkaConfig, TransactionalWriter

FENCED_ATTEMPTS = 5
"""Attempts of the driver with the newest claim to write while others that start fence it."""


class DriverRecords:
    """Writes for the driver with the newest claim of a job; what an older one writes is refused by the cluster.

    Its transactional id is not that of the claims, which other processes of a driver write as well; no job's name has
    a slash. A driver opens it before its first claim, to fence the older ones, and after it, to fence one that has
    opened it in between: none opens it again from then on. One that was fenced and has the newest claim goes on. For
    one thread, that of ``jobs``.
    """

    def __init__(self, config: KafkaConfig, job: str, driver: str, jobs: JobTopic) -> None:
        self._config = config
        self._job = job
        self._driver = driver
        self._jobs = jobs
        self._writer: TransactionalWriter | None = None

    def open(self) -> None:
        """Fence the other drivers of the job. Raises BrokerUnavailable."""
        self.close()
        self._writer = TransactionalWriter(self._config, control_topics.JOBS, f"wasmline.job.{self._job}/records")

    def write_report(self, report: JobReport) -> None:
        """Write a report durably. Raises Fenced if a newer driver has claimed the job, BrokerUnavailable."""
        self._write(report_key(report.job, report.run), encode(report))

    def write_withdrawal(self, withdrawal: LeaseWithdrawal) -> None:
        """Write a withdrawal of leases durably. Raises Fenced if a newer driver has claimed the job."""
        self._write(withdrawal_key(self._job), encode(withdrawal))

    def close(self) -> None:
        """Close the Kafka client."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _write(self, key: bytes, value: bytes) -> None:
        """Write a record; if the cluster rejects it, or the outcome is unknown, again for CLAIM_TIMEOUT_S."""
        deadline, attempts = time.monotonic() + CLAIM_TIMEOUT_S, FENCED_ATTEMPTS
        while True:
            try:
                if self._writer is None:
                    self._require_newest()  # first, to avoid fencing a newer driver
                    self.open()
                    self._require_newest()
                assert self._writer is not None
                self._writer.write({key: value})
            except (Conflict, ProducerIdExpired):
                self.close()
                attempts -= 1
                if not attempts:
                    raise fenced_error(self._job) from None
            except KafkaError as error:
                self.close()  # the next writer ends the failed transaction
                if not error.retryable or time.monotonic() > deadline:
                    raise
            except Fenced:
                self.close()
                raise
            else:
                return

    def _require_newest(self) -> None:
        require_newest_driver(self._jobs, self._job, self._driver)
