"""Plans the offsets at which a run of a streaming job continues: one pure function of what earlier runs left.

The source of the progress depends on the mode and the delivery of the run before. After micro-batches at least once it
is that run's claim, in the job topic: no other process writes there, and nothing expires. After every other run it is
the committed progress of the job's group, provided the run left it there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from wasmline.control import DriverClaim
from wasmline.errors import InvalidJob
from wasmline.job_offsets.committed_offset_reader import progress_lost_error
from wasmline.job_specs import JobSpec, StreamSpec, stream_of
from wasmline.kafka import KafkaConfig, Topics
from wasmline.transactional_ids import VIRTUAL_SHARDS


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicState:
    """A topic at one moment: the beginning offset and the end offset of each partition."""

    name: str
    id: str
    begins: Mapping[int, int]
    ends: Mapping[int, int]

    @classmethod
    def now(cls, config: KafkaConfig, name: str) -> TopicState:
        """Read it from the cluster. Raises TopicNotFound, BrokerUnavailable."""
        topics = Topics(config)
        return cls(
            name=name, id=topics.describe(name).id, begins=topics.beginning_offsets(name), ends=topics.end_offsets(name)
        )

    def require_not_recreated(self, config: KafkaConfig) -> None:
        """Raise InvalidJob if the topic was recreated since. Raises TopicNotFound, BrokerUnavailable."""
        require_same_topic(self, Topics(config).describe(self.name).id)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointState:
    """The newest planned batch of a checkpoint, and its newest committed batch; -1: none."""

    planned: int = -1
    committed: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """Where a run continues.

    checkpoint: the run's own, or that of the run before, which has ended.
    offsets: the next offset of every partition.
    corrections: those of them to commit to the group first: it has none, or others.
    replayed: the last batch, if this run may repeat some of it.
    late: offsets above ``offsets`` to which tasks of earlier runs may still move the group.
    epoch: that of the last round of leases in the checkpoint; -1: none.
    """

    checkpoint: str
    offsets: dict[int, int]
    corrections: dict[int, int] = field(default_factory=dict)
    replayed: DriverClaim | None = None
    late: dict[int, tuple[int, ...]] = field(default_factory=dict)
    epoch: int = -1

    def truncated(self, ends: Mapping[int, int], checkpoint: str) -> RunPlan:
        """Return the plan where some logs end below the progress, or below what offset maps have as done.

        The run continues at their ends, without the maps, and in a checkpoint of its own.
        """
        offsets = {each: min(at, ends.get(each, at)) for each, at in self.offsets.items()}
        corrections = self.corrections | {each: offsets[each] for each in ends}
        return replace(self, checkpoint=checkpoint, offsets=offsets, corrections=corrections, replayed=None, epoch=-1)


def own_checkpoint(job: JobSpec, topic: TopicState, driver: str) -> str:
    """Return the checkpoint that no other driver has."""
    return f"{_checkpoints(job, topic)}.{driver}"


def _checkpoints(job: JobSpec, topic: TopicState) -> str:
    """Return what the checkpoints of a job's runs in a mode begin with, on this very topic."""
    folder = f"{job.storage}/checkpoints/{job.job}/{topic.id}"
    return f"{folder}-parallel" if stream_of(job).mode == "parallel" else folder


