"""Shows and sets the progress of a job that does not run: the same for every mode and delivery.

A run continues at the newest claim, the group's committed offsets, or both: ``resume_plan`` says when. So a change
claims the job, commits the group's offsets, and claims them as the progress; what a kill in between leaves is the
progress before or the one after, for the next run and for the next change.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace

from wasmline.clock import now_ms
from wasmline.control import (
    NO_CAUSE,
    ChangeCause,
    ClaimWriter,
    DeploymentTopic,
    DriverClaim,
    JobEvent,
    JobOrder,
    JobTopic,
    is_live,
    job_event_record,
    read_job_events,
)
from wasmline.errors import Fenced, InvalidJob, JobBusy, ProducerFenced, ProgressLost
from wasmline.job_offsets.committed_offset_reader import stable_offsets
from wasmline.job_offsets.offset_renewal import renew_offsets
from wasmline.job_offsets.resume_offset_commit import reset_offsets
from wasmline.job_offsets.resume_plan import (
    CheckpointState,
    TopicState,
    claim_is_authoritative,
    matches_topic,
    plan_run,
    takeover_claim,
)
from wasmline.job_specs import JobSpec, stream_of
from wasmline.kafka import ConsumerGroups, KafkaConfig
from wasmline.transactional_ids import VIRTUAL_SHARDS

DRIVER_PREFIX = "progress-"
"""The beginning of the drivers in claims of changes, which no driver of a run has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobProgress:
    """The progress of a job in its input topic.

    offsets: the next offset to read of each partition. After micro-batches at least once that were killed, it is the
        beginning of the last batch, which may be done. Empty where it is lost: ``problem`` says why.
    committed: the group's committed offsets, which others see.
    claim: the newest claim about the topic.
    """

    order: JobOrder
    topic: TopicState
    offsets: Mapping[int, int]
    committed: Mapping[int, int]
    claim: DriverClaim | None
    problem: str = ""


def read_progress(config: KafkaConfig, job: str) -> JobProgress:
    """Return the progress of a job.

    Raises JobNotFound, InvalidJob for a training, TopicNotFound, DeploymentNotFound, BrokerUnavailable.
    """
    with closing(JobTopic(config)) as jobs:
        order = jobs.order(job)
        topic = _input_topic(config, order.spec)
        return _progress(jobs, order, topic, ConsumerGroups(config).committed(order.spec.group, topic.name))


def set_progress(
    config: KafkaConfig,
    job: str,
    choose: Callable[[JobProgress], Mapping[int, int]],
    *,
    cause: ChangeCause = NO_CAUSE,
) -> JobProgress:
    """Set the next offset to read of the partitions that ``choose`` returns; the others keep their progress.

    Older drivers are fenced before. Where progress goes back, records are processed again, and what a run in parallel
    mode had finished above its progress as well; where it goes forward, records are skipped. Returns the progress that
    was set.

    A kill on the way leaves the progress before, or the one that was set; lost progress stays lost. The history has the
    change from the moment at which it may be in force.

    Raises JobBusy while the job has a driver, or gets one meanwhile: then it may have started at either progress;
    GroupInUse while others consume with the job's group; InvalidJob for an offset that the topic does not have, and
    where progress is lost or uncertain and not set for every partition; and what read_progress raises.
    """
    with closing(JobTopic(config)) as jobs:
        newest, order = jobs.last_claim(job), jobs.order(job)
        run = order.spec.run
        if is_live(jobs, job, run):
            raise JobBusy(f"run {run} of job {job} is live: wasmline stop {job}", job=job, run=run)
        ConsumerGroups(config).require_no_members(order.spec.group)
        driver = f"{DRIVER_PREFIX}{uuid.uuid4().hex}"
        busy = JobBusy(f"a driver of job {job} started meanwhile: stop it, and look at its progress", job=job, run=run)

        def takeover(last: DriverClaim | None) -> DriverClaim:
            is_own = last is not None and last.driver == driver  # an attempt whose answer was lost
            if not (is_own or last == newest) or jobs.order(job).spec != order.spec:
                raise busy
            return takeover_claim(order.spec, stream_of(order.spec), driver, last)

        with closing(ClaimWriter(config, job, driver)) as claims:
            try:
                claims.take_over(takeover)
                progress = _stable_progress(config, jobs, order, claims.require_newest)
                return _set(config, claims, driver, newest, progress, _checked(progress, choose(progress)), cause)
            except (Fenced, ProducerFenced) as error:  # the latter by a late process of an older driver, too
                raise busy from error


