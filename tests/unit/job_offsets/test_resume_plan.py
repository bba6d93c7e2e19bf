"""Where a run goes on, as a table of what the runs before it left."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from wasmline.control import Deployment, DeploymentSpec, DriverClaim
from wasmline.errors import InvalidJob, ProgressLost
from wasmline.job_offsets.resume_plan import (
    CheckpointState,
    RunPlan,
    TopicState,
    claim_is_authoritative,
    overlaps,
    plan_run,
)
from wasmline.job_specs import JobSpec, StreamSpec

SPEC = DeploymentSpec(name="t", version="1.0.0", digest="sha256:" + "0" * 64, input_topic="in", output_topics=("out",))
TOPIC = TopicState(name="in", id="ID", begins={0: 5, 1: 5}, ends={0: 900, 1: 900})
PLAIN = DriverClaim(
    run="r1", driver="d1", topic="in", topic_id="ID", checkpoint="/s/checkpoints/j/ID", batch_id=4, partitions=2,
    offsets={0: 100, 1: 200}, ends={0: 150, 1: 250},
    deployment=Deployment(spec=SPEC, generation=1, state="running", updated_ms=0),
)  # fmt: skip
EXACT = replace(PLAIN, delivery="exactly_once")
LEASE = replace(PLAIN, mode="parallel", checkpoint="/s/checkpoints/j/ID-parallel", ends={})
EXACT_LEASE = replace(LEASE, delivery="exactly_once")
EVERY = [PLAIN, EXACT, LEASE, EXACT_LEASE]
COMMITTED = {0: 150, 1: 250}
STRANGE = {0: 880, 1: 880}
"""What a consumer that is not the job's has committed."""

ORDERS: list[dict[str, Any]] = [
    {"mode": mode, "delivery": delivery}
    for mode in ("microbatch", "parallel")
    for delivery in ("at_least_once", "exactly_once")
]
PLAIN_ORDER, EXACT_ORDER, LEASE_ORDER, EXACT_LEASE_ORDER = ORDERS


def plan(
    last: DriverClaim | None,
    order: dict[str, Any],
    committed: Mapping[int, int] = COMMITTED,
    *,
    planned: int = 4,
    done: int = 4,
    topic: TopicState = TOPIC,
    storage: str = "/s",
) -> RunPlan:
    job = JobSpec(job="j", run="r2", storage=storage, stream=StreamSpec(transform="t", **order))
    return plan_run(last, CheckpointState(planned=planned, committed=done), committed, topic, job, "d2")


def ended(claim: DriverClaim) -> DriverClaim:
    return replace(claim, offsets=claim.ends or claim.offsets, ended=True)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("starting", "begin"), [("earliest", 5), ("latest", 900)])
def test_the_first_run_begins_where_it_is_ordered_to(order: dict[str, Any], starting: str, begin: int) -> None:
    for last in (None, DriverClaim(run="r0", driver="d0", checkpoint="", batch_id=-1, deployment=None)):
        found = plan(last, {**order, "starting_offsets": starting}, {})
        assert found.offsets == {0: begin, 1: begin}
        assert found.checkpoint == "/s/checkpoints/j/ID" + ("-parallel" if order["mode"] == "parallel" else "")
        assert found.replayed is None


@pytest.mark.parametrize("order", [EXACT_ORDER, LEASE_ORDER, EXACT_LEASE_ORDER])
def test_the_first_run_that_works_with_the_group_begins_where_that_is(order: dict[str, Any]) -> None:
    found = plan(None, {**order, "starting_offsets": "latest"}, {0: 33})
    assert found.offsets == {0: 33, 1: 5}
    assert found.corrections == {1: 5}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("last", EVERY)
def test_a_release_with_other_transactional_ids_is_not_followed(last: DriverClaim, order: dict[str, Any]) -> None:
    """Its zombies would be fenced by nobody."""
    with pytest.raises(InvalidJob, match="among 32 transactional ids"):
        plan(ended(replace(last, virtual_shards=32)), order)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("last", EVERY)
def test_a_run_goes_on_in_the_checkpoint_of_one_like_it_that_has_ended(
    last: DriverClaim, order: dict[str, Any]
) -> None:
    is_alike = (last.mode, last.delivery) == (order["mode"], order["delivery"])
    own = "/s/checkpoints/j/ID" + ("-parallel" if order["mode"] == "parallel" else "") + ".d2"
    assert plan(ended(last), order).checkpoint == (last.checkpoint if is_alike else own)
    assert plan(last, order).checkpoint == own, "its driver may live"
    assert plan(ended(last), order, storage="/t").checkpoint == own.replace("/s", "/t")
    if last.mode == "microbatch":
        assert plan(ended(last), order, planned=-1, done=-1).checkpoint == own, "it is lost"