def plan_run(
    last: DriverClaim | None,
    checkpoint: CheckpointState,
    committed: Mapping[int, int],
    topic: TopicState,
    job: JobSpec,
    driver: str,
) -> RunPlan:
    """Return where a run of ``job`` with this driver continues.

    last: the newest claim of the job that is about the topic, or if there is none, its newest one. checkpoint: the
    state of the one that ``last`` names. committed: the group's committed offsets of the topic.

    A run continues in the checkpoint of the last one if that has ended and had the same mode, delivery, topic and
    storage, and the checkpoint does not contradict the progress. Otherwise it creates its own: no two drivers ever
    share one. Raises ProgressLost if the known progress cannot be determined, or if the group's progress was moved;
    InvalidJob after a release with other transactional ids.
    """
    stream = stream_of(job)
    if last is not None and last.virtual_shards != VIRTUAL_SHARDS:
        raise InvalidJob(
            f"job {job.job} was run by a release that divides partitions among {last.virtual_shards} transactional "
            f"ids, and this one has {VIRTUAL_SHARDS}, which would not fence those: run it as a job of another name"
        )
    folder = _checkpoints(job, topic)
    if last is None or not last.checkpoint or not matches_topic(last, topic):
        offsets = _first(last, committed, topic, stream)
        # The group may have an offset map even at the right offset, and that is about the old topic.
        corrections = dict(offsets) if _is_recreated(last, topic) else _differing(offsets, committed)
        return RunPlan(checkpoint=folder, offsets=offsets, corrections=corrections)
    if claim_is_authoritative(last):
        known = _claimed(last, checkpoint, committed, topic, job)
        offsets = known if stream.fail_on_moved_progress else {**known, **committed}
        is_moved = offsets != known
    else:
        offsets = _kept(last, committed, topic, job)
        moved = _moved(last, offsets, topic)
        is_moved = bool(moved)
        if stream.fail_on_moved_progress:
            for partition, left in moved.items():
                raise progress_lost_error(job.group, topic.name, partition, offsets[partition], *left)
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
        checkpoint=last.checkpoint if is_shared else own_checkpoint(job, topic, driver),
        offsets=offsets,
        corrections=_differing(offsets, committed),
        replayed=last if is_replayed else None,
        late=late_commit_offsets(last, offsets),
        epoch=last.batch_id if is_shared and stream.mode == "parallel" else -1,
    )


def takeover_claim(job: JobSpec, stream: StreamSpec, driver: str, last: DriverClaim | None) -> DriverClaim:
    """Return the claim that makes ``driver`` the job's driver and does not change the job's progress."""
    if last is not None:
        return replace(last, driver=driver, driver_run=job.run)
    return DriverClaim(
        run=job.run,
        mode=stream.mode,
        delivery=stream.delivery,
        driver=driver,
        checkpoint="",
        batch_id=-1,
        deployment=None,
        virtual_shards=VIRTUAL_SHARDS,
    )


def matches_topic(claim: DriverClaim, topic: TopicState) -> bool:
    """Return whether a claim is about this very topic, and not about an older one of its name."""
    return topic.id == claim.topic_id if claim.topic_id else topic.id in claim.checkpoint


def require_same_topic(topic: TopicState, topic_id: str) -> None:
    """Raise InvalidJob if the topic was replaced since: it has another id now."""
    if topic_id != topic.id:
        raise InvalidJob(f"{topic.name} was deleted and recreated while this run read it: run the job again")


def claim_is_authoritative(claim: DriverClaim) -> bool:
    """Return whether the claim is the only record of its run's progress: micro-batches at least once."""
    return claim.mode == "microbatch" and claim.delivery == "at_least_once"


def is_possible_offset(claim: DriverClaim, partition: int, offset: int) -> bool:
    """Return whether the group's progress may be at this offset after a claim without having been moved."""
    left = _left(claim, partition)
    return offset in left if partition in claim.left else not left or offset >= left[0]


def _moved(last: DriverClaim, offsets: Mapping[int, int], topic: TopicState) -> dict[int, list[int]]:
    """Return the partitions whose progress was moved since a claim, with where it was left, or its minimum.

    A partition that was added since is at its beginning, or below it where retention has removed records.
    """
    moved = {each: _left(last, each) for each, offset in offsets.items() if not is_possible_offset(last, each, offset)}
    for partition, offset in offsets.items():
        if not _is_claimed(last, partition) and offset > topic.begins[partition]:
            moved[partition] = [topic.begins[partition]]
    return moved


