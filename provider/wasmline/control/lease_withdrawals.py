"""Withdraws leases for their tasks; none of a task of an older driver is written after a newer driver's claim."""

from __future__ import annotations

import logging
import random
import time
from contextlib import closing

from wasmline.control import control_topics
from wasmline.control.job_keys import claims_transactional_id, withdrawal_key
from wasmline.control.job_topic import JobTopic, LeaseWithdrawal, require_newest_driver
from wasmline.documents import encode
from wasmline.errors import Conflict, Fenced, KafkaError
from wasmline.kafka import KafkaConfig, TransactionalWriter

logger = logging.getLogger(__name__)

RETRY_DELAY_S = 0.5
"""Maximum seconds before a task that another writer has fenced tries again."""

WITHDRAWAL_TIMEOUT_S = 90.0
"""Seconds for which a withdrawal is retried: longer than a client's requests during the replacement of a broker."""


def withdraw_lease(config: KafkaConfig, job: str, withdrawal: LeaseWithdrawal) -> None:
    """Write a withdrawal durably, unless a newer driver, or a later lease of the same, has been claimed.

    It shares the transactional.id of the claims, so that no claim comes between the check and the withdrawal. A driver
    that is fenced by this, and has the newest claim, goes on. A task that another writer has fenced tries again, and so
    does one that a broker does not answer, for WITHDRAWAL_TIMEOUT_S. Raises Conflict and BrokerUnavailable.
    """
    deadline = time.monotonic() + WITHDRAWAL_TIMEOUT_S
    with closing(JobTopic(config)) as jobs:
        while True:
            try:
                if _is_needed(jobs, job, withdrawal):  # first, to avoid fencing a newer driver
                    _withdraw(config, jobs, job, withdrawal)
                return
            except (Conflict, KafkaError) as error:
                if not (error.retryable or isinstance(error, Conflict)) or time.monotonic() > deadline:
                    raise
                logger.info("the withdrawal of lease %d of job %s is tried again: %s", withdrawal.epoch, job, error)
                time.sleep(random.uniform(0, RETRY_DELAY_S))  # not in step with others


def _withdraw(config: KafkaConfig, jobs: JobTopic, job: str, withdrawal: LeaseWithdrawal) -> None:
    with closing(TransactionalWriter(config, control_topics.JOBS, claims_transactional_id(job))) as writer:
        if _is_needed(jobs, job, withdrawal):
            writer.write({withdrawal_key(job): encode(withdrawal)})


def _is_needed(jobs: JobTopic, job: str, withdrawal: LeaseWithdrawal) -> bool:
    """Return whether there is a lease to withdraw: no newer driver, and no later round, waits for it, and no task has
    withdrawn it."""
    try:
        newest = require_newest_driver(jobs, job, withdrawal.driver)
    except Fenced:
        return False
    last = jobs.last_withdrawal(job)
    is_withdrawn = last is not None and last.driver == withdrawal.driver and last.epoch >= withdrawal.epoch
    return newest.batch_id <= withdrawal.epoch and not is_withdrawn