@pytest.mark.parametrize("order", [{**each, "starting_offsets": "latest"} for each in ORDERS])
@pytest.mark.parametrize("committed", [COMMITTED, STRANGE, {0: 7, 1: 7}, {}])
def test_after_batches_at_least_once_what_they_claimed_is_known_whatever_the_group_has(
    order: dict[str, Any], committed: dict[int, int]
) -> None:
    for found in (
        plan(ended(PLAIN), order, committed),
        plan(ended(PLAIN), order, committed, planned=-1, done=-1),
        plan(ended(PLAIN), order, committed, storage="/t", planned=-1, done=-1),
        plan(PLAIN, order, committed),
    ):
        assert found.offsets == {0: 150, 1: 250}
        assert found.corrections == {each: at for each, at in found.offsets.items() if committed.get(each) != at}
    for undone in (plan(PLAIN, order, committed, done=3), plan(PLAIN, order, committed, planned=-1, done=-1)):
        assert undone.offsets == {0: 100, 1: 200}
        assert undone.replayed == (PLAIN if order["mode"] == "microbatch" else None)


@pytest.mark.parametrize("order", [{**each, "starting_offsets": "latest"} for each in ORDERS])
@pytest.mark.parametrize("last", [EXACT, LEASE, EXACT_LEASE])
def test_after_all_other_runs_it_is_the_group_that_knows_or_progress_is_lost(
    last: DriverClaim, order: dict[str, Any]
) -> None:
    found = plan(last, order)
    assert (found.offsets, found.corrections) == (COMMITTED, {})
    with pytest.raises(ProgressLost, match="where the job has been before"):
        plan(last, order, {})
    with pytest.raises(ProgressLost, match="nothing committed for in-1"):
        plan(last, order, {0: 150})
    with pytest.raises(ProgressLost, match="in-0, and the job got to 100"):
        plan(last, order, {0: 99, 1: 250})
    with pytest.raises(ProgressLost, match="where the job has been before"):
        plan(replace(last, offsets={}), order, {0: 150})


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("last", [EXACT, LEASE, EXACT_LEASE])
def test_progress_that_was_moved_after_a_run_ended_is_lost_in_both_directions(
    last: DriverClaim, order: dict[str, Any]
) -> None:
    last = replace(last, offsets=COMMITTED, left=COMMITTED, ended=True)
    assert plan(last, order).offsets == COMMITTED
    for found in (149, 151, 880):
        with pytest.raises(ProgressLost, match=rf"has {found} committed .* got to 150\..*--to-offset 150"):
            plan(last, order, {0: found, 1: 250})


@pytest.mark.parametrize("order", ORDERS)
def test_progress_after_a_batch_exactly_once_that_was_killed_or_failed_is_where_it_began_or_ends(
    order: dict[str, Any],
) -> None:
    """Each partition is done as a whole or not at all. Above an offset map it may be anywhere."""
    for last in (replace(EXACT, left=EXACT.ends), replace(EXACT, left=EXACT.ends, batch_id=-1, ended=True)):
        for each in ({0: 100, 1: 200}, {0: 150, 1: 200}, {0: 150, 1: 250}):
            assert plan(last, order, each).offsets == each
        for found in (99, 101, 149, 151):
            with pytest.raises(ProgressLost, match=rf"has {found} .* got to 100 or 150\..*--to-offset N"):
                plan(last, order, {0: found, 1: 200})
        assert plan(replace(last, left={1: 250}), order, {0: 170, 1: 250}).offsets == {0: 170, 1: 250}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("last", EVERY)
@pytest.mark.parametrize("found", [{0: 7, 1: 250}, {0: 880, 1: 250}, STRANGE], ids=["back", "ahead", "all"])
def test_a_run_that_takes_moved_progress_goes_on_where_the_group_is_and_in_no_older_checkpoint(
    last: DriverClaim, order: dict[str, Any], found: dict[int, int]
) -> None:
    last = replace(last, offsets=COMMITTED, left={} if last is PLAIN else COMMITTED, ended=True)
    takes = {**order, "fail_on_moved_progress": False}
    assert plan(last, takes).checkpoint == plan(last, order).checkpoint
    taken = plan(last, takes, found)
    assert (taken.offsets, taken.corrections, taken.checkpoint[-3:]) == (found, {}, ".d2")
    if not claim_is_authoritative(last):
        with pytest.raises(ProgressLost, match="nothing committed"):
            plan(last, takes, {0: 7})


