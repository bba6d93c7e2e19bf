"""Renews a job's committed offsets at intervals, so that they do not expire while nothing is read.

For a group without members a broker drops offsets committed longer ago than ``offsets.retention.minutes``, a week by
default, partition by partition.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Sequence

from wasmline.errors import WasmlineError
from wasmline.job_offsets.committed_offset_reader import GroupOffsets
from wasmline.job_offsets.microbatch_transactions import BatchTransaction
from wasmline.job_offsets.resume_offset_commit import in_transactions
from wasmline.job_specs import JobSpec
from wasmline.kafka import ConsumerGroups, KafkaConfig
from wasmline.topic_partitions import TopicPartition

logger = logging.getLogger(__name__)

MAX_RENEWAL_INTERVAL_S = 12 * 3_600.0
"""Maximum seconds between two renewals."""

RENEWALS_PER_RETENTION = 4
"""Minimum of renewals before the progress would expire."""

RETRY_INTERVAL_S = 600.0
"""Maximum seconds until a failed renewal is retried, and between two while it is not known how often one is needed."""


class OffsetRenewer:
    """Renews a streaming job's progress in its topic, for one driver. For one thread at a time."""

    def __init__(
        self,
        config: KafkaConfig,
        topic: str,
        *,
        keeps_maps: bool = True,
        is_renewed: bool = False,
        max_interval_s: float = MAX_RENEWAL_INTERVAL_S,
    ) -> None:
        """``is_renewed``: it was done just now. Otherwise the first is due at once: a driver may run a minute a day."""
        self._config = config
        self._topic = topic
        self._keeps_maps = keeps_maps
        self.interval_s = self._max_interval_s = max_interval_s
        """Seconds between two renewals, as of the last one after which it was known."""
        self._is_interval_known = False
        self._groups = ConsumerGroups(config)
        self._is_renewed = is_renewed
        self._due = 0.0

    def renew_if_due(
        self, job: JobSpec, partitions: Iterable[int], require_newest: Callable[[], None] | None = None
    ) -> None:
        """If a renewal is due, commit the committed progress of these partitions once more, unchanged.

        Call this while the partitions have no owner. With exactly-once, an owner would be fenced. A failed renewal is
        postponed, and logged. ``require_newest`` raises unless the caller has the job: for one that has not claimed
        anything just now.
        """
        if time.monotonic() < self._due:
            return
        try:
            if not self._is_renewed:
                renew_offsets(
                    self._config,
                    job,
                    self._topic,
                    partitions,
                    keeps_maps=self._keeps_maps,
                    require_newest=require_newest,
                )
        except WasmlineError as error:
            logger.warning("the renewal of the progress of job %s is postponed: %s", job.job, error)
            self._due = time.monotonic() + min(self.interval_s, RETRY_INTERVAL_S)
            return
        self._is_renewed = False
        try:
            self.interval_s, self._is_interval_known = self.interval(), True
        except WasmlineError as error:
            logger.warning("for how long %s keeps progress is not known: %s", self._config.bootstrap_servers, error)
        pause = self.interval_s if self._is_interval_known else min(self.interval_s, RETRY_INTERVAL_S)
        self._due = time.monotonic() + pause

    def interval(self) -> float:
        """Return the seconds between two renewals: as before where the brokers do not tell the retention."""
        retention = self._groups.retention_s()
        return self.interval_s if retention is None else min(self._max_interval_s, retention / RENEWALS_PER_RETENTION)


def renew_offsets(
    config: KafkaConfig,
    job: JobSpec,
    topic: str,
    partitions: Iterable[int],
    *,
    keeps_maps: bool = True,
    fences: bool | None = None,
    outputs: Collection[str] = (),
    require_newest: Callable[[], None] | None = None,
) -> None:
    """Commit the committed progress of these partitions once more, unchanged; join a group that had members briefly.

    ``ConsumerGroups.had_members`` explains which of the two a broker requires. ``fences``, by default set by the job's
    delivery: in transactions, so that open transactions of others are aborted and they commit nothing after it. Those
    that hang are ended then, on the topics ``outputs``, too. ``require_newest`` is that of ``GroupOffsets.committed``.
    Raises GroupInUse.
    """
    groups = ConsumerGroups(config)
    if groups.had_members(job.group):
        logger.warning(
            "a consumer has been subscribed with group %s, which stores the progress of job %s: give it a group of its "
            "own. That progress would expire despite renewals, and is kept by joining the group at intervals",
            job.group,
            job.job,
        )
        groups.require_no_members(job.group)
        groups.touch(job.group, topic)
    is_exact = job.stream is not None and job.stream.delivery == "exactly_once"
    if is_exact if fences is None else fences:
        in_transactions(config, job, topic, list(partitions), _commit_again, outputs)
    else:
        progress = GroupOffsets(config, job.group, job.transactional_id, keeps_maps=keeps_maps)
        try:
            progress.renew([TopicPartition(topic, each) for each in partitions], require_newest)
        finally:
            progress.close()


def _commit_again(_: Sequence[TopicPartition], transaction: BatchTransaction) -> None:
    if transaction.progress:
        transaction.commit(transaction.progress)
