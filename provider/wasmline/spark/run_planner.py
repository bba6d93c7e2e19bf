"""Plans where a run of a stream job continues, from the claims, the checkpoint and the group's committed offsets."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass
from typing import Generic, TypeVar

from wasmline.control import Deployment, DriverClaim, fenced_error
from wasmline.errors import BrokerUnavailable, OffsetOutOfRange, ProgressLost
from wasmline.job_offsets.committed_offset_reader import stable_offsets
from wasmline.job_offsets.data_loss_check import DataLossCheck
from wasmline.job_offsets.offset_renewal import renew_offsets
from wasmline.job_offsets.resume_offset_commit import in_transactions
from wasmline.job_offsets.resume_plan import (
    CheckpointState,
    RunPlan,
    TopicState,
    claim_is_authoritative,
    matches_topic,
    own_checkpoint,
    plan_run,
)
from wasmline.kafka import ConsumerGroups
from wasmline.offset_maps import parse
from wasmline.spark.checkpoint_reader import checkpoint_state
from wasmline.spark.driver_context import DriverContext
from wasmline.topic_partitions import CommittedOffset

log = logging.getLogger(__name__)

D = TypeVar("D", bound=Deployment | None, covariant=True)
"""What a mode runs: a deployment, or None in a mode that also runs functions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedRun(Generic[D]):
    """A run that can start, as far as known before it is planned.

    topic: the input topic. keeps_maps: whether the cluster stores offset maps.
    """

    deployment: D
    topic: str
    data_loss: DataLossCheck
    keeps_maps: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRun(Generic[D]):
    """A run whose start is planned, after the takeover.

    topic: the input topic at that moment. earlier: the newest claim if it is about another topic, else None.
    mapped: partitions with an offset map in the group. is_renewed: whether the group's offsets were committed just now.
    """

    prepared: PreparedRun[D]
    topic: TopicState
    plan: RunPlan
    earlier: DriverClaim | None
    mapped: Set[int]
    is_renewed: bool

    @property
    def deployment(self) -> D:
        return self.prepared.deployment


@dataclass(frozen=True, slots=True, kw_only=True)
class _ResumeState:
    """What earlier runs left: the newest claim, the last one about the topic, and the state of its checkpoint."""

    topic: TopicState
    newest: DriverClaim | None
    last: DriverClaim | None
    checkpoint: CheckpointState

    @property
    def known(self) -> DriverClaim | None:
        """The last claim, if it is about this very topic."""
        return self.last if self.last is not None and matches_topic(self.last, self.topic) else None

    @property
    def partitions_gone(self) -> list[int]:
        """Partitions that an earlier topic of the name had, and this one lacks: tasks may still commit for them."""
        newest = self.newest
        if newest is None or newest.topic != self.topic.name:
            return []
        return sorted(newest.offsets.keys() - self.topic.begins.keys())

    @property
    def earlier(self) -> DriverClaim | None:
        newest = self.newest
        return None if newest is None or not newest.topic_id or matches_topic(newest, self.topic) else newest


