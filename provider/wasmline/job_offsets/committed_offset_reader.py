"""Reads the committed offsets of a job's group, which has no members, and reports lost ones."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial

from confluent_kafka import KafkaError

from wasmline.consumer.backends.kafka import PRODUCER_SETTINGS, REQUEST_TIMEOUT_S, stable_read
from wasmline.errors import BrokerUnavailable, HangingTransactionEnded, ProgressLost
from wasmline.job_specs import JobSpec
from wasmline.kafka import librdkafka_ctypes
from wasmline.kafka.committed_offset_store import LibrdkafkaOffsetStore, OffsetsOnlyStore
from wasmline.kafka.config import KafkaConfig
from wasmline.kafka.consumer_group_offsets import group_in_use_error
from wasmline.kafka.detached_consumer import detached_consumer, read_group
from wasmline.kafka.error_mapping import denied_errors, translate_errors
from wasmline.kafka.transactional_producer import abort_open_transactions
from wasmline.topic_partitions import CommittedOffset, TopicPartition
from wasmline.transactional_ids import shared_id


class GroupOffsets:
    """Reads the progress of a group without members, once every transaction that holds some of it is decided."""

    def __init__(self, config: KafkaConfig, group: str, prefix: str, *, keeps_maps: bool) -> None:
        """``prefix`` is that of the transactional ids under which the progress is written, all of them the caller's."""
        self._config = config
        self._group = group
        self._prefix = prefix
        self._denied = denied_errors(config.bootstrap_servers, group=group)
        self._offset_store = LibrdkafkaOffsetStore() if keeps_maps else OffsetsOnlyStore()
        with translate_errors(config.bootstrap_servers):
            self._reader = detached_consumer(config, group)

    def committed(
        self,
        partitions: Collection[TopicPartition],
        limit: float = REQUEST_TIMEOUT_S,
        require_newest: Callable[[], None] | None = None,
    ) -> dict[TopicPartition, int]:
        """Return the next offsets to read; partitions without a commit are absent.

        Raises BrokerUnavailable if open transactions are not decided within ``limit`` seconds; for a caller that gives
        ``require_newest``, which raises unless it has the job, they are aborted then: a driver of an earlier run may
        stand still in one, for up to 15 minutes.
        """
        return {partition: each.offset for partition, each in self.read(partitions, limit, require_newest).items()}

    def read(
        self,
        partitions: Collection[TopicPartition],
        limit: float = REQUEST_TIMEOUT_S,
        require_newest: Callable[[], None] | None = None,
    ) -> Mapping[TopicPartition, CommittedOffset]:
        """Return the result of ``committed``, with the maps."""
        began = time.monotonic()
        try:
            return self._read(partitions, limit)
        except HangingTransactionEnded:
            pass  # logged; this reader has no producer that the end has fenced
        except BrokerUnavailable:
            if require_newest is None or time.monotonic() - began < limit:
                raise
            require_newest()  # first, to avoid fencing a newer driver's tasks
            ids = sorted(self._ids(partitions))
            abort_open_transactions(self._config, ids, PRODUCER_SETTINGS, REQUEST_TIMEOUT_S)
        return self._read(partitions, limit)

    def renew(self, partitions: Collection[TopicPartition], require_newest: Callable[[], None] | None = None) -> None:
        """Commit the committed progress once more, unchanged. Raises GroupInUse, and what ``committed`` raises."""
        found = self.read(partitions, require_newest=require_newest)
        if require_newest is not None:
            require_newest()
        in_use = {KafkaError.UNKNOWN_MEMBER_ID: group_in_use_error(self._group)}
        with translate_errors(self._config.bootstrap_servers, {**in_use, **self._denied}):
            self._offset_store.commit(self._reader, found, REQUEST_TIMEOUT_S)

    def close(self) -> None:
        """Close the client."""
        librdkafka_ctypes.close(self._reader)

    def _read(self, partitions: Collection[TopicPartition], limit: float) -> Mapping[TopicPartition, CommittedOffset]:
        with translate_errors(self._config.bootstrap_servers, self._denied):
            committed = partial(self._offset_store.committed, self._reader, partitions)
            read = partial(read_group, self._reader, committed)
            return stable_read(self._config, self._group, self._ids(partitions), read, time.monotonic() + limit)

    def _ids(self, partitions: Collection[TopicPartition]) -> set[str]:
        return {shared_id(self._prefix, partition) for partition in partitions}


def stable_offsets(
    config: KafkaConfig,
    job: JobSpec,
    topic: str,
    partitions: Iterable[int],
    limit: float = REQUEST_TIMEOUT_S,
    *,
    keeps_maps: bool = False,
    require_newest: Callable[[], None] | None = None,
) -> dict[int, CommittedOffset]:
    """Return a job's committed progress of a topic, once every transaction that holds some of it is decided.

    Raises BrokerUnavailable; ``limit`` and ``require_newest`` are those of ``GroupOffsets.committed``.
    """
    progress = GroupOffsets(config, job.group, job.transactional_id, keeps_maps=keeps_maps)
    try:
        found = progress.read([TopicPartition(topic, each) for each in partitions], limit, require_newest)
    finally:
        progress.close()
    return {partition.partition: each for partition, each in found.items()}


def require_committed(
    group: str, found: Mapping[TopicPartition, int | None], least: Mapping[TopicPartition, int]
) -> None:
    """Raise ProgressLost where committed progress is gone, or below what the job had committed."""
    for (topic, partition), before in least.items():
        offset = found.get(TopicPartition(topic, partition))
        if offset is None or offset < before:
            raise progress_lost_error(group, topic, partition, offset, before)


def progress_lost_error(group: str, topic: str, partition: int, found: int | None, *before: int) -> ProgressLost:
    """Return the error of a job that ``found`` other progress than it made; None: no commit.

    ``before`` is the job's progress, if known: one offset, or one of two.
    """
    text = f"group {group} has {'nothing' if found is None else found} committed for {topic}-{partition}, "
    text += f"and the job got to {' or '.join(map(str, before))}" if before else "where the job has been before"
    text += (
        ". Its offsets were moved, deleted, or expired, so that going on would repeat or lose records. Set them to "
        "where the outputs end (kafka-consumer-groups --bootstrap-server HOST:PORT --execute --reset-offsets "
        f"--group {group} --topic {topic}:{partition} --to-offset {before[0] if len(before) == 1 else 'N'}). "
        "Records that parallel mode had finished above that offset run again. To go on where the group is, whatever "
        "the job has done, set fail_on_moved_progress to false for a run"
    )
    return ProgressLost(text, group=group, topic=topic, partition=partition, offset=found)
