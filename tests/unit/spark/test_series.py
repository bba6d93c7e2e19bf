"""Which checkpoint a run goes on in, by what its job did last."""

from dataclasses import replace

from wasmline.deploy import BatchClaim, Deployment, DeploymentSpec
from wasmline.spark.series import Series, following

SPEC = DeploymentSpec(
    name="t", version="1.0.0", digest="sha256:" + "0" * 64, input_topic="in", output_topics=("out",)
)  # fmt: skip
LAST = BatchClaim(
    run="r1", checkpoint="/c/ID", batch_id=4,
    deployment=Deployment(spec=SPEC, generation=1, state="running", updated_ms=0),
)  # fmt: skip
EXACT = replace(LAST, delivery="exactly_once", partitions=3)
LEASE = replace(LAST, mode="parallel", checkpoint="/c/ID-parallel")


def after(last: BatchClaim | None, *, exact: bool, topic_id: str = "ID", topic: str = "in") -> Series:
    return following(last, "/c", topic=topic, topic_id=topic_id, exact=exact, run="r2")


def test_the_first_run_begins_where_the_order_says_or_exactly_where_the_group_is() -> None:
    assert after(None, exact=False) == Series(checkpoint="/c/ID", resumes=False)
    assert after(None, exact=True) == Series(checkpoint="/c/ID", resumes=True)


def test_a_run_like_the_last_one_goes_on_in_its_checkpoint() -> None:
    assert after(LAST, exact=False) == Series(checkpoint="/c/ID", resumes=False)
    assert after(EXACT, exact=True) == Series(checkpoint="/c/ID", resumes=True, known=3)


def test_a_checkpoint_that_began_at_the_groups_progress_would_do_so_again() -> None:
    begun = replace(LAST, checkpoint="/c/ID.r1")
    assert after(begun, exact=False) == Series(checkpoint="/c/ID.r1", resumes=True)


def test_a_run_after_another_delivery_or_mode_begins_at_the_groups_progress() -> None:
    assert after(LAST, exact=True) == Series(checkpoint="/c/ID.r2", resumes=True)
    assert after(EXACT, exact=False) == Series(checkpoint="/c/ID.r2", resumes=True, known=3)
    for exact in (False, True):
        assert after(LEASE, exact=exact) == Series(checkpoint="/c/ID.r2", resumes=True)


def test_a_topic_made_anew_has_no_progress_and_another_topic_has_its_own() -> None:
    for last in (EXACT, LEASE):
        assert after(last, exact=True, topic_id="NEW") == Series(checkpoint="/c/NEW", resumes=True, is_anew=True)
    assert after(EXACT, exact=True, topic_id="NEW", topic="x") == Series(checkpoint="/c/NEW", resumes=True)