def test_a_batch_that_spark_repeats_runs_what_was_recorded_though_it_was_claimed_to_be_done() -> None:
    """Its checkpoint lost the commit."""
    found = plan(ended(PLAIN), PLAIN_ORDER, planned=4, done=3)
    assert (found.checkpoint, found.replayed) == (PLAIN.checkpoint, ended(PLAIN))
    assert plan(replace(PLAIN, batch_id=-1, ended=True), PLAIN_ORDER, planned=4, done=3).replayed is None


def test_a_batch_exactly_once_that_is_not_done_is_no_part_of_the_next_run_but_its_generation_may_be() -> None:
    """What its tasks have done of it is not planned again: it may be removed by now, and was of its generation."""
    last = replace(EXACT, left=EXACT.ends, ended=True)
    half = {0: 150, 1: 200}
    assert plan(last, EXACT_ORDER, half, planned=4, done=3).checkpoint.endswith(".d2")
    assert plan(last, EXACT_ORDER, half, planned=4, done=3).replayed == last
    assert plan(last, EXACT_ORDER, planned=4, done=3).replayed is None
    assert plan(replace(last, batch_id=-1), EXACT_ORDER, half, planned=4, done=3).replayed is None
    assert plan(replace(ended(EXACT), batch_id=2), EXACT_ORDER, planned=2, done=2).checkpoint == EXACT.checkpoint
    assert plan(ended(EXACT), EXACT_ORDER, planned=2, done=2).checkpoint.endswith(".d2"), "it was rolled back"


@pytest.mark.parametrize("order", [{**each, "starting_offsets": "latest"} for each in ORDERS])
@pytest.mark.parametrize("last", EVERY)
def test_a_partition_that_was_added_begins_at_its_beginning(last: DriverClaim, order: dict[str, Any]) -> None:
    grown = replace(TOPIC, begins={**TOPIC.begins, 2: 0}, ends={**TOPIC.ends, 2: 70})
    found = plan(ended(last), order, topic=grown)
    assert found.offsets == {**COMMITTED, 2: 0}
    assert found.corrections == {2: 0}


@pytest.mark.parametrize("order", [{**each, "starting_offsets": "latest"} for each in ORDERS])
@pytest.mark.parametrize("last", [*EVERY, replace(LEASE, deployment=None)])
def test_a_topic_made_anew_is_read_from_its_beginning(last: DriverClaim, order: dict[str, Any]) -> None:
    anew = replace(TOPIC, id="NEW", begins={0: 0, 1: 0})
    found = plan(ended(last), order, topic=anew)
    assert found.offsets == found.corrections == {0: 0, 1: 0}
    assert "/NEW" in found.checkpoint


def test_another_topic_is_read_from_where_the_first_run_on_it_is_ordered_to() -> None:
    other = replace(TOPIC, name="other", id="OTHER")
    for order in ORDERS:
        assert plan(EXACT, {**order, "starting_offsets": "latest"}, {}, topic=other).offsets == TOPIC.ends


def test_a_run_that_took_the_job_over_and_did_not_start_changes_nothing() -> None:
    anew = replace(TOPIC, id="NEW", begins={0: 0, 1: 0})
    for last in [*EVERY, *map(ended, EVERY)]:
        for order in ORDERS:
            for topic in (TOPIC, anew):
                before, after = (plan(each, order, topic=topic) for each in (last, replace(last, driver="refused")))
                assert (after.checkpoint, after.offsets) == (before.checkpoint, before.offsets)


def test_a_claim_of_an_earlier_release_says_what_the_group_has() -> None:
    old = replace(PLAIN, topic="", topic_id="", offsets={}, ends={}, partitions=0)
    assert plan(old, PLAIN_ORDER, {0: 40, 1: 41}).offsets == {0: 40, 1: 41}
    with pytest.raises(ProgressLost):
        plan(old, PLAIN_ORDER, {0: 40})


def test_a_batch_is_a_replay_of_the_one_that_it_overlaps() -> None:
    assert overlaps(PLAIN, {0: 149, 1: 250})
    assert not overlaps(PLAIN, {0: 150, 1: 250, 2: 0})


@pytest.mark.parametrize("order", ORDERS)
def test_where_tasks_of_earlier_batches_may_still_bring_partitions_is_carried_on(order: dict[str, Any]) -> None:
    killed = replace(EXACT, left={0: 150, 1: 250}, late={0: (90, 120, 160)})
    assert plan(killed, order, {0: 120, 1: 200}).late == {0: (150, 160), 1: (250,)}
    assert plan(killed, order, {0: 160, 1: 250}).late == {}
    for strange in (90, 130, 170):
        with pytest.raises(ProgressLost):
            plan(killed, order, {0: strange, 1: 200})