def complete_progress_change(config: KafkaConfig, made: JobEvent, *, cause: ChangeCause) -> Mapping[int, int]:
    """Return the offsets of a change that was begun; set them if it was killed on its way.

    It is left as it is if the job was started, or its progress set, since. Raises what set_progress raises.
    """
    last_set = [each for each in read_job_events(config, made.job) if each.action == "set progress"][-1]
    with closing(JobTopic(config)) as jobs:
        claim = jobs.last_claim(made.job)
    is_newest = claim is not None and claim.driver.startswith(DRIVER_PREFIX) and last_set == made
    if claim is None or not is_newest or claim.offsets == claim.left == made.offsets:
        return made.offsets
    return set_progress(config, made.job, lambda _: made.offsets, cause=cause).offsets


def _set(
    config: KafkaConfig,
    claims: ClaimWriter,
    driver: str,
    newest: DriverClaim | None,
    progress: JobProgress,
    chosen: Mapping[int, int],
    cause: ChangeCause,
) -> JobProgress:
    spec, topic = progress.order.spec, progress.topic
    wanted = {**progress.offsets, **chosen}
    # The group may lack a partition that was added, or have the offsets of an older topic of this name.
    unknown = {
        each: offset
        for each, offset in progress.offsets.items()
        if progress.claim is None or each not in progress.committed
    }
    committing = _committing(progress.order, progress.claim)
    reset_offsets(config, committing, topic.name, unknown, claims.require_newest)
    progress = replace(progress, committed={**progress.committed, **unknown})
    changed = _claim(progress, driver, wanted)
    earlier = newest if newest is not None and newest.topic_id and not matches_topic(newest, topic) else None
    event = JobEvent(
        action="set progress", job=spec.job, run=spec.run, changed_ms=now_ms(), cause=cause, offsets=wanted
    )
    claims.claim(changed, earlier, [job_event_record(event)])
    # A partition that stays where it is keeps its offset map.
    corrections = {each: offset for each, offset in wanted.items() if progress.committed.get(each) != offset}
    reset_offsets(config, committing, topic.name, corrections, claims.require_newest)
    final = replace(changed, offsets=wanted, left=wanted, late=_late(progress, wanted))
    claims.claim(final)
    return replace(progress, offsets=wanted, committed=wanted, claim=final, problem="")


def _stable_progress(
    config: KafkaConfig, jobs: JobTopic, order: JobOrder, require_newest: Callable[[], None]
) -> JobProgress:
    """Return the progress once no transaction of the fenced drivers can change it."""
    topic = _input_topic(config, order.spec)
    committing = _committing(order, jobs.last_claim(order.spec.job))
    if stream_of(committing).delivery == "exactly_once":
        renew_offsets(config, committing, topic.name, topic.begins, fences=True)
    found = stable_offsets(config, committing, topic.name, topic.begins, require_newest=require_newest)
    return _progress(jobs, order, topic, {each: committed.offset for each, committed in found.items()})


def _committing(order: JobOrder, last: DriverClaim | None) -> JobSpec:
    """Return the job, exactly once if its last run was: tasks of that may still commit in transactions."""
    stream = stream_of(order.spec)
    if last is not None and last.delivery == "exactly_once":
        stream = replace(stream, delivery="exactly_once")
    return replace(order.spec, stream=stream)


