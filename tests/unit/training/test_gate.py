from dataclasses import replace

import numpy as np
import pytest

from wasmline.documents import decode, encode
from wasmline.training import Decision, GatePolicy, Metrics, decide
from wasmline.training.feature_encoding import Vector
from wasmline.training.gate import MIN_ROWS, ChampionErrors, Mask, PairedErrors

ROWS = 2_000


def noise(seed: int = 1) -> Vector:
    """Errors of a model of RMSE 7.2."""
    return np.random.default_rng(seed).normal(0, 7.2, ROWS)


def pair(scale: float, *, unlike: float = 0.3) -> PairedErrors:
    """A challenger whose errors are those of the champion times ``scale``, and some noise of its own."""
    champion = noise()
    challenger = champion * scale + np.random.default_rng(2).normal(0, unlike, ROWS)
    return PairedErrors(challenger=challenger**2, champion=champion**2)


def every(step: int, start: int = 0) -> Mask:
    chosen = np.zeros(ROWS, dtype=np.bool_)
    chosen[start::step] = True
    return chosen


@pytest.mark.parametrize(
    ("rmse", "linear", "refusal"),
    [(7.2, 8.0, ""), (9.4, 9.9, "mean"), (9.5, 9.9, "mean"), (8.0, 8.0, "linear"), (7.2, None, "")],
)
def test_a_first_champion_must_beat_the_mean_and_a_linear_model(
    metrics: Metrics, rmse: float, linear: float | None, refusal: str
) -> None:
    found = decide(replace(metrics, rmse=rmse, linear_rmse=linear), GatePolicy(), None)
    assert (found.refusal, found.promote) == (refusal, not refusal)
    assert f"RMSE {rmse:.3f}" in found.reason


def test_a_model_without_a_number_for_its_error_is_not_promoted(metrics: Metrics) -> None:
    assert decide(replace(metrics, rmse=float("nan")), GatePolicy(), None).refusal == "mean"


@pytest.mark.parametrize(
    ("scale", "margin", "refusal"),
    [
        (0.98, 0.0, ""),
        (0.98, 0.05, "noise"),
        (0.9, 0.05, ""),
        (0.9999, 0.0, "noise"),
        (1.02, 0.0, "noise"),
        (1.02, -0.05, ""),
        (1.1, -0.05, "noise"),
    ],
)
def test_the_interval_of_the_ratio_decides_and_the_margin_moves_its_limit(
    metrics: Metrics, scale: float, margin: float, refusal: str
) -> None:
    found = decide(metrics, GatePolicy(margin=margin), ChampionErrors(held_out=pair(scale)))
    assert found.refusal == refusal
    assert found.held_out is not None
    assert found.held_out.ratio is not None
    assert found.held_out.ratio.low < found.held_out.rmse / found.held_out.champion_rmse < found.held_out.ratio.high
    assert "beyond noise" in found.reason


@pytest.mark.parametrize(("rows", "refusal"), [(1, "noise"), (2, "noise"), (MIN_ROWS - 1, "noise"), (MIN_ROWS, "")])
def test_on_few_held_out_rows_no_model_is_better_beyond_noise(metrics: Metrics, rows: int, refusal: str) -> None:
    better = np.arange(rows, dtype=np.float64)
    errors = PairedErrors(challenger=better, champion=better + 100)
    found = decide(metrics, GatePolicy(), ChampionErrors(held_out=errors))
    assert found.refusal == refusal
    assert found.held_out is not None
    assert found.held_out.rows == rows


@pytest.mark.parametrize(("margin", "refusal"), [(0.0, "outliers"), (-0.3, "")])
def test_a_model_that_is_better_by_a_few_rows_and_worse_on_all_others_is_refused(
    metrics: Metrics, margin: float, refusal: str
) -> None:
    errors, outliers = pair(1.2), every(50)
    better = PairedErrors(
        challenger=np.where(outliers, 1.0, errors.challenger), champion=np.where(outliers, 1e10, errors.champion)
    )
    found = decide(metrics, GatePolicy(margin=margin), ChampionErrors(held_out=better))
    assert found.refusal == refusal
    assert found.held_out is not None
    assert found.held_out.ratio is not None
    assert found.held_out.ratio.high < 0.01
    assert ("worse but for the largest errors" in found.reason) == bool(refusal)


