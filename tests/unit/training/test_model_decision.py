"""Decisions on stored versions, of which some are made at one moment."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from support.eta_model import eta_model, held_out
from support.gated_models import METRICS, ROWS, forward_rows, gated_record, publish_gated
from wasmline.errors import Conflict
from wasmline.training import Decision, GatePolicy, ModelRegistry, Promotion, PromotionLog, model_decision, promote
from wasmline.training.champion_comparison import MeasuredModel
from wasmline.training.fitted_model import FittedModel
from wasmline.training.model_decision import decide_on

PROMOTE = Decision(decision="promote", reason="no champion yet")
KEEP = Decision(decision="keep", reason="worse", refusal="noise")
POLICY = GatePolicy(segments=("vehicle",))


@pytest.fixture
def models(tmp_path: Path) -> str:
    return str(tmp_path / "models")


def decide_first(models: str, version: str, run: str, policy: GatePolicy | None = POLICY) -> Promotion:
    """Promote a version that was trained before there was a champion."""
    return promote(models, "eta", version, PROMOTE, champion=None, metrics=METRICS, policy=policy, run=run)


def decide(models: str, version: str, decision: Decision, champion: str, run: str) -> Promotion:
    """Record a decision that was made beside a champion."""
    return promote(models, "eta", version, decision, champion=champion, metrics=METRICS, policy=POLICY, run=run)


def fitted(models: str, version: str) -> FittedModel:
    stored, data = ModelRegistry(models).load("eta", version)
    return FittedModel(data=data, layout=stored.record.layout, dataset=stored.record.dataset)


def test_a_better_model_than_the_one_promoted_meanwhile_replaces_it(models: str) -> None:
    worse, better = publish_gated(models, 3, 12)
    decide_first(models, worse, "r1")
    made = decide_first(models, better, "r2")
    assert (made.number, made.decision, made.champion, made.live) == (2, "promote", worse, better)
    assert made.champion_metrics is not None
    assert made.champion_metrics.holdout == made.metrics.holdout
    assert made.held_out is not None
    assert made.held_out.ratio is not None
    assert made.held_out.ratio.high < 1
    assert sum(each.rows for each in made.segments.values()) == made.held_out.rows == 300
    assert {"vehicle=scooter", "vehicle=bicycle", "vehicle is null"} < set(made.segments)


def test_a_worse_model_than_the_one_promoted_meanwhile_is_kept_back(models: str) -> None:
    worse, better = publish_gated(models, 3, 12)
    decide_first(models, better, "r1")
    made = decide_first(models, worse, "r2")
    assert (made.decision, made.refusal, made.champion, made.live) == ("keep", "noise", better, better)


def test_the_same_model_of_two_runs_is_promoted_once(models: str) -> None:
    [version] = publish_gated(models, 3)
    decide_first(models, version, "r1")
    assert decide_first(models, version, "r2").refusal == "equal"


@pytest.mark.parametrize("attempt", range(5))
def test_of_retrains_that_promote_at_once_the_best_is_the_champion(models: str, attempt: int) -> None:
    versions = publish_gated(models, 2, 6, 16)
    together = threading.Barrier(len(versions))

    def run(version: str) -> Promotion:
        together.wait()
        return decide_first(models, version, f"run-{version}")

    with ThreadPoolExecutor(len(versions)) as threads:
        made = list(threads.map(run, versions))
    log = PromotionLog(models)
    assert log.champion("eta") == versions[-1]
    assert sorted(each.number for each in made) == [1, 2, 3]
    history = log.history("eta")
    assert [each.champion for each in history[1:]] == [each.live for each in history[:-1]]


def test_of_two_retrains_at_once_a_better_one_of_earlier_records_comes_too_late(models: str) -> None:
    later, earlier = (
        ModelRegistry(models).publish(record, eta_model(ROWS, record), held_out=held_out(ROWS[:300])).version
        for record in (gated_record(3, end=len(ROWS) + 1), gated_record(12))
    )
    decide_first(models, later, "r1")
    made = decide_first(models, earlier, "r2")
    assert (made.refusal, made.live) == ("older", later)
    assert "better beyond noise" in made.reason


def test_a_decision_anew_is_recorded_once_for_a_run(models: str) -> None:
    worse, better = publish_gated(models, 3, 12)
    decide_first(models, better, "r1")
    made = decide_first(models, worse, "r2")
    assert decide_first(models, worse, "r2") == made
    assert len(PromotionLog(models).history("eta")) == 2


def test_a_run_that_decided_does_not_decide_anew_after_other_decisions(models: str) -> None:
    first, second, third = publish_gated(models, 3, 12, 16)
    decide_first(models, first, "r1")
    decide_first(models, second, "r2")
    decide_first(models, third, "r3")
    with pytest.raises(Conflict, match="decision 3 followed decision 2 of this run"):
        decide_first(models, second, "r2")


def test_a_rollback_is_not_decided_over(models: str) -> None:
    first, second, third = publish_gated(models, 3, 6, 12)
    decide_first(models, first, "r1")
    decide_first(models, second, "r2")
    PromotionLog(models).roll_back("eta", first, champion=second, reason="late orders")
    with pytest.raises(Conflict, match=r"1\.0\.0 is live, not nothing"):
        decide_first(models, third, "r3")
    assert PromotionLog(models).champion("eta") == first


def test_a_rollback_is_not_decided_over_though_other_decisions_followed_it(models: str) -> None:
    first, second, third, fourth = publish_gated(models, 2, 3, 12, 4)
    log = PromotionLog(models)
    decide_first(models, first, "r1")
    decide(models, second, PROMOTE, first, "r2")
    log.roll_back("eta", first, champion=second, reason="late orders")
    for live, decision in ((first, KEEP), (fourth, PROMOTE)):
        assert decide(models, fourth, decision, first, f"r-{live}").live == live
        with pytest.raises(Conflict, match=f"{live} is live, not {second}"):
            decide(models, third, PROMOTE, second, "r3")


def test_of_two_runs_with_one_version_the_later_does_not_undo_its_rollback(models: str) -> None:
    first, second = publish_gated(models, 3, 12)
    decide_first(models, first, "r1")
    decide(models, second, PROMOTE, first, "r2")
    PromotionLog(models).roll_back("eta", first, champion=second, reason="late orders")
    made = decide(models, second, PROMOTE, first, "r3")
    assert (made.decision, made.refusal, made.live) == ("keep", "rolled back", first)


def test_a_model_that_was_rolled_back_is_not_promoted_under_another_version(models: str) -> None:
    first, second, third = publish_gated(models, 3, 12, 4)
    decide_first(models, first, "r1")
    decide(models, second, PROMOTE, first, "r2")
    PromotionLog(models).roll_back("eta", first, champion=second, reason="late orders")
    [again] = publish_gated(models, 12)
    assert again not in (first, second, third)
    challenger = MeasuredModel(
        model=fitted(models, again), metrics=METRICS, held_out=held_out(ROWS[:300]), forward=None
    )
    decided = decide_on(challenger, again, models=models, name="eta", policy=POLICY)
    assert (decided.decision.decision, decided.decision.refusal) == ("keep", "rolled back")
    assert "1.3.0 is the model that decision 3 rolled back" in decided.decision.reason


def test_a_model_that_is_kept_beside_one_champion_is_not_promoted_beside_another(models: str) -> None:
    worst, middle, best = publish_gated(models, 2, 6, 16)
    decide_first(models, best, "r1")
    decide(models, worst, PROMOTE, best, "r2")
    made = decide(models, middle, KEEP, best, "r3")
    assert (made.decision, made.champion, made.live) == ("keep", worst, worst)


def test_without_rules_or_rows_the_models_must_be_compared_again(models: str) -> None:
    [first] = publish_gated(models, 3)
    bare = ModelRegistry(models).publish(replace(gated_record(12), spec_version=1), b"{}").version
    decide_first(models, first, "r1")
    with pytest.raises(Conflict):
        decide_first(models, bare, "r2")
    [second] = publish_gated(models, 16)
    with pytest.raises(Conflict):
        decide_first(models, second, "r3", policy=None)


def test_a_champion_that_has_not_seen_the_newest_slice_is_compared_with_the_stand_in_there(models: str) -> None:
    first, second = publish_gated(models, 3, 12, forward=forward_rows(ROWS[300:600], first_offset=len(ROWS)))
    decide_first(models, first, "r1")
    made = decide_first(models, second, "r2")
    assert made.refusal == "forward"
    assert made.forward is not None
    assert made.forward.rows == 300
    assert "worse on the newest records beyond noise" in made.reason


def test_a_champion_that_was_trained_on_the_newest_slice_is_compared_on_its_held_out_rows(models: str) -> None:
    first, second = publish_gated(models, 3, 12, forward=forward_rows(ROWS[300:600], first_offset=300))
    decide_first(models, first, "r1")
    made = decide_first(models, second, "r2")
    assert made.decision == "promote"
    assert made.forward is not None
    assert made.forward.rows == 60


def test_the_number_of_decisions_is_bounded(models: str, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = publish_gated(models, 3, 12)
    decide_first(models, first, "r1")
    monkeypatch.setattr(model_decision, "MAX_DECISIONS", 1)
    with pytest.raises(Conflict, match=r"1\.0\.0 is live, not nothing"):
        decide_first(models, second, "r2")