def _claim(progress: JobProgress, driver: str, wanted: Mapping[int, int]) -> DriverClaim:
    """Return the claim under which the group may be at the progress before, unless it was lost, or at the wanted one.

    Its checkpoint is a folder that does not exist, so that the next run begins its own.
    """
    last, spec, topic = progress.claim, progress.order.spec, progress.topic
    stream = stream_of(spec)
    mode, delivery = (last.mode, last.delivery) if last is not None else (stream.mode, stream.delivery)
    claim = DriverClaim(
        run=spec.run,
        mode=mode,
        delivery=delivery,
        driver=driver,
        partitions=len(wanted),
        topic=topic.name,
        topic_id=topic.id,
        offsets=dict(wanted if progress.problem else progress.offsets),
        left=dict(wanted),
        late=_late(progress, progress.offsets),
        checkpoint=f"{spec.storage}/checkpoints/{spec.job}/{topic.id}.{driver}",
        batch_id=-1,
        deployment=last.deployment if last is not None else None,
        virtual_shards=VIRTUAL_SHARDS,
    )
    return replace(claim, offsets=dict(wanted), left={}) if claim_is_authoritative(claim) else claim


def _late(progress: JobProgress, offsets: Mapping[int, int]) -> dict[int, tuple[int, ...]]:
    """Return the offsets above ``offsets`` that tasks of the last run may still commit; not the progress before."""
    last = progress.claim
    if last is None:
        return {}
    found = {}
    for each, offset in offsets.items():
        known = {last.left.get(each, -1), last.ends.get(each, -1), *last.late.get(each, ())}
        found[each] = tuple(sorted(at for at in known if at > offset and at != progress.offsets.get(each)))
    return {each: late for each, late in found.items() if late}


def _progress(jobs: JobTopic, order: JobOrder, topic: TopicState, committed: Mapping[int, int]) -> JobProgress:
    """Return where the next run would continue, as its driver plans it."""
    last = jobs.last_claim(order.spec.job, topic.id)
    offsets: Mapping[int, int] = {}
    problem = ""
    try:
        offsets = plan_run(last, CheckpointState(), committed, topic, order.spec, "next").offsets
    except ProgressLost as error:
        problem = str(error)
    return JobProgress(
        order=order,
        topic=topic,
        offsets=offsets,
        committed=committed,
        claim=last if last is not None and matches_topic(last, topic) else None,
        problem=problem,
    )


def _input_topic(config: KafkaConfig, spec: JobSpec) -> TopicState:
    stream = stream_of(spec)
    if stream.function is not None:
        return TopicState.now(config, stream.function.topic)
    with closing(DeploymentTopic(config)) as deployments:
        return TopicState.now(config, deployments.get(stream.transform).spec.input_topic)


def _checked(progress: JobProgress, chosen: Mapping[int, int]) -> Mapping[int, int]:
    topic = progress.topic
    for partition, offset in chosen.items():
        if partition not in topic.begins:
            raise InvalidJob(f"{topic.name} has no partition {partition}")
        if not topic.begins[partition] <= offset <= topic.ends[partition]:
            text = f"{topic.name}-{partition} has offsets {topic.begins[partition]} to {topic.ends[partition]}: "
            raise InvalidJob(f"{text}it cannot continue at {offset}")
    if set(chosen) != set(topic.begins) and (why := progress.problem or _uncertainty(progress.claim)):
        raise InvalidJob(f"the progress has to be set for every partition: {why}")
    return chosen


def _uncertainty(claim: DriverClaim | None) -> str:
    """Return why the progress of a partition that is not set would not be kept; "" if it is."""
    is_certain = claim is None or claim.ended or claim.batch_id < 0 or not claim_is_authoritative(claim)
    return "" if is_certain else "only the checkpoint of the last run knows whether its last batch is done"