class RunPlanner(Generic[D]):
    """Plans one prepared run: first a check beside other drivers, then the plan after they are fenced."""

    def __init__(self, context: DriverContext, prepared: PreparedRun[D]) -> None:
        self._context = context
        self._prepared = prepared

    def check(self) -> bool:
        """Raise what excludes any plan, while other drivers may still commit.

        Return whether open transactions, possibly of a dead driver, were not ended within the time for them. Raises
        ProgressLost, OffsetOutOfRange, GroupInUse.
        """
        state = self._read_state()
        committed: Mapping[int, CommittedOffset] = {}
        if self._needs_group(state) or self._fences(state):
            ConsumerGroups(self._context.config).require_no_members(self._context.job.group)
        if self._needs_group(state):
            try:
                committed = self._stable(state.topic.begins, self._context.timings.open_transaction_wait_s)
            except BrokerUnavailable as error:
                job = self._context.job.job
                log.warning("a transaction of job %s may be open; it is ended first: %s", job, error)
                with suppress(OffsetOutOfRange):  # the transaction may go beyond what retention has removed
                    self._check_plan(state, self._unstable())
                return True
        self._check_plan(state, committed)
        return False

    def _check_plan(self, state: _ResumeState, committed: Mapping[int, CommittedOffset]) -> None:
        try:
            self._plan(state, committed)
        except (OffsetOutOfRange, ProgressLost):
            if not self._claim_changed(state):
                state.topic.require_not_recreated(self._context.config)
                raise

    def plan(self, *, ends_transactions: bool) -> PlannedRun[D]:
        """Return the planned run, once no other driver commits progress, except a newer one: Fenced.

        ``ends_transactions``: fence the open transactions of others first, whatever the delivery. Raises ProgressLost,
        OffsetOutOfRange; ProducerFenced by an older driver that is starting.
        """
        state = self._read_state()
        is_renewed = self._renew(state, ends_transactions=ends_transactions)
        committed: Mapping[int, CommittedOffset] = {}
        if self._needs_group(state):
            limit, require_newest = self._context.timings.stable_read_timeout_s, self._context.claims.require_newest
            committed = self._stable(state.topic.begins, limit, require_newest)
        try:
            plan = self._plan(state, committed)
        except (OffsetOutOfRange, ProgressLost) as error:
            if self._claim_changed(state):
                raise fenced_error(self._context.job.job) from error
            state.topic.require_not_recreated(self._context.config)
            raise
        return PlannedRun(
            prepared=self._prepared,
            topic=state.topic,
            plan=plan,
            earlier=state.earlier,
            mapped={partition for partition, each in committed.items() if each.metadata},
            is_renewed=is_renewed,
        )

    def _read_state(self) -> _ResumeState:
        context = self._context
        newest = context.jobs.last_claim(context.job.job)  # before the topic: a later one may know more partitions
        topic = TopicState.now(context.config, self._prepared.topic)
        last = context.jobs.last_claim(context.job.job, topic.id)
        checkpoint = CheckpointState()
        if last is not None and last.mode == "microbatch" and last.checkpoint.startswith(f"{context.job.storage}/"):
            checkpoint = checkpoint_state(context.spark, last.checkpoint)
        return _ResumeState(topic=topic, newest=newest, last=last, checkpoint=checkpoint)

    def _needs_group(self, state: _ResumeState) -> bool:
        """Return whether the plan needs the group's committed offsets."""
        known = state.known
        if not self._context.has_authoritative_claims:
            return True
        is_claimed = known is not None and claim_is_authoritative(known) and bool(known.offsets)
        return known is not None and not (is_claimed and self._context.stream.fail_on_moved_progress)

    def _renew(self, state: _ResumeState, *, ends_transactions: bool) -> bool:
        """Commit the group's offsets once more where that fences others, or the run continues from them."""
        context = self._context
        fences = ends_transactions or self._fences(state)
        if not fences and not self._needs_renewal(state):
            return False
        arguments = context.config, context.job, self._prepared.topic, state.topic.begins
        deployment = self._prepared.deployment
        outputs = deployment.spec.topics[1:] if deployment is not None else ()
        renew_offsets(
            *arguments,
            keeps_maps=self._prepared.keeps_maps,
            fences=fences,
            outputs=outputs,
            require_newest=context.claims.require_newest,
        )
        if fences and (gone := state.partitions_gone):
            in_transactions(context.config, context.job, self._prepared.topic, gone, lambda *_: None)  # fences them
        return True

    def _fences(self, state: _ResumeState) -> bool:
        """Return whether tasks of other runs are to be fenced: this run or one of those may write in transactions.

        A run that was killed at its start may have left one open without having claimed any progress.
        """
        claims = [each for each in (state.newest, state.last) if each is not None]
        return "exactly_once" in (self._context.stream.delivery, *(each.delivery for each in claims))

    def _needs_renewal(self, state: _ResumeState) -> bool:
        return state.known is not None and not self._context.has_authoritative_claims

    def _plan(self, state: _ResumeState, committed: Mapping[int, CommittedOffset]) -> RunPlan:
        offsets = {partition: each.offset for partition, each in committed.items()}
        context = self._context
        plan = plan_run(state.last, state.checkpoint, offsets, state.topic, context.job, context.driver)
        self._prepared.data_loss.require_no_loss(plan.offsets, state.topic.begins)
        reached = plan.offsets
        if context.stream.delivery == "exactly_once":  # otherwise the consumer leaves out a map that is of another log
            kept = {each: at for each, at in committed.items() if at.metadata and each not in plan.corrections}
            reached = reached | {each: parse(at.metadata, at.offset)[0] + 1 for each, at in kept.items()}
        if ends := self._prepared.data_loss.truncated(reached, state.topic.ends):
            return plan.truncated(ends, own_checkpoint(context.job, state.topic, context.driver))
        return plan

    def _stable(
        self, partitions: Iterable[int], limit: float, require_newest: Callable[[], None] | None = None
    ) -> Mapping[int, CommittedOffset]:
        arguments = self._context.config, self._context.job, self._prepared.topic, partitions, limit
        return stable_offsets(*arguments, keeps_maps=self._prepared.keeps_maps, require_newest=require_newest)

    def _unstable(self) -> Mapping[int, CommittedOffset]:
        """Return the committed offsets as they are if no open transaction is committed."""
        found = ConsumerGroups(self._context.config).committed(self._context.job.group, self._prepared.topic)
        return {partition: CommittedOffset(offset) for partition, offset in found.items()}

    def _claim_changed(self, state: _ResumeState) -> bool:
        """Return whether another driver has claimed the job since its state was read."""
        return self._context.jobs.last_claim(self._context.job.job) != state.newest
