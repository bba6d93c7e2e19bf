"""Commits the offsets at which a run starts: creates missing ones, and resets those that differ from the plan."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from wasmline.consumer.backends.kafka import PRODUCER_SETTINGS
from wasmline.job_offsets.committed_offset_reader import progress_lost_error
from wasmline.job_offsets.microbatch_transactions import BatchTransactions
from wasmline.job_specs import JobSpec, stream_of
from wasmline.kafka import ConsumerGroups, KafkaConfig
from wasmline.topic_partitions import CommittedOffset, TopicPartition
from wasmline.transactional_ids import shared_id, virtual_shards


def offset_transactions(
    config: KafkaConfig, job: JobSpec, topic: str, partitions: Iterable[int], outputs: Collection[str] = ()
) -> BatchTransactions:
    """Return transactions of progress alone, with time-outs no longer than those of the job's own transactions.

    ``partitions`` are those of all of them. What hangs on the topics ``outputs`` is ended, too.

    Not every cluster allows the 15 minutes of a micro-batch, which the parallel mode does not need.
    """
    is_parallel = job.stream is not None and job.stream.mode == "parallel"
    brief = {name: PRODUCER_SETTINGS[name] for name in ("transaction.timeout.ms", "delivery.timeout.ms")}
    ids = {shared_id(job.transactional_id, TopicPartition(topic, each)) for each in partitions}
    return BatchTransactions(config, job.group, job.transactional_id, brief if is_parallel else {}, outputs, ids=ids)


def reset_offsets(
    config: KafkaConfig, job: JobSpec, topic: str, offsets: Mapping[int, int], require_newest: Callable[[], None]
) -> None:
    """Commit the offsets at which partitions continue, whatever the group has of them.

    With exactly-once, the partitions' earlier producers are fenced before, so that no other commit follows.
    ``require_newest`` raises if a newer driver has claimed the job: it is called last, because a driver that was
    suspended since its plan would undo the newer one's work.
    """
    if stream_of(job).delivery == "at_least_once":
        if offsets:
            require_newest()
            named = {TopicPartition(topic, each): offset for each, offset in offsets.items()}
            ConsumerGroups(config).commit_offsets(job.group, named)
        return
    transactions = offset_transactions(config, job, topic, offsets)
    try:
        # The first transaction has all of them: the next run would take partitions that are missing for added ones.
        committed: Collection[int] = offsets
        for shard in virtual_shards(offsets):
            progress = {TopicPartition(topic, each): CommittedOffset(offsets[each]) for each in committed or shard}
            with transactions.open([TopicPartition(topic, each) for each in shard]) as transaction:
                require_newest()
                transaction.commit(progress)
            committed = ()
    finally:
        transactions.close()


def fence(config: KafkaConfig, job: JobSpec, topic: str, partitions: Collection[int]) -> None:
    """Abort the open transactions of these partitions' earlier producers, which commit nothing any more."""
    transactions = offset_transactions(config, job, topic, partitions)
    try:
        for shard in virtual_shards(partitions):
            with transactions.open([TopicPartition(topic, each) for each in shard]):
                pass
    finally:
        transactions.close()


def begin_added_partitions(
    config: KafkaConfig, job: JobSpec, topic: str, added: Mapping[int, int], require_newest: Callable[[], None]
) -> dict[int, int]:
    """Return the offsets at which partitions continue that were added to a topic, once the group has them.

    ``added``: their beginning offsets. With exactly-once, earlier producers of their transactional ids are fenced
    before: an older topic of this name may have had such a partition. Raises ProgressLost if the group has gone beyond
    their beginning, unless the job goes on where the group is.
    """
    stream = stream_of(job)

    def missing(committed: Mapping[int, int]) -> dict[TopicPartition, int]:
        for partition, begin in added.items():
            if stream.fail_on_moved_progress and committed.get(partition, begin) > begin:
                raise progress_lost_error(job.group, topic, partition, committed[partition], begin)
        return {TopicPartition(topic, each): begin for each, begin in added.items() if each not in committed}

    if stream.delivery == "at_least_once":
        groups = ConsumerGroups(config)
        found = groups.committed(job.group, topic)
        if new := missing(found):
            require_newest()
            groups.commit_offsets(job.group, new)
        return {each: found.get(each, begin) for each, begin in added.items()}
    transactions = offset_transactions(config, job, topic, added)
    found = {}
    try:
        for shard in virtual_shards(added):
            with transactions.open([TopicPartition(topic, each) for each in shard]) as transaction:
                known = {each.partition: at.offset for each, at in transaction.progress.items()}
                new = {each: begin for each, begin in missing(known).items() if each.partition in shard}
                if new:
                    require_newest()
                    transaction.commit({each: CommittedOffset(begin) for each, begin in new.items()})
                found |= known
    finally:
        transactions.close()
    return {each: found.get(each, begin) for each, begin in added.items()}