def _is_claimed(claim: DriverClaim, partition: int) -> bool:
    """Return whether the run of a claim knew a partition; a claim without any progress tells of none."""
    known = claim.offsets.keys() | claim.left.keys()
    return partition in known if known else partition < claim.partitions or not claim.partitions


def late_commit_offsets(claim: DriverClaim, offsets: Mapping[int, int]) -> dict[int, tuple[int, ...]]:
    """Return the offsets to which tasks of the claimed batch, or of earlier ones, may still move the group.

    A fence ends a task's transaction, but Spark may retry the task. A task that finds progress beyond its part leaves
    it unchanged.
    """
    above = {each: tuple(left for left in _left(claim, each) if left > at) for each, at in offsets.items()}
    return {each: its for each, its in above.items() if its}


def _left(claim: DriverClaim, partition: int) -> list[int]:
    """Return the offsets at which a claim allows the progress of a partition, or its minimum."""
    begin = claim.offsets.get(partition)
    late = [offset for offset in claim.late.get(partition, ()) if begin is None or offset > begin]
    return sorted({offset for offset in (begin, claim.left.get(partition), *late) if offset is not None})


def _is_in_step(checkpoint: CheckpointState, last: DriverClaim) -> bool:
    """Return whether a checkpoint has no batch that begins below the progress.

    At least once, a batch that is planned and not committed is not done. Exactly once, some of its partitions may be,
    and their records may be removed by now.
    """
    if claim_is_authoritative(last):
        return checkpoint.planned >= 0
    return checkpoint.planned == checkpoint.committed >= max(0, last.batch_id)


def _first(
    last: DriverClaim | None, committed: Mapping[int, int], topic: TopicState, stream: StreamSpec
) -> dict[int, int]:
    """Return where the first run on a topic begins: at the job's starting offsets, or at the group's progress."""
    if _is_recreated(last, topic):
        return dict(topic.begins)  # the committed offsets are about the old topic
    starts = topic.ends if stream.starting_offsets == "latest" else topic.begins
    if not committed or (stream.mode, stream.delivery) == ("microbatch", "at_least_once"):
        return dict(starts)
    return {**topic.begins, **committed}


def _claimed(
    last: DriverClaim, checkpoint: CheckpointState, committed: Mapping[int, int], topic: TopicState, job: JobSpec
) -> dict[int, int]:
    """Return the progress that the last run claimed; where it claimed none, the group's.

    A partition that was added since begins at its beginning, whatever others have committed for it.
    """
    is_done = last.batch_id >= 0 and checkpoint.committed >= last.batch_id
    known = {**(last.offsets or committed), **(last.ends if is_done else {})}
    if not last.offsets and (missing := topic.begins.keys() - known.keys()):
        raise progress_lost_error(job.group, topic.name, min(missing), None)
    return {each: known.get(each, begin) for each, begin in topic.begins.items()}


def _kept(last: DriverClaim, committed: Mapping[int, int], topic: TopicState, job: JobSpec) -> dict[int, int]:
    """Return the group's progress. Each partition that the last run knew must have some."""
    for partition in last.offsets or range(last.partitions):
        if partition not in committed:
            raise progress_lost_error(job.group, topic.name, partition, None)
    return {each: committed.get(each, begin) for each, begin in topic.begins.items()}


def _is_recreated(last: DriverClaim | None, topic: TopicState) -> bool:
    """Return whether the topic has the claimed name and another id: it was deleted and recreated."""
    return last is not None and _name(last) == topic.name


def _name(claim: DriverClaim) -> str:
    if claim.topic or claim.deployment is None:
        return claim.topic
    return claim.deployment.spec.input_topic


def _differing(offsets: Mapping[int, int], committed: Mapping[int, int]) -> dict[int, int]:
    return {each: offset for each, offset in offsets.items() if committed.get(each) != offset}


def overlaps(claim: DriverClaim, begins: Mapping[int, int]) -> bool:
    """Return whether a batch that begins at these offsets repeats some of the claimed one."""
    return any(begin < claim.ends.get(partition, 0) for partition, begin in begins.items())
