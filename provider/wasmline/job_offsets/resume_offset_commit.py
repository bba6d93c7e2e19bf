"""Commits the offsets at which a run starts: creates missing ones, and resets those that differ from the plan."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from wasmline.consumer.backends.kafka import PRODUCER_SETTINGS
from wasmline.job_offsets.committed_offset_reader import progress_lost_error
from wasmline.job_offsets.microbatch_transactions import BatchTransaction, BatchTransactions
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
    first = True

    def commit(shard: Sequence[TopicPartition], transaction: BatchTransaction) -> None:
        # The first transaction has all of them: the next run would take partitions that are missing for added ones.
        nonlocal first
        committed = [TopicPartition(topic, each) for each in offsets] if first else shard
        require_newest()
        transaction.commit({each: CommittedOffset(offsets[each.partition]) for each in committed})
        first = False

    in_transactions(config, job, topic, offsets, commit)


def in_transactions(
    config: KafkaConfig,
    job: JobSpec,
    topic: str,
    partitions: Collection[int],
    do: Callable[[Sequence[TopicPartition], BatchTransaction], None],
    outputs: Collection[str] = (),
) -> None:
    """Call ``do`` with the partitions of each virtual shard and a transaction of theirs (see ``offset_transactions``).

    The partitions' earlier producers are fenced: their open transactions are aborted, and they commit nothing any more.
    """
    transactions = offset_transactions(config, job, topic, partitions, outputs)
    try:
        for shard in virtual_shards(partitions):
            sources = [TopicPartition(topic, each) for each in shard]
            with transactions.open(sources) as transaction:
                do(sources, transaction)
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
    stream, found = stream_of(job), dict(added)

    def missing(
        sources: Iterable[TopicPartition], committed: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Return the beginnings that the group does not have."""
        for source in sources:
            begin = added[source.partition]
            at = found[source.partition] = committed.get(source, begin)
            if stream.fail_on_moved_progress and at > begin:
                raise progress_lost_error(job.group, topic, source.partition, at, begin)
        return {each: added[each.partition] for each in sources if each not in committed}

    def begin(sources: Sequence[TopicPartition], transaction: BatchTransaction) -> None:
        if new := missing(sources, {each: at.offset for each, at in transaction.progress.items()}):
            require_newest()
            transaction.commit({each: CommittedOffset(offset) for each, offset in new.items()})

    if stream.delivery == "exactly_once":
        in_transactions(config, job, topic, added, begin)
        return found
    groups = ConsumerGroups(config)
    known = {TopicPartition(topic, each): at for each, at in groups.committed(job.group, topic).items()}
    if new := missing([TopicPartition(topic, each) for each in added], known):
        require_newest()
        groups.commit_offsets(job.group, new)
    return found
