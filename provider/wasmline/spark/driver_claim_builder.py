"""Builds the claims of a stream job's driver: before each batch, and at the end. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from wasmline.control import Deployment, DriverClaim
from wasmline.job_offsets.resume_plan import late_commit_offsets
from wasmline.spark.driver_context import DriverContext
from wasmline.spark.run_planner import PlannedRun
from wasmline.transactional_ids import VIRTUAL_SHARDS


def first_claim(context: DriverContext, run: PlannedRun[Deployment | None]) -> DriverClaim:
    """Return the claim of a run's checkpoint, before the query starts.

    It keeps the epoch of a checkpoint in which rounds of leases continue: a run may end before its first round.
    """
    plan, replayed = run.plan, run.plan.replayed
    if replayed is not None:
        claim = batch_claim(context, run, replayed.batch_id, replayed.deployment, plan.offsets, replayed.ends)
    else:
        claim = batch_claim(context, run, plan.epoch, run.deployment, plan.offsets, plan.offsets)
    return replace(claim, left=plan.offsets) if context.stream.delivery == "exactly_once" else claim


def batch_claim(
    context: DriverContext,
    run: PlannedRun[Deployment | None],
    batch_id: int,
    deployment: Deployment | None,
    offsets: Mapping[int, int],
    ends: Mapping[int, int],
) -> DriverClaim:
    """Return the claim of a batch, which begins at ``offsets`` and leads to ``ends``."""
    return DriverClaim(
        run=context.job.run,
        virtual_shards=VIRTUAL_SHARDS,
        mode=context.stream.mode,
        delivery=context.stream.delivery,
        driver=context.driver,
        partitions=len(offsets),
        topic=run.topic.name,
        topic_id=run.topic.id,
        offsets=dict(offsets),
        ends=dict(ends),
        late=run.plan.late,
        checkpoint=run.plan.checkpoint,
        batch_id=batch_id,
        deployment=deployment,
    )


def final_claim(newest: DriverClaim, certain: Mapping[int, int]) -> DriverClaim:
    """Return the claim of a query that has ended; ``certain``: its offsets, as far as they are certain."""
    offsets, left = newest.offsets | dict(certain), newest.left | dict(certain)
    return replace(newest, offsets=offsets, left=left, late=late_commit_offsets(newest, offsets), ended=True)
