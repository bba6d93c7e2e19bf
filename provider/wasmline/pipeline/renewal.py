"""Progress that is committed again now and then, so that it is not forgotten while nothing is read.

Of a group without members a broker drops what was committed longer ago than ``offsets.retention.minutes``, a week by
default, partition by partition.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable

from wasmline.consumer.backend import virtual_shards
from wasmline.consumer.confluent.assigned import GroupProgress
from wasmline.consumer.confluent.batch_transactions import BatchTransactions
from wasmline.errors import WasmlineError
from wasmline.jobs import JobSpec
from wasmline.kafka import KafkaConfig
from wasmline.records import TopicPartition

logger = logging.getLogger(__name__)

FIRST = 3_600.0
"""Seconds from a driver's start to the first renewal."""

EVERY = 12 * 3_600.0
"""Seconds from one renewal to the next."""

AGAIN = 600.0
"""Seconds until one that failed is tried again."""


class Renewal:
    """Renews a streaming job's progress in its topic, for one driver. For one thread at a time."""

    def __init__(self, config: KafkaConfig, topic: str, *, keeps_maps: bool = True) -> None:
        self._config = config
        self._topic = topic
        self._keeps_maps = keeps_maps
        self._due = time.monotonic() + FIRST

    def keep(self, job: JobSpec, partitions: Iterable[int]) -> None:
        """If it is time, commit what is committed of these partitions once more, as it is.

        Call this while nobody works on them. With exactly-once, whoever does is fenced.
        """
        if time.monotonic() < self._due:
            return
        try:
            if job.stream is not None and job.stream.delivery == "exactly_once":
                self._transact(job, partitions)
            else:
                self._commit(job, partitions)
            self._due = time.monotonic() + EVERY
        except WasmlineError as error:
            logger.warning("the progress of job %s is renewed later, not now: %s", job.job, error)
            self._due = time.monotonic() + AGAIN

    def _transact(self, job: JobSpec, partitions: Iterable[int]) -> None:
        transactions = BatchTransactions(self._config, job.group, job.transactional_id, {})
        try:
            for shard in virtual_shards(partitions):
                with transactions.open(self._named(shard)) as transaction:
                    transaction.commit(transaction.progress)
        finally:
            transactions.close()

    def _commit(self, job: JobSpec, partitions: Iterable[int]) -> None:
        progress = GroupProgress(self._config, job.group, keeps_maps=self._keeps_maps)
        try:
            progress.renew(self._named(partitions))
        finally:
            progress.close()

    def _named(self, partitions: Iterable[int]) -> list[TopicPartition]:
        return [TopicPartition(self._topic, each) for each in partitions]
