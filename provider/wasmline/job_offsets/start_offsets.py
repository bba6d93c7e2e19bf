"""Plans where a run of a streaming job goes on: one pure function of what earlier runs left.

What is known of the progress depends on the mode and the delivery of the run before. After micro-batches at least once
it is what that run claimed, in the job topic: nobody else writes there, and nothing expires. After every other run it
is what the job's group has committed, as far as that is where the run left it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from wasmline.control import DriverClaim
from wasmline.errors import InvalidJob
from wasmline.job_offsets.group_offsets import progress_lost
from wasmline.jobs import JobSpec, StreamSpec, stream_of
from wasmline.kafka import KafkaConfig, Topics
from wasmline.transactional_ids import VIRTUAL_SHARDS


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicState:
    """A topic at one moment: the first offset that is kept of each partition, and the one after the last."""

    name: str
    id: str
    begins: Mapping[int, int]
    ends: Mapping[int, int]

    @classmethod
    def now(cls, config: KafkaConfig, name: str) -> TopicState:
        """Ask the cluster. Raises TopicNotFound, BrokerUnavailable."""
        topics = Topics(config)
        return cls(
            name=name, id=topics.describe(name).id, begins=topics.beginning_offsets(name), ends=topics.end_offsets(name)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointState:
    """The newest batch that a checkpoint holds, and the newest that is committed there; -1 is none."""

    planned: int = -1
    committed: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """Where a run goes on.

    checkpoint: the run's own, or that of the run before, which has ended.
    offsets: the next offset of every partition.
    corrections: those of them that the group has to be told first: it has none, or others.
    replayed: the last batch, where this run may repeat some of it.
    late: above ``offsets``, where tasks of earlier runs may still bring the group.
    """

    checkpoint: str
    offsets: dict[int, int]
    corrections: dict[int, int] = field(default_factory=dict)
    replayed: DriverClaim | None = None
    late: dict[int, tuple[int, ...]] = field(default_factory=dict)


def plan_run(
    last: DriverClaim | None,
    checkpoint: CheckpointState,
    committed: Mapping[int, int],
    topic: TopicState,
    job: JobSpec,
    driver: str,
) -> RunPlan:
    """Return where a run of ``job`` goes on whose driver has this name.

    last: the newest claim of the job that is about the topic, or if there is none, its newest one. checkpoint: how the
    one stands that ``last`` names. committed: what the group has committed for the topic.

    A run goes on in the checkpoint of the last one where that has ended and was of the same mode, delivery, topic and
    storage, and where the checkpoint says nothing else of the progress. Otherwise it begins one of its own: no two
    drivers ever share one. Raises ProgressLost where what is known to be done cannot be told, or where the group's
    progress was moved; InvalidJob after a release whose transactional ids are others.
    """
    stream = stream_of(job)
    if last is not None and last.virtual_shards != VIRTUAL_SHARDS:
        raise InvalidJob(
            f"job {job.job} was run by a release that shares partitions out among {last.virtual_shards} transactional "
            f"ids, and this one has {VIRTUAL_SHARDS}, which would not fence those: run it as a job of another name"
        )
    folder = f"{job.storage}/checkpoints/{job.job}/{topic.id}"
    if stream.mode == "parallel":
        folder += "-parallel"
    if last is None or not last.checkpoint or not matches_topic(last, topic):
        offsets = _first(last, committed, topic, stream)
        # Where the group already is, it may have an offset map, and that is about the old topic.
        corrections = dict(offsets) if _is_anew(last, topic) else _differing(offsets, committed)
        return RunPlan(checkpoint=folder, offsets=offsets, corrections=corrections)
    if claim_is_authoritative(last):
        known = _claimed(last, checkpoint, committed, topic, job)
        offsets = known if stream.fail_on_moved_progress else {**known, **committed}
        is_moved = offsets != known
    else:
        offsets = _kept(last, committed, topic, job)
        moved = [each for each, offset in offsets.items() if not is_possible_offset(last, each, offset)]
        is_moved = bool(moved)
        if is_moved and stream.fail_on_moved_progress:
            raise progress_lost(job.group, topic.name, moved[0], offsets[moved[0]], *_left(last, moved[0]))
    is_shared = (
        last.ended
        and not is_moved
        and (last.mode, last.delivery) == (stream.mode, stream.delivery)
        and last.checkpoint.startswith(folder)
        and (stream.mode == "parallel" or _is_in_step(checkpoint, last))
    )
    is_recorded = stream.mode == last.mode == "microbatch" and last.batch_id >= 0
    is_replayed = is_recorded and (is_shared or overlaps(last, offsets))
    return RunPlan(
        checkpoint=last.checkpoint if is_shared else f"{folder}.{driver}",
        offsets=offsets,
        corrections=_differing(offsets, committed),
        replayed=last if is_replayed else None,
        late=late_commit_offsets(last, offsets),
    )


def matches_topic(claim: DriverClaim, topic: TopicState) -> bool:
    """Say whether a claim is about this very topic, and not about an older one of its name."""
    return topic.id == claim.topic_id if claim.topic_id else topic.id in claim.checkpoint


def claim_is_authoritative(claim: DriverClaim) -> bool:
    """Say whether the claim is the only record of how far its run came: micro-batches at least once."""
    return claim.mode == "microbatch" and claim.delivery == "at_least_once"


def is_possible_offset(claim: DriverClaim, partition: int, offset: int) -> bool:
    """Say whether the group's progress may be at this offset after a claim, without anybody else having moved it."""
    left = _left(claim, partition)
    return offset in left if partition in claim.left else not left or offset >= left[0]