def test_a_row_that_outweighs_all_others_is_told(metrics: Metrics) -> None:
    errors = pair(0.5)
    poisoned = PairedErrors(challenger=np.append(errors.challenger, 1e15), champion=np.append(errors.champion, 1e15))
    found = decide(replace(metrics, linear_rmse=0.1), GatePolicy(), ChampionErrors(held_out=poisoned))
    assert (found.refusal, "one row has 100 % of the squared error" in found.reason) == ("linear", True)
    assert "one row" not in decide(metrics, GatePolicy(), ChampionErrors(held_out=errors)).reason


def test_a_model_that_predicts_the_same_is_not_promoted_at_any_margin(metrics: Metrics) -> None:
    found = decide(metrics, GatePolicy(margin=-0.5), ChampionErrors(held_out=pair(1.0, unlike=0.0)))
    assert (found.refusal, found.promote) == ("equal", False)


def test_a_better_model_that_is_worse_on_a_segment_is_refused_by_its_name(metrics: Metrics) -> None:
    scooters = every(10)
    errors = pair(0.9)
    worse = PairedErrors(
        challenger=np.where(scooters, errors.champion * 1.21, errors.challenger), champion=errors.champion
    )
    segments = {"vehicle=bicycle": every(10, 1), "vehicle=scooter": scooters}
    found = decide(metrics, GatePolicy(), ChampionErrors(held_out=worse, segments=segments))
    assert found.refusal == "segment vehicle=scooter"
    assert "worse on vehicle=scooter beyond noise: RMSE" in found.reason
    assert decide(metrics, GatePolicy(), ChampionErrors(held_out=worse)).promote
    assert list(found.segments) == list(segments)


def test_a_segment_of_few_rows_is_reported_and_not_tested(metrics: Metrics) -> None:
    few = np.arange(ROWS) < MIN_ROWS - 1
    errors = pair(0.9)
    worse = PairedErrors(challenger=np.where(few, errors.champion * 4, errors.challenger), champion=errors.champion)
    found = decide(metrics, GatePolicy(), ChampionErrors(held_out=worse, segments={"vehicle=bicycle": few}))
    assert found.promote
    bicycle = found.segments["vehicle=bicycle"]
    assert (bicycle.rows, bicycle.ratio) == (MIN_ROWS - 1, None)
    assert bicycle.rmse == pytest.approx(2 * bicycle.champion_rmse)


def test_segments_share_the_confidence(metrics: Metrics) -> None:
    segments = {f"vehicle={number}": every(4, number) for number in range(4)}
    found = decide(metrics, GatePolicy(confidence=0.96), ChampionErrors(held_out=pair(0.9), segments=segments))
    ratios = [each.ratio for each in found.segments.values()]
    assert [each.confidence for each in ratios if each] == pytest.approx([0.99] * 4)


@pytest.mark.parametrize(("scale", "refusal"), [(1.05, "forward"), (1.0, ""), (0.95, "")])
def test_a_model_that_is_worse_on_the_newest_records_is_refused(metrics: Metrics, scale: float, refusal: str) -> None:
    found = decide(metrics, GatePolicy(), ChampionErrors(held_out=pair(0.9), forward=pair(scale)))
    assert found.refusal == refusal
    assert found.forward is not None
    assert found.forward.rows == ROWS


def test_a_decision_with_all_its_figures_is_a_document(metrics: Metrics) -> None:
    errors = ChampionErrors(held_out=pair(0.9), segments={"vehicle=bicycle": every(2)}, forward=pair(0.95))
    found = decide(metrics, GatePolicy(), errors)
    assert decode(Decision, encode(found)) == found
    assert found == decide(metrics, GatePolicy(), errors)
