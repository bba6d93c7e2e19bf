"""The consumer group of a job as the keeper of its progress: what has to be there, and what to do where it is not."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from wasmline.consumer.backends.kafka import PRODUCER_SETTINGS, REQUEST_TIMEOUT_S
from wasmline.job_offsets.group_offsets import GroupOffsets, progress_lost
from wasmline.job_offsets.shard_transactions import BatchTransactions
from wasmline.jobs import JobSpec, stream_of
from wasmline.kafka import ConsumerGroups, KafkaConfig, Topics
from wasmline.records import CommittedOffset, TopicPartition
from wasmline.transactional_ids import virtual_shards


def stable_offsets(
    config: KafkaConfig,
    job: JobSpec,
    topic: str,
    partitions: Iterable[int],
    limit: float = REQUEST_TIMEOUT_S,
    *,
    keeps_maps: bool = False,
) -> dict[int, CommittedOffset]:
    """Return what a job's group has committed of a topic, once every transaction that holds some of it is decided.

    Raises BrokerUnavailable where one is open for ``limit`` seconds.
    """
    progress = GroupOffsets(config, job.group, job.transactional_id, keeps_maps=keeps_maps)
    try:
        found = progress.read([TopicPartition(topic, each) for each in partitions], limit)
    finally:
        progress.close()
    return {partition.partition: each for partition, each in found.items()}


def offset_transactions(config: KafkaConfig, job: JobSpec) -> BatchTransactions:
    """Return transactions of progress alone, with no longer time-outs than the job's own have.

    Not every cluster allows the quarter of an hour of a micro-batch, which the parallel mode does not ask for.
    """
    is_parallel = job.stream is not None and job.stream.mode == "parallel"
    brief = {name: PRODUCER_SETTINGS[name] for name in ("transaction.timeout.ms", "delivery.timeout.ms")}
    return BatchTransactions(config, job.group, job.transactional_id, brief if is_parallel else {})


def reset_offsets(
    config: KafkaConfig, job: JobSpec, topic: str, offsets: Mapping[int, int], refuse_others: Callable[[], None]
) -> None:
    """Commit where partitions go on, whatever the group has of them.

    With exactly-once, whoever works on them is fenced before, so that nobody commits anything else after it.
    ``refuse_others`` raises where a newer driver has claimed the job: it is asked last, because a driver that stood
    still since its plan would undo what the newer one has done.
    """
    if stream_of(job).delivery == "at_least_once":
        if offsets:
            refuse_others()
            named = {TopicPartition(topic, each): offset for each, offset in offsets.items()}
            ConsumerGroups(config).commit_offsets(job.group, named)
        return
    transactions = offset_transactions(config, job)
    try:
        for shard in virtual_shards(offsets):
            progress = {TopicPartition(topic, each): CommittedOffset(offsets[each]) for each in shard}
            with transactions.open(list(progress)) as transaction:
                refuse_others()
                transaction.commit(progress)
    finally:
        transactions.close()


def ensure_committed_offsets(config: KafkaConfig, group: str, topic: str, *, known: int) -> dict[int, int]:
    """See to it that every partition of a topic has progress in the group, and return it.

    ``known`` partitions must have it. The others came later, and begin at their beginning. Raises ProgressLost.
    """
    groups = ConsumerGroups(config)
    committed = groups.committed(group, topic)
    for partition in range(known):
        if partition not in committed:
            raise progress_lost(group, topic, partition, None)
    starts = Topics(config).beginning_offsets(topic)
    if new := {TopicPartition(topic, each): at for each, at in starts.items() if each not in committed}:
        groups.commit_offsets(group, new)
    return starts | committed