def late_commit_offsets(claim: DriverClaim, offsets: Mapping[int, int]) -> dict[int, tuple[int, ...]]:
    """Return where tasks of the claimed batch, or of earlier ones, may still bring the group from these offsets.

    A fence ends what a task has begun, and not that Spark tries the task again. One that comes to progress beyond its
    part leaves that as it is.
    """
    above = {each: tuple(left for left in _left(claim, each) if left > at) for each, at in offsets.items()}
    return {each: its for each, its in above.items() if its}


def _left(claim: DriverClaim, partition: int) -> list[int]:
    """Return where a claim says that the progress of a partition may be, or where it is at least."""
    begin = claim.offsets.get(partition)
    late = [offset for offset in claim.late.get(partition, ()) if begin is None or offset > begin]
    return sorted({offset for offset in (begin, claim.left.get(partition), *late) if offset is not None})


def _is_in_step(checkpoint: CheckpointState, last: DriverClaim) -> bool:
    """Say whether a checkpoint has no batch that begins below the progress.

    At least once, what it has planned and not done is not done. Exactly once, some partitions of that may be, whose
    records may be removed by now.
    """
    if claim_is_authoritative(last):
        return checkpoint.planned >= 0
    return checkpoint.planned == checkpoint.committed >= max(0, last.batch_id)


def _first(
    last: DriverClaim | None, committed: Mapping[int, int], topic: TopicState, stream: StreamSpec
) -> dict[int, int]:
    """Return where the first run on a topic begins: where it is ordered to, or where the group is already."""
    if _is_anew(last, topic):
        return dict(topic.begins)  # what is committed was about the old one
    starts = topic.ends if stream.starting_offsets == "latest" else topic.begins
    if not committed or (stream.mode, stream.delivery) == ("microbatch", "at_least_once"):
        return dict(starts)
    return {**topic.begins, **committed}


def _claimed(
    last: DriverClaim, checkpoint: CheckpointState, committed: Mapping[int, int], topic: TopicState, job: JobSpec
) -> dict[int, int]:
    """Return the progress that the last run claimed; what it has not claimed is asked of the group."""
    is_done = last.batch_id >= 0 and checkpoint.committed >= last.batch_id
    known = {**committed, **(last.ends if is_done else last.offsets)}
    for partition in topic.begins if not last.offsets else range(last.partitions):
        if partition not in known:
            raise progress_lost(job.group, topic.name, partition, None)
    return {each: known.get(each, begin) for each, begin in topic.begins.items()}


def _kept(last: DriverClaim, committed: Mapping[int, int], topic: TopicState, job: JobSpec) -> dict[int, int]:
    """Return the progress that the group has. It has some for each partition that the last run knew."""
    for partition in {*range(last.partitions), *last.offsets}:
        if partition not in committed:
            raise progress_lost(job.group, topic.name, partition, None)
    return {each: committed.get(each, begin) for each, begin in topic.begins.items()}


def _is_anew(last: DriverClaim | None, topic: TopicState) -> bool:
    """Say whether a topic that is not the claimed one has its name: it was deleted and made anew."""
    return last is not None and _name(last) == topic.name


def _name(claim: DriverClaim) -> str:
    if claim.topic or claim.deployment is None:
        return claim.topic
    return claim.deployment.spec.input_topic


def _differing(offsets: Mapping[int, int], committed: Mapping[int, int]) -> dict[int, int]:
    return {each: offset for each, offset in offsets.items() if committed.get(each) != offset}


def overlaps(claim: DriverClaim, begins: Mapping[int, int]) -> bool:
    """Say whether a batch that begins at these offsets repeats some of the claimed one."""
    return any(begin < claim.ends.get(partition, 0) for partition, begin in begins.items())
