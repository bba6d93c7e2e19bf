"""Withdraws leases for their tasks; what a task of an older driver writes is refused by the cluster."""

from __future__ import annotations

import logging
from contextlib import closing

from wasmline.control import control_topics
from wasmline.control.driver_records import FENCED_ATTEMPTS
from wasmline.control.job_keys import withdrawal_key
from wasmline.control.job_topic import JobTopic, LeaseWithdrawal, require_newest_driver
from wasmline.documents import encode
from wasmline.errors import Conflict, Fenced
from wasmline.kafka import KafkaConfig, TransactionalWriter

logger = logging.getLogger(__name__)


def fence_lease_tasks(config: KafkaConfig, job: str) -> None:
    """Fence the withdrawals of older drivers' tasks, for a driver that has claimed the job. Raises BrokerUnavailable.

    A task opens the transactional id once more, and reads the newest claim after that.
    """
    _writer(config, job).close()


def withdraw_lease(config: KafkaConfig, job: str, withdrawal: LeaseWithdrawal) -> None:
    """Write a withdrawal durably, unless another driver than its own has claimed the job. Raises BrokerUnavailable.

    All tasks of a job have one transactional id. One that another task has fenced tries again.
    """
    with closing(JobTopic(config)) as jobs:
        for _ in range(FENCED_ATTEMPTS):
            writer = _writer(config, job)
            try:
                require_newest_driver(jobs, job, withdrawal.driver)
                writer.write({withdrawal_key(job): encode(withdrawal)})
            except Conflict as conflict:
                logger.info("%s", conflict)
            except Fenced:
                return  # there is nothing to withdraw: the newer driver does not wait for this lease
            else:
                return
            finally:
                writer.close()
    logger.warning("lease %d of job %s is not withdrawn: other tasks were faster", withdrawal.epoch, job)


def _writer(config: KafkaConfig, job: str) -> TransactionalWriter:
    return TransactionalWriter(config, control_topics.JOBS, f"wasmline.job.{job}/leases")
