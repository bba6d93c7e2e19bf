"""Withdraws leases for their tasks; none of a task of an older driver is written after a newer driver's claim."""

from __future__ import annotations

import logging
import random
import time
from contextlib import closing

from wasmline.control import control_topics
from wasmline.control.job_keys import claims_transactional_id, withdrawal_key
from wasmline.control.job_topic import CLAIM_TIMEOUT_S, JobTopic, LeaseWithdrawal, require_newest_driver
from wasmline.documents import encode
from wasmline.errors import Conflict, Fenced, KafkaError
from wasmline.kafka import KafkaConfig, TransactionalWriter

logger = logging.getLogger(__name__)

RETRY_DELAY_S = 0.5
"""Maximum seconds before a task that another writer has fenced tries again."""


def withdraw_lease(config: KafkaConfig, job: str, withdrawal: LeaseWithdrawal) -> None:
    """Write a withdrawal durably, unless a newer driver, or a later lease of the same, has been claimed.

    It shares the transactional.id of the claims, so that no claim comes between the check and the withdrawal. A driver
    that is fenced by this, and has the newest claim, goes on. A task that another writer has fenced tries again, and so
    does one that a broker does not answer, for CLAIM_TIMEOUT_S. Raises Conflict and BrokerUnavailable.
    """
    deadline = time.monotonic() + CLAIM_TIMEOUT_S
    with closing(JobTopic(config)) as jobs:
        while _is_current(jobs, job, withdrawal):  # first, to avoid fencing a newer driver
            try:
                with closing(TransactionalWriter(config, control_topics.JOBS, claims_transactional_id(job))) as writer:
                    if _is_current(jobs, job, withdrawal):
                        writer.write({withdrawal_key(job): encode(withdrawal)})
                return
            except (Conflict, KafkaError) as error:
                if not (error.retryable or isinstance(error, Conflict)) or time.monotonic() > deadline:
                    raise
                logger.info("the withdrawal of lease %d of job %s is tried again: %s", withdrawal.epoch, job, error)
                time.sleep(random.uniform(0, RETRY_DELAY_S))  # not in step with others


def _is_current(jobs: JobTopic, job: str, withdrawal: LeaseWithdrawal) -> bool:
    """Return whether there is a lease to withdraw: no newer driver, and no later round, waits for it."""
    try:
        newest = require_newest_driver(jobs, job, withdrawal.driver)
    except Fenced:
        return False
    return newest.batch_id <= withdrawal.epoch
