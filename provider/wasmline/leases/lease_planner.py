"""Plans and claims rounds of leases in sequence, while a driver holds its job and the job is wanted. No Spark."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain

from wasmline.control import (
    CONTROL_TOPICS,
    ClaimWriter,
    Deployment,
    DriverClaim,
    JobControlState,
    left_offsets,
)
from wasmline.errors import DeploymentNotFound, WasmlineError
from wasmline.job_offsets.catch_up import CatchUpTarget
from wasmline.job_offsets.committed_offset_reader import GroupOffsets, progress_lost_error, require_committed
from wasmline.job_offsets.offset_renewal import MAX_RENEWAL_INTERVAL_S, OffsetRenewer
from wasmline.job_offsets.resume_offset_commit import begin_added_partitions
from wasmline.job_specs import JobSpec, StreamSpec, stream_of
from wasmline.kafka import ConsumerGroups, KafkaConfig, Topics, TopicTailer
from wasmline.kafka.committed_offset_store import require_tested_client
from wasmline.leases.lease import Lease, lease_name
from wasmline.pipeline.preflight import Preflight, require_input_topic
from wasmline.topic_partitions import TopicPartition
from wasmline.transactional_ids import VIRTUAL_SHARDS, virtual_shards

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRound:
    """One round of leases, in the form that a later driver restores: it follows another, or none.

    control: the next offsets of the control topics. progress: the next offsets of the group, by partition.
    """

    epoch: int = 0
    generation: int = 0
    tasks: int = 0
    control: dict[str, int] = field(default_factory=dict)
    progress: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannerConfig:
    """The job and the driver whose leases are planned, and their limits.

    driver: the driver's name in its claim. offsets: the group's progress when the run was planned, of every partition
    that the topic had. slots: how many tasks can run at once, until the driver sets another limit. bounds: begin and
    end of the topic's partitions, for a job that ends when it has caught up. keeps_maps: whether the cluster stores
    offset maps. client: the release of confluent-kafka with which the driver has tested that. is_renewed: whether the
    driver has renewed the group's progress just now. late: see DriverClaim. epoch: that of the checkpoint's last round.
    """

    job: str
    run: str
    driver: str
    checkpoint: str
    topic: str
    topic_id: str = ""
    offsets: dict[int, int] = field(default_factory=dict)
    slots: int
    bounds: dict[int, tuple[int, int]] | None = None
    keeps_maps: bool = True
    client: str = ""
    is_renewed: bool = False
    late: dict[int, tuple[int, ...]] = field(default_factory=dict)
    epoch: int = 0


class LeasePlanner:
    """Plans the leases of one driver. For one thread; close it. It connects to the cluster in ``next``."""

    def __init__(
        self,
        config: KafkaConfig,
        planned: PlannerConfig,
        transform: str,
        *,
        max_renewal_interval_s: float = MAX_RENEWAL_INTERVAL_S,
    ) -> None:
        self._config = config
        self._planned = planned
        self._control = JobControlState(planned.job, transform)
        self._tailer = TopicTailer(config, CONTROL_TOPICS)
        self._topics = Topics(config)
        self._groups = ConsumerGroups(config)
        self._progress: GroupOffsets | None = None
        self._renewer = OffsetRenewer(
            config,
            planned.topic,
            keeps_maps=planned.keeps_maps,
            is_renewed=planned.is_renewed,
            max_interval_s=max_renewal_interval_s,
        )
        self._target: CatchUpTarget | None = None
        if planned.bounds is not None:
            bounds = {TopicPartition(planned.topic, each): found for each, found in planned.bounds.items()}
            self._target = CatchUpTarget(config, bounds)
        self._preflight = Preflight(config, load=None)
        self._newest: tuple[LeaseRound, JobSpec, Deployment | None] | None = None
        self._claims: ClaimWriter | None = None

    def next(self, last: LeaseRound) -> LeaseRound:
        """Return the round that follows ``last``, after claiming it, or ``last`` while there is nothing to do.

        That is so once a stop is wanted or all is done, while the deployment or the job is paused, and while the
        cluster is unavailable. Raises Fenced when another driver has claimed the job; GroupInUse and ProgressLost where
        the group has another user; InvalidJob, TopicNotFound and DeploymentNotFound for a job that cannot run.
        """
        try:
            return self._next(last) or last
        except WasmlineError as error:
            if not error.retryable:
                raise
            logger.warning("no lease can be planned yet: %s", error)
            return last

    def leases(self, planned_round: LeaseRound) -> list[Lease]:
        """Return the leases of a round: one for each task; from now on, for the ordered time.

        There are none if this is not the round that ``next`` returned last: it belongs to an earlier driver, all of
        whose work is in Kafka.
        """
        if self._newest is None or self._newest[0] != planned_round:
            return []
        _, job, deployment = self._newest
        until = time.time() + min(stream_of(job).lease_seconds, self._renewer.interval_s)
        bounds = self._planned.bounds
        shards = virtual_shards(planned_round.progress)
        assignments = [sorted(chain(*shards[task :: planned_round.tasks])) for task in range(planned_round.tasks)]
        return [
            Lease(
                job=job,
                deployment=deployment,
                driver=self._planned.driver,
                epoch=planned_round.epoch,
                topic=self._planned.topic,
                until=until,
                control_offsets=planned_round.control,
                progress={each: planned_round.progress[each] for each in assignment},
                bounds=None if bounds is None else {each: bounds[each] for each in assignment if each in bounds},
                keeps_maps=self._planned.keeps_maps,
                client=self._planned.client,
            )
            for assignment in assignments
        ]

    def close(self) -> None:
        """Close the Kafka clients."""
        self._tailer.close()
        if self._claims is not None:
            self._claims.close()
        if self._progress is not None:
            self._progress.close()

    def _next(self, last: LeaseRound) -> LeaseRound | None:
        claims = self._claims = self._claims or self._open()
        for message in self._tailer.poll():
            self._control.apply(message.topic() or "", message.key(), message.value())
        order = self._control.order
        if order is None or order.wanted == "stopped" or order.spec.run != self._planned.run:
            return None
        deployment = None if order.paused else self._deployment(stream_of(order.spec))
        if order.paused or (deployment is not None and deployment.state == "paused"):
            known = self._planned.offsets.keys() | last.progress.keys()
            self._renewer.renew_if_due(order.spec, known, claims.require_newest)
            return None
        progress = self._read_progress(order.spec, last, claims)
        if self._target is not None and self._target.passed(_named(self._planned.topic, progress)):
            return None
        slots = self._control.task_limits.get(self._planned.driver, self._planned.slots)
        if slots == 0:
            self._renewer.renew_if_due(order.spec, progress)
            return None
        asked = min(stream_of(order.spec).tasks or slots, slots)
        planned_round = LeaseRound(
            epoch=last.epoch + 1,
            generation=deployment.generation if deployment else 0,
            tasks=min(asked, len(virtual_shards(progress))),
            control=self._tailer.positions,
            progress=progress,
        )
        claims.claim(
            DriverClaim(
                run=self._planned.run,
                virtual_shards=VIRTUAL_SHARDS,
                mode="parallel",
                delivery=stream_of(order.spec).delivery,
                driver=self._planned.driver,
                partitions=len(progress),
                topic=self._planned.topic,
                topic_id=self._planned.topic_id,
                offsets=progress,
                late=self._planned.late,
                checkpoint=self._planned.checkpoint,
                batch_id=planned_round.epoch,
                deployment=deployment,
            )
        )
        self._renewer.renew_if_due(order.spec, progress)
        self._newest = planned_round, order.spec, deployment
        return planned_round

    def _open(self) -> ClaimWriter:
        """Return the writer of claims, which checks the control topics when it is created.

        Raises BrokerUnavailable; ReleaseMismatch if this process has an untested client.
        """
        if self._planned.keeps_maps:
            require_tested_client(self._planned.client)
        return ClaimWriter(self._config, self._planned.job, self._planned.driver)

    def _deployment(self, stream: StreamSpec) -> Deployment | None:
        """Return the deployment, or None where a function is run; check a generation before its first lease."""
        if not stream.transform:
            return None
        deployment = self._control.deployment
        if deployment is None:
            raise DeploymentNotFound(
                f"nothing is deployed as {stream.transform!r}: wasmline deploy", name=stream.transform
            )
        if deployment.state == "running":
            require_input_topic(deployment, self._planned.topic)
            self._preflight.check(deployment)
        return deployment

    def _read_progress(self, job: JobSpec, last: LeaseRound, claims: ClaimWriter) -> dict[int, int]:
        """Return the group's progress for every partition of the topic; a new partition begins at its beginning.

        Raises GroupInUse; ProgressLost if it is gone, or below that of the plan or of the last round, or differs from
        the result of the last leases, or beyond the beginning of a new partition: it was moved from outside.
        """
        topic = self._planned.topic
        group = job.group
        self._groups.require_no_members(group)
        known = dict(self._planned.offsets)
        for each, at in last.progress.items():  # of a checkpoint that goes on, the round may be older than the plan
            known[each] = max(at, known.get(each, at))
        begins = self._topics.beginning_offsets(topic)
        if added := {each: begin for each, begin in begins.items() if each not in known}:
            known |= begin_added_partitions(self._config, job, topic, added, claims.require_newest)
        if self._progress is None:
            self._progress = GroupOffsets(
                self._config, group, job.transactional_id, keeps_maps=self._planned.keeps_maps
            )
        least = _named(topic, known)
        committed = self._progress.committed(least, require_newest=claims.require_newest)
        self._require_unmoved(job, committed, last)
        require_committed(group, committed, least)
        return {each.partition: offset for each, offset in committed.items()}

    def _require_unmoved(self, job: JobSpec, committed: Mapping[TopicPartition, int], last: LeaseRound) -> None:
        name = lease_name(self._planned.driver, last.epoch)
        left = left_offsets(self._config, job.job, name, delivery=stream_of(job).delivery)
        for partition, (at, is_exact) in left.items():
            found = committed.get(TopicPartition(self._planned.topic, partition))
            is_as_left = found in (at, *self._late(partition, at))
            if not is_as_left and (is_exact or found is None or found < at):
                raise progress_lost_error(job.group, self._planned.topic, partition, found, at)

    def _late(self, partition: int, committed: int) -> list[int]:
        """Return the offsets above the result of a lease that tasks of earlier runs may still commit."""
        return [offset for offset in self._planned.late.get(partition, ()) if offset > committed]


def _named(topic: str, offsets: Mapping[int, int]) -> dict[TopicPartition, int]:
    return {TopicPartition(topic, partition): offset for partition, offset in offsets.items()}
